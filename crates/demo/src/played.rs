//! The one thing that the demo plays: the metrics of the application, computed from the images of the pods that the API server shows.

use crate::stage::Stage;

/// The release that has errors.
pub(crate) const BROKEN: &str = "1.29";
/// The metric that the application would have.
const METRIC: &str = "demo_errors";
const ERRORS: f64 = 12.0;

/// From now on the pod, whose image has this tag, counts its errors.
pub(crate) fn play(stage: &Stage, pod: &str, tag: &str) -> anyhow::Result<()> {
    let errors = if tag == BROKEN { ERRORS } else { 0.0 };
    stage.exporter()?.set(METRIC, &[("pod", pod)], errors);
    Ok(())
}

/// What Prometheus has for a pod, asked beside the check: an answer without data has no value in it.
pub(crate) async fn value(stage: &Stage, pod: &str) -> anyhow::Result<String> {
    let data = stage.prometheus()?.query(&format!("{METRIC}{{pod=\"{pod}\"}}")).await?;
    let value = data.pointer("/result/0/value/1").and_then(serde_json::Value::as_str);
    Ok(value.unwrap_or("none").to_owned())
}

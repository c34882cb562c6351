//! The stages that kwok plays: those of its own module for nodes and volumes, and ours for pods (`stages/pods.yaml`, where their meaning is
//! told). Here are only the jq programs that several of ours share, so that no two stages can match the same pod.

use std::{fs, path::Path};

use anyhow::Context as _;

const PODS: &str = include_str!("../stages/pods.yaml");

/// What the pod is asked to do: one of the words at the head of `pods.yaml`.
const MODE: &str = r#"(.metadata.annotations["sts-plus.test/stage"] // ([.spec.containers[].image | capture("[:-](?<word>broken|nopull|never-ready|flapping|hang)$") | .word][0]) // "healthy") | if . == "broken" and $policy != "Always" then "healthy" else . end"#;

/// The state of the pod; every stage asks for other states or, within one, for other modes. A Terminating pod whose grace period is 0 is being
/// removed already: the API server shows it once more in that state, and since kwok deletes by name, a second delete could hit the pod that a
/// StatefulSet has meanwhile made under the same name.
const STATE: &str = r#"if .metadata.deletionTimestamp then (if .metadata.deletionGracePeriodSeconds == 0 then "Leaving" else "Terminating" end) elif (.status.phase // "Pending") == "Pending" then (if [.status.containerStatuses[]?.state.waiting.reason] == [] or (<MODE> != "nopull") then "Pending" else "NotPulled" end) elif .status.phase != "Running" then "Ended" elif .spec.restartPolicy != "Always" and ([.status.containerStatuses[]?.state.running] | any) then "Finite" elif [.status.conditions[]? | select(.type == "Ready") | .status] == ["True"] then "Ready" elif <MODE> == "broken" and ([.status.containerStatuses[]?.state.waiting.reason] | any) then "Crashed" else "Unready" end"#;

const READY_AFTER: &str = r#"(.metadata.annotations["sts-plus.test/ready-after"] // ([.spec.containers[].image | capture("[:-]ready-after-(?<time>[0-9]+(ms|s|m))$") | .time][0]))"#;

const WANT_READY: &str = r#"<MODE> == "healthy" and .metadata.annotations["sts-plus.test/ready"] != "false" and ([.spec.readinessGates[]?.conditionType] - [.status.conditions[]? | select(.status == "True") | .type] == [])"#;

const READY_AT_ONCE: &str = "(<WANT_READY>) and (<READY_AFTER> == null)";

/// When a Terminating pod goes: at a point in time and not after one, since each change of a pod starts a delay anew.
const GONE_AT: &str = r#"((.metadata.annotations["sts-plus.test/stop-after"] // ([.spec.containers[].image | capture("[:-]stop-after-(?<time>[0-9]+s)$") | .time][0])) | rtrimstr("s") | tonumber) as $seconds | ((.metadata.deletionTimestamp | fromdate) - (.metadata.deletionGracePeriodSeconds // 0) + $seconds) | todate"#;

/// All stages as one text of several YAML documents; `own` is the folder with those of kwok.
pub(crate) fn text(own: &Path) -> anyhow::Result<String> {
    let mut documents = vec![pods()];
    let why = || format!("cannot read the stages in {}", own.display());
    let mut files: Vec<_> = fs::read_dir(own).with_context(why)?.flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    for file in files {
        documents.push(fs::read_to_string(file.path()).with_context(why)?);
    }
    Ok(documents.join("\n---\n"))
}

fn pods() -> String {
    let mode = format!("(.spec.restartPolicy as $policy | {MODE})");
    let fill = |program: &str| program.replace("<MODE>", &mode).replace("<READY_AFTER>", READY_AFTER);
    let want_ready = fill(WANT_READY);
    let at_once = fill(READY_AT_ONCE).replace("<WANT_READY>", &want_ready);
    [
        ("<MODE>", quoted(&mode)),
        ("<STATE>", quoted(&fill(STATE))),
        ("<READY_AFTER>", quoted(READY_AFTER)),
        ("<WANT_READY>", quoted(&want_ready)),
        ("<READY_AT_ONCE>", quoted(&at_once)),
        ("<GONE_AT>", quoted(GONE_AT)),
        ("<READY>", quoted(&readiness(true))),
        ("<UNREADY>", quoted(&readiness(false))),
    ]
    .iter()
    .fold(PODS.to_owned(), |text, (word, value)| text.replace(word, value))
}

/// A Go template for the status of a running pod that becomes Ready or stops being it.
fn readiness(ready: bool) -> String {
    let (status, reason) = if ready { ("True", r#""""#) } else { ("False", "ContainersNotReady") };
    format!(
        r#"{{{{ $now := Now }}}}
conditions:
- {{ type: ContainersReady, status: "{status}", reason: {reason}, lastTransitionTime: {{{{ $now | Quote }}}} }}
- {{ type: Ready, status: "{status}", reason: {reason}, lastTransitionTime: {{{{ $now | Quote }}}} }}
containerStatuses:
{{{{ range .spec.containers }}}}
- name: {{{{ .name | Quote }}}}
  image: {{{{ .image | Quote }}}}
  imageID: {{{{ .image | Quote }}}}
  ready: {ready}
  started: true
  restartCount: 0
  state: {{ running: {{ startedAt: {{{{ or $.status.startTime $now | Quote }}}} }} }}
{{{{ end }}}}
phase: Running
"#
    )
}

/// A YAML string in double quotes: JSON's form is one.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_is_filled() {
        let text = pods();
        let stages = text.split("\n---\n").count();
        assert_eq!(stages, 10);
        let body: String = text.lines().filter(|line| !line.starts_with('#')).collect();
        for word in ["<MODE>", "<STATE>", "<WANT_READY>", "<READY", "<UNREADY>", "<GONE_AT>"] {
            assert!(!body.contains(word), "{word} is left");
        }
    }
}

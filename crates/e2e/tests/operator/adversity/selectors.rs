//! The selector of a Service that somebody else takes in the very moment in which the operator writes to it.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::proxy::{Barrier, Fault};
use sts_plus_e2e::{eventually, turn};

use super::supervised::is_quiet;
use super::upgrade::{Stage, Way};

/// Our write is bound to the Service as it was read: it is refused, and a selector that is not ours stays.
#[tokio::test(flavor = "multi_thread")]
async fn a_selector_that_somebody_takes_in_between_is_left_to_them() {
    let stage = Stage::at_rest(Way::Promoted, "taken", Some(turn().await)).await;
    let (done, barrier) = (AtomicBool::new(false), Barrier::default());
    let held = barrier.clone();
    stage.proxy.on(move |call| {
        (call.is("patch", "services") && !done.swap(true, Ordering::Relaxed)).then(|| Fault::Held(held.clone()))
    });
    let select = async |version: Value| {
        let taken = json!({
            "metadata": { "annotations": { names::OWNER: null } },
            "spec": { "selector": { names::VERSION: version } },
        });
        stage.scene.patch("service/live", &taken).await
    };
    select(Value::Null).await;
    let write = || stage.proxy.records().into_iter().find(|record| record.fault.is_some());
    eventually("the write is on its way", async || write().is_some()).await;
    select(json!("7")).await;
    barrier.open();
    eventually("it has arrived", async || write().is_some_and(|write| write.answered.is_some())).await;
    assert_eq!(write().and_then(|write| write.answered), Some(422));
    eventually("the operator has nothing more to do", async || is_quiet(&stage.proxy)).await;
    let service = stage.scene.api("service").get("live").await.expect("it is there");
    assert_eq!(service.data["spec"]["selector"][names::VERSION], "7");
}

//! At rest nothing is written, by the audit log of the API server.

use std::time::Duration;

use sts_plus_api::ConditionType;
use sts_plus_e2e::{Scene, audit};

/// How long nothing may be written. This one wait is the matter itself, not patience.
const MINUTE: Duration = Duration::from_mins(1);
/// How long nothing may be written after a restart has had its look at everything.
const SETTLED: Duration = Duration::from_secs(10);

// spec: pr§9
#[tokio::test]
async fn at_rest_nothing_is_written_in_a_minute_and_nothing_after_a_restart() {
    let mut scene = Scene::at_rest("quiet", 3, &Scene::gate().await).await;
    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.until("the hold is found out", |world| world.condition(ConditionType::HoldEnforced) == "True/Enforced").await;
    scene.until_events(sts_plus_api::Reason::Completed, 2).await;
    let before = scene.requests().len();
    tokio::time::sleep(MINUTE).await;
    let minute = scene.requests().split_off(before);
    assert_eq!(audit::writes(&minute).len(), 0, "{}", audit::tell(&minute));

    scene.kill_operator();
    let before = scene.requests().len();
    scene.start_operator();
    // It has read everything and found out about the hold: by then it has decided.
    scene.until_requests("a dry run", before, |request| request.dry_run).await;
    tokio::time::sleep(SETTLED).await;
    let after = scene.requests().split_off(before);
    assert_eq!(audit::writes(&after).len(), 0, "{}", audit::tell(&after));
    scene.end().await;
}

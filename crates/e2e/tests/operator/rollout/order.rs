//! One whole rollout of three pods, as the API server recorded it: its story, its verdicts, its costs, and who asked.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::SignedDuration;
use sts_plus::rbac;
use sts_plus_api::{ConditionType, Reason};
use sts_plus_e2e::{Asked, Entry, Scene, Seen, World, audit, eventually, moves, story};
use testcluster::AuditEntries;
use tokio::sync::OnceCell;

/// From the change of the image to the end. The partition goes up in the very write that changes the template; each step comes
/// after two passed checks; after the last pod the partition rests first, and only under that hold the final checks are made.
const STORY: &str = "\
web: app:2, partition HOLD
gate: Checking (RolloutStarted)
gate: Checking (Preflight)
check preflight web-2: NoData, passed
check preflight web-2: NoData, passed
web: partition 2
gate: Rolling (PodRolling)
web-2 is gone (app:1)
web-2 is made (app:2)
web-2 is Ready
gate: Checking
check pod web-2: NoData, passed
check pod web-2: NoData, passed
web: partition 1
gate: Rolling (PodRolling)
web-1 is gone (app:1)
web-1 is made (app:2)
web-1 is Ready
gate: Checking
check pod web-1: NoData, passed
check pod web-1: NoData, passed
web: partition 0
gate: Rolling (PodRolling)
web-0 is gone (app:1)
web-0 is made (app:2)
web-0 is Ready
web: app:2 is the current revision
web: partition 3
gate: Checking (FinalChecks)
check final web-0: NoData, passed
check final web-0: NoData, passed
gate: Completed";

/// What is left of the scenario.
struct Recording {
    entries: Vec<Entry>,
    /// What Prometheus was asked.
    asked: Vec<Asked>,
    /// Everything that the operator asked the API server for.
    requests: AuditEntries,
    /// How much of both there was before the release.
    start: (u64, usize),
    born: BTreeMap<String, String>,
    end: Arc<World>,
    /// Requests in all namespaces with the operator's account that did not name this version of it.
    strange: AuditEntries,
}

static RECORDING: OnceCell<Recording> = OnceCell::const_new();

/// The rollout, which is played once.
async fn recorded() -> &'static Recording {
    RECORDING.get_or_init(record).await
}

async fn record() -> Recording {
    let scene = Scene::at_rest("golden", 3, &Scene::gate().await).await;
    scene.until("the hold is found out", |world| world.condition(ConditionType::HoldEnforced) == "True/Enforced").await;
    let (start, born) = ((scene.world().latest_version(), scene.requests().len()), scene.world().uids());
    scene.release("app:2").await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    // The events come before the status, and the audit log may come a moment after both.
    scene.until_events(Reason::Completed, 2).await;
    let steps = moves::steps(&scene.tape.entries()).len();
    let are_logged = async || audit::count(&scene.requests(), "statefulsets") >= steps;
    eventually("each step is in the audit log", are_logged).await;
    let (entries, asked, requests) = (scene.tape.entries(), scene.asked(), scene.requests());
    let agent = format!("sts-plus/{}", scene.ground.operator_version());
    let mut strange = scene.ground.cluster.audit_log().entries().expect("the audit log can be read");
    strange.retain(|entry| entry.user == rbac::user_name(rbac::NAMESPACE));
    // A person may act as the operator.
    strange.retain(|entry| entry.impersonated_by.is_none() && entry.user_agent != agent);
    scene.end().await;
    Recording { entries, asked, requests, start, born, end, strange }
}

fn without(story: &str, actor: &str) -> String {
    story.lines().filter(|line| !line.starts_with(actor)).collect::<Vec<_>>().join("\n")
}

// spec: pr§4, L026, L040
#[tokio::test]
async fn three_pods_are_rolled_one_at_a_time_each_after_its_checks() {
    let Recording { entries, asked, start, born, end, .. } = recorded().await;
    // The operator's status and the pods are written by different hands: each is in order with the partition, not with the other.
    let story = story::since(entries, start.0).join("\n");
    // The operator may reconcile before the StatefulSet controller has, and says so where that takes long.
    let story = without(&story, "gate: Rolling (AwaitingController)");
    assert_eq!(without(&story, "gate: "), without(STORY, "gate: "), "the pods");
    assert_eq!(without(&story, "web-"), without(STORY, "web-"), "the operator");
    assert!(end.uids().iter().all(|(pod, uid)| born[pod] != *uid), "every pod is a new one");
    let moved = moves::assert_gated_by(asked, entries, "app:1", 2);
    assert_eq!(moved.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-2", "web-1", "web-0"]);
}

/// The steps as they were stored, and the requests that wrote them with the API server's own times.
// spec: pr§4, L041
#[tokio::test]
async fn no_partition_is_written_before_the_verdicts_that_it_needs() {
    let Recording { entries, asked, requests, .. } = recorded().await;
    let steps = moves::steps(entries);
    let partitions: Vec<_> = steps.iter().map(|step| step.partition).collect();
    assert_eq!(partitions, [3, 2, 1, 0, 3], "claim, three pods, rest; and the hold is written by the API server");
    let patches: Vec<_> =
        audit::writes(requests).into_iter().filter(|entry| audit::full_name(entry) == "statefulsets").collect();
    assert_eq!(patches.len(), steps.len(), "{}", audit::tell(requests));
    let mut before = patches[0].answered;
    for (step, patch) in steps.iter().zip(&patches).filter(|(step, _)| step.partition < 3) {
        let between: Vec<_> = asked.iter().filter(|asked| (before..patch.received).contains(&asked.at)).collect();
        assert!(between.len() >= 2 && between.iter().all(|asked| asked.has_passed()), "{step:?}: {between:?}");
        before = patch.answered;
    }
}

// spec: pr§9
#[tokio::test]
async fn a_good_rollout_costs_one_patch_and_one_event_a_pod_and_few_statuses() {
    let Recording { entries, requests, start, .. } = recorded().await;
    let requests = &requests[start.1..];
    let writes = audit::tell(requests);
    assert_eq!(audit::count(requests, "statefulsets"), 4, "one for each pod and one to rest\n{writes}");
    // On the PhasedRollout and on the set: started and completed. Besides, one for each pod.
    assert_eq!(audit::count(requests, "events"), 2 * 2 + 3, "{writes}");
    assert_eq!(audit::writes(requests).len(), 4 + 7 + audit::count(requests, "phasedrollouts/status"), "{writes}");
    let steps: Vec<_> = moves::steps(entries).into_iter().filter(|step| step.version > start.0).collect();
    for pair in steps.windows(2) {
        let range = pair[0].version..pair[1].version;
        let statuses = entries.iter().filter(|entry| range.contains(&entry.version) && is_of_a_good_case(entry));
        assert!(statuses.count() <= 2 + 1, "successThreshold + 1 between {pair:?}\n{writes}");
    }
}

/// A status that does not report a controller which takes longer than a second, or a pod which has been away for longer than ten.
fn is_of_a_good_case(entry: &Entry) -> bool {
    let Seen::Rollout(rollout) = &entry.seen else { return false };
    let status = rollout.status.clone().unwrap_or_default();
    let waits = status.conditions.iter().any(|it| it.reason == Reason::AwaitingController.to_string());
    let since = status.last_progress_time.map(|progress| entry.arrived.duration_since(progress));
    let is_slow = status.ready_replicas < status.replicas && since >= Some(SignedDuration::from_secs(10));
    !waits && !is_slow
}

#[tokio::test]
async fn every_request_of_the_operator_says_who_it_is() {
    let Recording { requests, strange, .. } = recorded().await;
    let account = rbac::user_name(rbac::NAMESPACE);
    assert!(requests.iter().any(|entry| entry.is_write() && entry.user == account), "it has asked, by its account");
    assert!(strange.is_empty(), "{strange:?}");
}

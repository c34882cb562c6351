//! InPlace under hands, crashes and silence.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Reason, VersionPhase, names};
use sts_plus_e2e::{Seen, audit, objects};

use crate::in_place::{all_at, carried, checked, plain};
use crate::story::{Story, View};

/// How long nothing may be written. This wait is the matter itself, not patience.
const SILENCE: Duration = Duration::from_secs(3);

/// Pods at the version, whatever they are called.
fn count_at(view: &View, version: &str) -> usize {
    carried(view).values().filter(|at| *at == version).count()
}

/// The pods that were ever seen, by their versions and names.
fn lives(story: &Story) -> BTreeMap<(String, String), usize> {
    let mut uids: BTreeMap<String, (String, String)> = BTreeMap::new();
    for entry in story.scene.tape.entries() {
        let Seen::Pod(pod) = &entry.seen else { continue };
        let version = pod.metadata.labels.as_ref().and_then(|labels| labels.get(names::VERSION)).cloned();
        let (Some(uid), Some(name)) = (pod.metadata.uid.clone(), pod.metadata.name.clone()) else { continue };
        uids.insert(uid, (version.unwrap_or_default(), name));
    }
    let mut lives = BTreeMap::new();
    for pod in uids.into_values() {
        *lives.entry(pod).or_default() += 1;
    }
    lives
}

/// Nothing is written while nothing changes.
async fn assert_silent(story: &Story, what: &str) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = story.scene.requests().len();
    tokio::time::sleep(SILENCE).await;
    let seen = story.scene.requests().split_off(before);
    assert_eq!(audit::writes(&seen).len(), 0, "{what}: {}", audit::tell(&seen));
}

#[tokio::test]
async fn kills_in_a_rollout_and_in_a_rollback_change_nothing_in_the_story() {
    let check = json!({ "preflight": false, "onFailure": "Rollback" });
    let mut story = Story::at_rest("in-place-kills", &checked(&check).await).await;
    story.release("app:2").await;
    for count in 1..=3 {
        story.until("one more", |view| count_at(view, "2") >= count).await;
        story.scene.kill_operator();
        story.scene.start_operator();
    }
    story.until("version 2 alone", |view| view.is_only(2) && all_at(view, 2)).await;
    story.release("app:3-errors").await;
    story.until("a pod is on version 3", |view| count_at(view, "3") == 1).await;
    for count in [1, 0] {
        story.until("on the way back", |view| count_at(view, "3") == count).await;
        story.scene.kill_operator();
        story.scene.start_operator();
    }
    story.until("back and stale", |view| view.is(VersionPhase::Failed) && all_at(view, 2)).await;
    let lives = lives(&story);
    let count = |version: &str, pod: &str| lives.get(&(version.to_owned(), pod.to_owned())).copied().unwrap_or(0);
    for pod in ["db-0", "db-1", "db-2"] {
        let expected = if pod == "db-2" { (1, 2, 1) } else { (1, 1, 0) };
        assert_eq!((count("1", pod), count("2", pod), count("3", pod)), expected, "{pod}: {lives:?}");
    }
    assert!(story.scene.events_of(Reason::ChildDrift).await.is_empty(), "nobody else wrote anything");
    story.end().await;
}

#[tokio::test]
async fn nothing_is_written_at_rest_paused_failed_or_stale() {
    let check = json!({ "preflight": false, "onFailure": "Pause" });
    let story = Story::at_rest("in-place-quiet", &checked(&check).await).await;
    assert_silent(&story, "at rest").await;
    story.change(&json!({ "spec": { "paused": true } })).await;
    story.release("app:2-errors").await;
    story.until("paused", |view| view.is(VersionPhase::Paused)).await;
    assert_silent(&story, "paused").await;
    story.change(&json!({ "spec": { "paused": false } })).await;
    story.until("a pod is on version 2", |view| count_at(view, "2") == 1).await;
    story.change(&json!({ "spec": { "updateStrategy": { "check": { "onFailure": "Rollback" } } } })).await;
    story.until("stale", |view| view.is(VersionPhase::Failed) && all_at(view, 1)).await;
    assert_silent(&story, "stale").await;
    story.end().await;
}

#[tokio::test]
async fn hands_and_a_lost_status_in_mid_rollout_let_no_pod_slip() {
    let story = Story::at_rest("in-place-hands", &checked(&json!({ "preflight": false })).await).await;
    let before = story.view().await;
    story.release("app:2-errors").await;
    let failed = story.until("failed", |view| view.is(VersionPhase::Failed) && count_at(view, "2") == 1).await;
    let open = json!({ "spec": { "replicas": 5, "updateStrategy": { "rollingUpdate": { "partition": 0 } } } });
    story.scene.patch("statefulset/db", &open).await;
    story.scene.kubectl_ok(&["set", "image", "statefulset/db", "app=app:9"], "").await;
    let is_put_back = |view: &View| {
        let set = view.world.sets["db"].spec.clone().unwrap_or_default();
        let image = set.template.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        set.replicas == Some(3) && image.as_deref() == Some("app:2-errors") && view.world.partition_of("db") != Some(0)
    };
    story.until("put back", |view| is_put_back(view) && view.is(VersionPhase::Failed)).await;
    let wiped: Value = json!({ "status": null });
    let wipe = wiped.to_string();
    let patch = ["patch", "extendedstatefulset/db", "--subresource=status", "--type=merge", "-p", wipe.as_str()];
    story.scene.kubectl_ok(&patch, "").await;
    let again = |view: &View| view.is(VersionPhase::Failed) && view.status.last_version == 2;
    let after = story.until("known again", |view| again(view) && carried(view).len() == 3).await;
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    for pod in ["db-0", "db-1"] {
        assert_eq!(after.uids(pod), before.uids(pod));
    }
    assert_eq!(carried(&after), carried(&failed));
    // What version 1 was is kept beside the status.
    story.release("app:1").await;
    story.until("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    story.end().await;
}

#[tokio::test]
async fn what_cannot_be_done_is_refused_with_the_cure_and_deletion_ends() {
    let story = Story::at_rest("in-place-refused", &plain()).await;
    let before = story.view().await;
    let service = json!({ "spec": { "template": { "spec": { "serviceName": "other" } } } });
    story.change(&service).await;
    let refused = story.until("refused", |view| view.condition("TemplateValid") == "False/TemplateRefused").await;
    assert_eq!((refused.uids("db-"), refused.status.last_version), (before.uids("db-"), 1));
    story.change(&json!({ "spec": { "template": { "spec": { "serviceName": "db" } } } })).await;
    story.until("accepted again", |view| view.is_only(1)).await;

    let gate = objects::with(objects::rollout("http://prom:9090"), "/spec/targetRef", "db");
    story.scene.create(&objects::with(gate, "/metadata/name", "db")).await;
    let is_told = |view: &View| view.world.condition_of("db", ConditionType::TargetAccepted).starts_with("False/");
    let told = story.until("a PhasedRollout is refused", is_told).await;
    let message = told.world.message_of("db", ConditionType::TargetAccepted);
    assert!(message.contains("updateStrategy.check"), "{message}");

    story.release("app:2").await;
    story.until("in the middle", |view| count_at(view, "2") == 1 || count_at(view, "1") == 2).await;
    story.scene.kubectl_ok(&["delete", "extendedstatefulset/db", "--timeout=30s"], "").await;
    story.scene.until("all is gone", |world| world.sets.is_empty() && world.pods.is_empty()).await;
    story.end().await;
}

/// A StatefulSet that is deleted takes its revisions along; deleting it approves nothing.
#[tokio::test]
async fn a_set_that_is_deleted_in_mid_upgrade_comes_back_as_the_version_in_charge() {
    let story = Story::at_rest("in-place-gone", &checked(&json!({ "preflight": false })).await).await;
    story.release("app:2-errors").await;
    story.until("failed", |view| view.is(VersionPhase::Failed) && count_at(view, "2") == 1).await;
    let former = story.view().await.set_uid("db");
    story.scene.kubectl_ok(&["delete", "statefulset", "db"], "").await;
    let is_new = |view: &View| view.set_uid("db").is_some_and(|uid| former.as_ref() != Some(&uid));
    let is_held = |view: &View| view.is(VersionPhase::Failed) && carried(view).len() == 3;
    let after = story.until("made anew and held", |view| is_new(view) && is_held(view)).await;
    assert!(count_at(&after, "2") <= 1, "one pod at most is tried: {:?}", carried(&after));
    assert_eq!((after.status.current_version, after.status.update_version), (Some(1), Some(2)));
    story.release("app:1").await;
    let back = story.until("version 1 alone", |view| view.is_only(1) && all_at(view, 1)).await;
    assert_eq!(back.status.last_version, 2, "no new number");
    story.end().await;
}

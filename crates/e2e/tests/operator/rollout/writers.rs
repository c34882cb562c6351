//! Others who write the same objects: appliers with field managers of their own, an owner that takes its template back, a
//! rollout that was under way before anybody watched, and a second PhasedRollout beside the first.

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::{ConditionType, Phase, Reason, names};
use sts_plus_e2e::{Scene, Seen, World, audit, eventually, moves, objects};

use super::{approve, end_pod, gate_that_waits_before, is_awaiting, never_ends, release_until_awaited};

const SERVER_SIDE: [&str; 5] = ["apply", "--server-side", "--field-manager=gitops", "-f", "-"];

/// A manifest that says nothing of the partition, or pins it.
fn manifest(image: &str, partition: Option<i32>) -> String {
    let set = objects::image(objects::set(3), image);
    let pinned = |partition: i32| json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": partition } });
    match partition {
        Some(partition) => objects::with(set, "/spec/updateStrategy", pinned(partition)).to_string(),
        None => set.to_string(),
    }
}

// spec: hold, L037, L095
#[tokio::test]
async fn an_applier_without_a_partition_never_conflicts_and_one_with_it_is_refused_or_kept_out() {
    let mut scene = Scene::new("gitops").await;
    scene.kubectl_ok(&SERVER_SIDE, &manifest("app:1", None)).await;
    scene.until("all pods are Ready", |world| world.all_on("app:1")).await;
    scene.create(&gate_that_waits_before(1).await).await;
    scene.start_operator();
    scene.until_settled("at rest", |world| world.is(Phase::Idle) && world.partition() == Some(3)).await;

    scene.kubectl_ok(&SERVER_SIDE, &manifest("app:2", None)).await;
    let awaited = scene.until_settled("a person is awaited", is_awaiting).await;
    assert_eq!(awaited.partition(), Some(2));
    // Every sync of the same manifest, in the middle as well.
    for _ in 0..3 {
        scene.kubectl_ok(&SERVER_SIDE, &manifest("app:2", None)).await;
    }
    let refused = scene.kubectl(&SERVER_SIDE, &manifest("app:2", Some(0))).await;
    assert!(
        !refused.ok && refused.stderr.contains(&format!("conflict with \"{}\"", names::MANAGER_HOLD)),
        "{refused:?}"
    );
    let forced = [SERVER_SIDE.as_slice(), &["--force-conflicts"]].concat();
    let kept = scene.kubectl_ok(&forced, &manifest("app:2", Some(0))).await;
    assert!(kept.stderr.contains("Warning") && kept.stderr.contains("gate"), "the writer is warned: {kept:?}");
    let after = scene.world();
    assert_eq!((after.partition(), after.uids()), (Some(2), awaited.uids()));
    // The field belongs to us again with our next step, and nothing of the application's is ours.
    approve(&scene, 1).await;
    let end = scene.until("complete", |world| world.is_complete("app:2")).await;
    let again = scene.kubectl(&SERVER_SIDE, &manifest("app:2", Some(0))).await;
    assert!(!again.ok && again.stderr.contains(names::MANAGER_HOLD), "{again:?}");
    for (manager, fields) in managed(&end, "web") {
        if manager == names::MANAGER_HOLD {
            let spec = fields.get("f:spec").cloned().unwrap_or_default();
            assert_eq!(spec, json!({ "f:updateStrategy": { "f:rollingUpdate": { "f:partition": {} } } }));
        }
    }
    moves::assert_gated(&scene, "app:1", 1);
    scene.end().await;
}

/// The managers of a set and what of it is theirs.
fn managed(world: &World, set: &str) -> Vec<(String, Value)> {
    let managers = world.sets[set].metadata.managed_fields.iter().flatten();
    let entry = |entry: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref().map(|fields| fields.0.clone()).unwrap_or_default();
        (entry.manager.clone().unwrap_or_default(), fields)
    };
    managers.map(entry).collect()
}

// spec: pr§4, L033, L152
#[tokio::test]
async fn a_partition_that_somebody_raises_takes_no_pod_back_and_the_rollout_resumes() {
    let scene = Scene::at_rest("raised", 3, &gate_that_waits_before(1).await).await;
    let awaited = release_until_awaited(&scene, "app:2").await;
    scene
        .patch("statefulset/web", &json!({ "spec": { "updateStrategy": { "rollingUpdate": { "partition": 3 } } } }))
        .await;
    let raised = scene.until_settled("raised", |world| world.partition() == Some(3)).await;
    assert_eq!(raised.uids(), awaited.uids());
    assert!(
        !raised.is(Phase::RolledBack) && !raised.is(Phase::Completed),
        "nothing has gone back, and nothing is done"
    );
    approve(&scene, 1).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    assert_eq!(moves::assert_gated(&scene, "app:1", 1).len(), 3, "each pod has moved once");
    scene.end().await;
}

/// Five pods, two of them rolled: the equal revisions in the status of the set say "done" from the first moment on.
// spec: pr§4, L034, L039
#[tokio::test]
async fn a_revert_after_two_of_five_is_complete_only_when_both_are_back() {
    let scene = Scene::at_rest("revert", 5, &gate_that_waits_before(2).await).await;
    let born = scene.world().uids();
    let awaited = release_until_awaited(&scene, "app:2").await;
    assert!(awaited.is_ready_on("web-4", "app:2") && awaited.is_ready_on("web-3", "app:2"));
    let from = scene.tape.entries().last().map_or(0, |entry| entry.version);
    scene.release("app:1").await;
    let end = scene.until("complete", |world| world.is_complete("app:1")).await;
    let untouched = ["web-0", "web-1", "web-2"];
    assert!(untouched.iter().all(|pod| end.uids().get(*pod) == born.get(*pod)), "the others have not moved");
    let entries = scene.tape.entries();
    let back = moves::of(&entries).into_iter().filter(|moved| moved.to == "app:1").map(|moved| moved.made).max();
    let completed = entries.iter().filter(|entry| entry.version > from).find(|entry| match &entry.seen {
        Seen::Rollout(rollout) => rollout.status.as_ref().is_some_and(|status| status.phase == Phase::Completed),
        _ => false,
    });
    assert!(completed.map(|entry| entry.version) > back && back.is_some(), "complete before {back:?}");
    scene.end().await;
}

/// An operator that owns the set rewrites its template at each sync.
// spec: L059, L039
#[tokio::test]
async fn an_owner_that_takes_its_template_back_is_reported_and_leads_to_no_loop() {
    let scene = Scene::at_rest("owner", 3, &gate_that_waits_before(1).await).await;
    let born = scene.world().uids();
    for round in 1..=2_usize {
        release_until_awaited(&scene, "app:2").await;
        scene.release("app:1").await;
        let back = |world: &World| world.is_complete("app:1") && world.controller_has_seen();
        let back = scene.until("back and complete", back).await;
        let untouched = ["web-0", "web-1"].iter().all(|pod| back.uids().get(*pod) == born.get(*pod));
        assert!(untouched, "round {round}: only the first pod went and came back");
        let started = scene.events_of(Reason::RolloutStarted).await;
        let is_way_back = |note: &str| note.contains("is back at") && note.contains("the last good revision");
        let back = started.iter().filter(|event| is_way_back(event.note.as_deref().unwrap_or_default())).count();
        assert!(back >= 1, "the way back is reported as such: {started:?}");
    }
    // Taken back before anything has moved: nothing moves.
    let rested = scene.world().uids();
    scene.release("app:2").await;
    scene.release("app:1").await;
    let reconciled = |world: &World| world.is_complete("app:1") && world.controller_has_seen();
    scene.configure(&json!({ "progressDeadlineSeconds": 86400 })).await;
    assert_eq!(scene.until("at rest again", reconciled).await.uids(), rested);
    // And nothing goes on: each other spec is answered by one status, and by nothing else. What is left of before comes with the first.
    let mut since = Timestamp::MAX;
    for deadline in 86401..86406 {
        if deadline == 86403 {
            since = Timestamp::now();
        }
        scene.configure(&json!({ "progressDeadlineSeconds": deadline })).await;
        scene.until("reconciled again", reconciled).await;
    }
    let requests = || {
        let mut requests = scene.requests();
        requests.retain(|entry| entry.received >= since);
        requests
    };
    let statuses = || audit::count(&requests(), "phasedrollouts/status");
    eventually("each status is in the audit log", async || statuses() >= 3).await;
    assert_eq!((statuses(), audit::writes(&requests()).len()), (3, 3), "{}", audit::tell(&requests()));
    scene.end().await;
}

/// Nobody watched when the rollout began, and its partition is open: what has escaped is reported, the rest is held.
// spec: pr§7, L031, L094
#[tokio::test]
async fn a_rollout_under_way_is_held_at_once_and_what_has_escaped_is_reported() {
    let mut scene = Scene::new("adopted").await;
    scene.create(&objects::set(4)).await;
    scene.until_settled("all pods are Ready", |world| world.all_on("app:1")).await;
    never_ends(&scene, "web-2").await;
    scene.release("app:2").await;
    let leaves = |world: &World| world.pods.get("web-2").is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    scene.until("web-3 has escaped", |world| world.is_ready_on("web-3", "app:2") && leaves(world)).await;
    scene.create(&Scene::quick_gate().await).await;
    scene.start_operator();
    let held = scene.until("held", |world| world.is_held() && world.annotation(names::CLAIM) == Some("gate")).await;
    assert_eq!((held.image("web-1"), held.image("web-0")), ("app:1", "app:1"));
    let events = scene.until_events(Reason::PodsSlipped, 1).await;
    let note = events[0].note.clone().unwrap_or_default();
    assert!(note.contains("1 of 4 pods carry the pending revision") && note.contains("are checked"), "{note}");
    end_pod(&scene, "web-2").await;
    scene.until("web-2 comes back as it was", |world| world.is_ready_on("web-2", "app:1")).await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    let moved = moves::of(&scene.tape.entries());
    let gated: Vec<_> = moved.iter().filter(|moved| moved.pod != "web-3").collect();
    assert_eq!(gated.iter().map(|moved| moved.pod.as_str()).collect::<Vec<_>>(), ["web-2", "web-1", "web-0"]);
    moves::assert_passed(gated, &scene.asked(), 1);
    scene.end().await;
}

// spec: L095, L151
#[tokio::test]
async fn two_rollouts_beside_each_other_touch_only_their_own_sets() {
    let scene = Scene::at_rest("beside", 2, &Scene::quick_gate().await).await;
    let db = objects::named(objects::set(2), "db");
    scene.create(&db).await;
    let gate = objects::with(Scene::quick_gate().await, "/metadata/name", "gate-db");
    scene.create(&objects::with(gate, "/spec/targetRef", "db")).await;
    let rests = |world: &World| world.partition_of("db") == Some(2) && world.status_of("gate-db").phase == Phase::Idle;
    let before = scene.until_settled("both are at rest", rests).await;

    scene.release_of("db", "app:2").await;
    let done =
        |world: &World| world.status_of("gate-db").phase == Phase::Completed && world.partition_of("db") == Some(2);
    let after = scene.until("db is complete", done).await;
    assert_eq!(after.sets["web"].metadata.generation, before.sets["web"].metadata.generation);
    assert_eq!(managed(&after, "web"), managed(&before, "web"), "nobody has written web");
    assert_eq!(after.status(), before.status(), "and gate has nothing to say");
    assert!(["web-0", "web-1"].iter().all(|pod| after.uids()[*pod] == before.uids()[*pod]));

    // Both at once: each partition is written for a revision of its own set.
    scene.release_of("db", "app:3").await;
    scene.release("app:3").await;
    let done = |world: &World| {
        done(world) && world.image("db-0") == "app:3" && world.is(Phase::Completed) && world.image("web-0") == "app:3"
    };
    scene.until("both are complete", done).await;
    for entry in scene.tape.entries() {
        let Seen::Set(set) = &entry.seen else { continue };
        let name = set.metadata.name.clone().unwrap_or_default();
        let annotations = set.metadata.annotations.clone().unwrap_or_default();
        if let Some(written) = annotations.get(names::WRITTEN_PARTITION) {
            // At a claim the controller may not have said yet which revision is wanted: all of them are held.
            let is_whole_hold = *written == format!("/{}", names::HOLD);
            assert!(is_whole_hold || written.starts_with(&format!("{name}-")), "{name}: {written}");
        }
        for manager in set.metadata.managed_fields.iter().flatten().filter_map(|entry| entry.manager.as_deref()) {
            let known = [names::MANAGER_HOLD, names::MANAGER_LIFECYCLE, "kubectl-create", "person"];
            assert!(known.contains(&manager) || manager.starts_with("kube-"), "{name} is written by {manager}");
        }
    }
    let writers = |rollout: &sts_plus_api::PhasedRollout| {
        let of_status =
            rollout.metadata.managed_fields.iter().flatten().filter(|e| e.subresource.as_deref() == Some("status"));
        of_status.filter_map(|entry| entry.manager.clone()).collect::<Vec<_>>()
    };
    assert_eq!(writers(&scene.rollout().await), [names::MANAGER_STATUS], "one writer of the status");
    scene.end().await;
}

// spec: pr§7, L030
#[tokio::test]
async fn a_target_left_in_mid_rollout_keeps_its_hold_and_the_next_one_is_claimed() {
    let scene = Scene::at_rest("moves-on", 3, &gate_that_waits_before(1).await).await;
    scene.create(&objects::named(objects::set(1), "db")).await;
    let awaited = release_until_awaited(&scene, "app:2").await;
    scene.configure(&json!({ "targetRef": "db" })).await;
    let claimed = |world: &World| {
        world.annotation_of("db", names::CLAIM) == Some("gate")
            && world.condition(ConditionType::TargetAccepted) == "True/Claimed"
            && world.partition_of("db") == Some(1)
    };
    let left = scene.until_settled("db is claimed", claimed).await;
    assert_eq!((left.annotation(names::CLAIM), left.partition()), (None, Some(2)), "released, and held as it was");
    assert!(awaited.uids().iter().all(|(pod, uid)| left.uids().get(pod) == Some(uid)), "no pod has moved");
    let events = scene.until_events(Reason::Released, 1).await;
    assert!(events.iter().any(|event| event.note.as_deref().is_some_and(|note| note.contains("keeps its partition"))));
    scene.end().await;
}

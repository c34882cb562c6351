//! What the operator sees is not what is there: a watch fell silent, an event got lost, an answer is of long ago.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use jiff::SignedDuration;
use serde_json::Value;
use sts_plus_api::Phase;
use sts_plus_e2e::proxy::{Barrier, Fault, Record};
use sts_plus_e2e::{World, image_of};
use testcluster::Method;

use super::share::Share;
use super::story::{Kind, Played, Stage};

const KINDS: [Kind; 2] = [Kind::Rollout, Kind::Rollback];
const RESOURCES: [&str; 3] = ["phasedrollouts", "statefulsets", "pods"];
/// How many answers in a row are old.
const OLD_ANSWERS: usize = 4;

/// A story up to the moment at which it has begun to roll.
async fn begun(kind: Kind, name: &str) -> Stage {
    let mut stage = Stage::set(kind, name).await;
    stage.start(Vec::new());
    stage.until_rest().await;
    stage.release().await;
    stage.until("it has begun", |world| !world.is(Phase::Idle)).await;
    stage
}

async fn finish(kind: Kind, stage: Stage) {
    stage.until_over().await;
    stage.end(Some(Played::undisturbed(kind).await)).await;
}

// spec: L076
#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_falls_silent_for_good_only_makes_it_slower() {
    with_silent_watches(Share::Third).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: part of `make soak`"]
async fn each_watch_that_falls_silent_for_good_only_makes_it_slower() {
    with_silent_watches(Share::All).await;
}

async fn with_silent_watches(share: Share) {
    let all = [&RESOURCES[..1], &RESOURCES[1..2], &RESOURCES[2..], &RESOURCES[..]];
    let runs = KINDS.into_iter().flat_map(|kind| all.map(|frozen| (kind, frozen)));
    join_all(share.of(runs).into_iter().map(async |(kind, frozen)| {
        let stage = begun(kind, "frozen").await;
        for resource in frozen {
            stage.proxy.freeze(resource);
        }
        stage.until_over().await;
        let unheard: Vec<_> = frozen.iter().filter(|resource| !stage.proxy.has_silenced(resource)).collect();
        assert!(unheard.is_empty(), "they had nothing to say: {unheard:?}");
        finish(kind, stage).await;
    }))
    .await;
}

/// How soon something is written when a pod is Ready; the API server's own times are in whole seconds. By itself the operator looks after ten.
const GOES_ON: SignedDuration = SignedDuration::from_secs(7);

/// Every list is read anew while a pod is awaited, or no watch lasts: what becomes of a pod is heard all the same. Each time that a watch fails
/// the operator pauses longer, so that is not done all the time.
// spec: L076
#[tokio::test(flavor = "multi_thread")]
async fn lists_that_are_read_anew_and_watches_that_end_at_once_delay_nothing() {
    join_all([true, false].map(async |is_anew| {
        let stage = begun(Kind::Rollout, "anew").await;
        let read_anew = || RESOURCES.iter().for_each(|resource| stage.proxy.expire(resource));
        if is_anew {
            for pod in ["web-2", "web-1"] {
                let is_made = |world: &World| world.pods.get(pod).is_some_and(|pod| image_of(pod) == "app:2");
                stage.scene.until("the next pod is made", is_made).await;
                read_anew();
            }
        } else {
            read_anew();
            for resource in RESOURCES {
                stage.proxy.shorten(resource, Duration::from_millis(20));
            }
        }
        stage.until_over().await;
        let (world, writes) = (stage.scene.world(), stage.proxy.writes());
        for pod in ["web-1", "web-2"] {
            let ready = world.ready_since(pod).expect("it is Ready");
            let next = writes.iter().map(|write| write.at).filter(|at| *at > ready).min();
            let next = next.map(|next| next.duration_since(ready));
            assert!(next.is_some_and(|next| next < GOES_ON), "after {pod} is Ready: {next:?}");
        }
        stage.proxy.heal();
        finish(Kind::Rollout, stage).await;
    }))
    .await;
}

// spec: L076
#[tokio::test(flavor = "multi_thread")]
async fn events_that_never_arrive_only_make_it_slower() {
    join_all(KINDS.map(async |kind| {
        let stage = begun(kind, "lost").await;
        let lost: Arc<[AtomicUsize; 2]> = Arc::default();
        let lose = |at: usize, is_lost: fn(&Value) -> bool| {
            let lost = Arc::clone(&lost);
            move |event: &Value| {
                let is_lost = is_lost(event);
                lost[at].fetch_add(usize::from(is_lost), Ordering::Relaxed);
                is_lost
            }
        };
        // A pod never becomes Ready, and a set never changes.
        stage
            .proxy
            .lose("pods", lose(0, |event| event.pointer("/object/status/phase") == Some(&Value::from("Running"))));
        stage.proxy.lose("statefulsets", lose(1, |event| event.get("type") == Some(&Value::from("MODIFIED"))));
        finish(kind, stage).await;
        assert!(lost.iter().all(|lost| lost.load(Ordering::Relaxed) > 0), "of each kind some: {lost:?}");
    }))
    .await;
}

// spec: L075
#[tokio::test(flavor = "multi_thread")]
async fn answers_of_long_ago_move_no_pod_and_change_no_end() {
    with_old_answers(Share::Third).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes long: part of `make soak`"]
async fn each_answer_of_long_ago_moves_no_pod_and_changes_no_end() {
    with_old_answers(Share::All).await;
}

async fn with_old_answers(share: Share) {
    let moments: [fn(&World) -> bool; 2] = [|_| true, |world| world.is_ready_on("web-1", "app:2")];
    let runs =
        KINDS.into_iter().flat_map(|kind| RESOURCES.into_iter().flat_map(move |of| moments.map(|at| (kind, of, at))));
    join_all(share.of(runs).into_iter().map(async |(kind, resource, moment)| {
        let mut stage = Stage::set(kind, "stale").await;
        stage.start(Vec::new());
        stage.until_rest().await;
        let old = answer(&stage, resource).await;
        stage.release().await;
        stage.until("the moment has come", |world| !world.is(Phase::Idle) && moment(world)).await;
        let verb = if resource == "pods" { "list" } else { "get" };
        let given = AtomicUsize::new(0);
        stage.proxy.on(move |call| {
            let is_old = call.is(verb, resource) && given.fetch_add(1, Ordering::Relaxed) < OLD_ANSWERS;
            is_old.then(|| Fault::Answered(old.clone()))
        });
        stage.until_over().await;
        let old = stage.proxy.records().iter().filter(|record| record.fault.is_some()).count();
        assert!(old > 0, "no answer was old: {verb} {resource}");
        stage.end(Some(Played::undisturbed(kind).await)).await;
    }))
    .await;
}

/// A pod that is recreated between the operator's read and its deletion has another UID, and is not deleted.
// spec: pr§5
#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_was_recreated_is_not_the_one_that_was_to_be_deleted() {
    let mut stage = Stage::set(Kind::Rollback, "another").await;
    let (count, barrier) = (AtomicUsize::new(0), Barrier::default());
    let held = barrier.clone();
    stage.proxy.on(move |call| {
        let is_first = call.is("delete", "pods") && count.fetch_add(1, Ordering::Relaxed) == 0;
        is_first.then(|| Fault::Held(held.clone()))
    });
    stage.start(Vec::new());
    stage.until_rest().await;
    stage.release().await;
    let deletion = |record: &Record| record.call.is("delete", "pods");
    sts_plus_e2e::eventually("a pod is to be deleted", async || stage.proxy.records().iter().any(deletion)).await;
    let meant = stage.proxy.records().into_iter().find(deletion).expect("it is").call;
    let pod = meant.name.clone();
    // Somebody else is faster, and the next pod of that name is back before the deletion arrives.
    stage.scene.delete(&format!("pod/{pod}")).await;
    let recreated = stage.until("it is recreated", |world| world.is_ready_on(&pod, "app:1")).await;
    let uid = recreated.uids()[&pod].clone();
    assert_ne!(Some(uid.as_str()), meant.precondition());
    barrier.open();
    stage.until_over().await;
    let answers: Vec<_> =
        stage.proxy.writes().into_iter().filter(deletion).filter(|record| record.call.name == pod).collect();
    assert_eq!(answers.first().and_then(|record| record.answered), Some(409), "{answers:?}");
    assert_eq!(stage.scene.world().uids()[&pod], uid, "the new one stays: {answers:?}");
    stage.end(Some(Played::undisturbed(Kind::Rollback).await)).await;
}

/// What the API server answers now when the operator looks at one object, or at the pods.
async fn answer(stage: &Stage, resource: &str) -> Bytes {
    let namespace = &stage.scene.namespace;
    let path = match resource {
        "pods" => format!("/api/v1/namespaces/{namespace}/pods?labelSelector=app%3Dweb"),
        "statefulsets" => format!("/apis/apps/v1/namespaces/{namespace}/statefulsets/web"),
        _ => format!("/apis/sts.plus/v1alpha1/namespaces/{namespace}/phasedrollouts/gate"),
    };
    let answer = stage.scene.ground.cluster.request(Method::GET, &path, None).await.expect("it can be read");
    Bytes::from(answer.to_string())
}

//! The role of the operator lacks a right for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use sts_plus_api::Reason;
use sts_plus_e2e::proxy::{Fault, Proxy};
use sts_plus_e2e::{Operator, Scene, View, objects};

use super::story::{Kind, play};

/// From the first refusal on.
const WHILE: Duration = Duration::from_secs(3);
/// Three in each run, that are used at different moments.
const RIGHTS: [[(&str, &str); 3]; 4] = [
    [("watch", "phasedrollouts"), ("list", "statefulsets"), ("patch", "phasedrollouts/status")],
    [("watch", "statefulsets"), ("get", "phasedrollouts"), ("delete", "pods")],
    [("watch", "pods"), ("get", "statefulsets"), ("create", "events")],
    [("list", "pods"), ("patch", "phasedrollouts"), ("patch", "statefulsets")],
];

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_was_missing_for_a_while_changes_no_end() {
    join_all(RIGHTS.map(async |rights| {
        let mut until = [None; 3];
        let refused: Arc<[AtomicBool; 3]> = Arc::default();
        let noted = Arc::clone(&refused);
        play(Kind::Rollback, "refused", move |call| {
            let at = rights.iter().position(|(verb, resource)| call.is(verb, resource))?;
            noted[at].store(true, Ordering::Relaxed);
            let until = *until[at].get_or_insert_with(|| Instant::now() + WHILE);
            (Instant::now() < until).then_some(Fault::Refused(403))
        })
        .await;
        for (right, refused) in rights.iter().zip(refused.iter()) {
            assert!(refused.load(Ordering::Relaxed), "nobody was refused {right:?}");
        }
    }))
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_operator_may_not_do_for_versions_is_told_and_goes_on_when_it_may() {
    let scene = Scene::new("lacks").await;
    let (proxy, _kills) = Proxy::start(scene.ground, &scene.namespace).await;
    proxy.on(|call| call.is("list", "controllerrevisions").then_some(Fault::Refused(403)));
    let log = scene.ground.cluster.logs_dir().join(format!("operator-{}.log", scene.namespace));
    let program = scene.ground.operator_program();
    let operator = Operator::start_as(program, proxy.kubeconfig(), &scene.namespace, &log, &[]);
    scene.create(&objects::extended("db")).await;
    let is_told = |view: &View| view.condition("Stalled") == "True/Forbidden";
    let told = scene.until_versions("it is told", is_told).await;
    assert!(told.status.message.contains("listing the ControllerRevisions"), "{}", told.status.message);
    assert!(!scene.until_events(Reason::Forbidden, 1).await.is_empty());
    proxy.heal();
    scene.until_versions("version 1 is there", |view| view.is_only(1)).await;
    drop(operator);
    scene.end().await;
}

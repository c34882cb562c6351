//! Two operators that both believe to lead, and a leader whose writes of the Lease go wrong.

use futures::future::join_all;
use sts_plus::rbac::{self, Rights};
use sts_plus_e2e::Operator;
use sts_plus_e2e::proxy::{Fault, Moment};

use super::story::{Kind, Played, Stage};

// spec: L090
#[tokio::test(flavor = "multi_thread")]
async fn two_operators_that_both_lead_do_each_thing_once() {
    join_all([Kind::Rollout, Kind::Rollback].map(async |kind| {
        let mut stage = Stage::set(kind, "both").await;
        stage.operators = 2;
        stage.start(Vec::new());
        let second = stage.scene.log_file().with_extension("second.log");
        let scene = &stage.scene;
        let second = Operator::start_as(
            scene.ground.operator_program(),
            stage.proxy.kubeconfig(),
            &scene.namespace,
            &second,
            &[],
        );
        stage.until_rest().await;
        stage.release().await;
        stage.until_over().await;
        drop(second);
        stage.end(Some(Played::undisturbed(kind).await)).await;
    }))
    .await;
}

/// What the writes of the Lease meet, one after the other.
const FAULTS: [Option<Fault>; 12] = [
    Some(Fault::Refused(500)),
    None,
    Some(Fault::Lost(504)),
    None,
    Some(Fault::Refused(409)),
    Some(Fault::Killed(Moment::Before)),
    Some(Fault::Lost(500)),
    Some(Fault::Refused(429)),
    Some(Fault::Killed(Moment::During)),
    Some(Fault::Refused(422)),
    None,
    Some(Fault::Killed(Moment::After)),
];

// spec: L090
#[tokio::test(flavor = "multi_thread")]
async fn whatever_becomes_of_the_writes_of_the_lease_the_end_is_the_same() {
    join_all([0, 4, 8].map(async |first| {
        let mut stage = Stage::set(Kind::Rollout, "lease").await;
        let namespace = stage.scene.namespace.clone();
        for right in Rights::everywhere(rbac::NAMESPACE).lease_objects(&namespace) {
            stage.scene.create(&right).await;
        }
        let mut faults = FAULTS.into_iter().cycle().skip(first).take(FAULTS.len());
        stage.proxy.on(move |call| if call.is_write() && call.resource == "leases" { faults.next()? } else { None });
        let times = ["--leader-elect-lease=3", "--leader-elect-renew=2", "--leader-elect-retry=1"];
        let place = ["--leader-elect", "--leader-elect-namespace", namespace.as_str()];
        stage.start(place.into_iter().chain(times).map(str::to_owned).collect());
        stage.until_rest().await;
        stage.release().await;
        stage.until_over().await;
        let played = stage.end(Some(Played::undisturbed(Kind::Rollout).await)).await;
        let lease = played.writes.iter().filter(|record| record.call.resource == "leases").count();
        // Three beginnings, a third of the faults each.
        assert!(lease >= FAULTS.len() / 3, "{lease} writes of the Lease");
    }))
    .await;
}

//! What is said where nobody has filled in the number of replicas.

use serde_json::json;
use sts_plus_api::Reason;

use super::world::World;

/// The condition, after so many rounds of the operator that write nothing but the status.
fn said(count: Option<i32>, serves_policies: bool) -> (String, Reason, String) {
    let mut world = World::new(&json!({}));
    world.owner.spec["template"]["spec"]["replicas"] = json!(count);
    world.serves_policies = serves_policies;
    let first = world.plan().status;
    world.status = first.clone();
    let again = world.plan().status;
    assert_eq!(first.conditions.len(), again.conditions.len());
    let find = |status: &sts_plus_api::ExtendedStatefulSetStatus| {
        status.conditions.iter().find(|condition| condition.type_ == "Scalable").cloned().expect("it is there")
    };
    let (condition, later) = (find(&first), find(&again));
    assert_eq!(condition, later, "no second write");
    let reason = [Reason::CountWritten, Reason::PolicyNotEffective, Reason::PolicyNotServed]
        .into_iter()
        .find(|reason| reason.to_string() == condition.reason);
    (condition.status, reason.expect("one of ours"), condition.message)
}

#[test]
fn a_missing_count_is_told_with_its_cure() {
    let (status, reason, message) = said(None, false);
    assert_eq!((status.as_str(), reason), ("False", Reason::PolicyNotServed));
    assert!(message.contains("every autoscaler fails: write it"), "{message}");
    let (status, reason, message) = said(None, true);
    assert_eq!((status.as_str(), reason), ("False", Reason::PolicyNotEffective));
    assert!(message.contains("sts-plus-replicas") && message.contains("make install"), "{message}");
}

#[test]
fn a_written_count_is_fine_wherever_it_comes_from() {
    for serves_policies in [true, false] {
        let (status, reason, _) = said(Some(3), serves_policies);
        assert_eq!((status.as_str(), reason), ("True", Reason::CountWritten));
    }
}

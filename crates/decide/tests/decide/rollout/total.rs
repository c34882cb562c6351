//! No input makes it panic, the same input gives the same plan, and each plan keeps the rules of a plan.

use proptest::prelude::*;
use sts_plus_decide::{Action, NewPartition, Observed, Plan, Target, decide};
use sts_plus_model::random::cases;

use super::input::{NOW, moment, observed};

/// A plan that disturbs pods does so with one write.
fn disturbances(observed: &Observed, plan: &Plan) -> usize {
    let before = match &observed.target {
        Target::Found(set) => set.partition.unwrap_or(0),
        Target::Missing => 0,
    };
    let disturbs = |action: &&Action| match action {
        Action::PatchSet { partition: NewPartition::Set(to), .. } => *to < before,
        Action::DeletePod { .. } | Action::PatchSet { partition: NewPartition::Remove, .. } => true,
        _ => false,
    };
    plan.actions.iter().filter(disturbs).count()
}

fn true_conditions(plan: &Plan) -> usize {
    let kinds = ["Ready", "Reconciling", "Stalled"];
    let is_true = |kind: &&&str| plan.status.conditions.iter().any(|c| c.type_ == ***kind && c.status == "True");
    kinds.iter().filter(is_true).count()
}

proptest! {
    #![proptest_config(cases(2000))]

    // spec: pr§9
    #[test]
    fn every_input_gives_one_plan(observed in observed()) {
        let now = moment(NOW);
        let plan = decide(&observed, now);
        prop_assert_eq!(&plan, &decide(&observed.clone(), now), "not the same plan twice");
        if plan.check.is_some() {
            prop_assert!(plan.actions.is_empty() && plan.events.is_empty());
            prop_assert!(plan.status == observed.rollout.status, "a question changes nothing");
            prop_assert!(observed.tried.is_none(), "a question after an answer");
        }
        if !observed.rollout.deleting {
            prop_assert!(disturbances(&observed, &plan) <= 1, "{:?}", plan.actions);
        }
        for event in &plan.events {
            prop_assert!(event.note.len() <= 1024);
        }
        if plan.status != observed.rollout.status {
            prop_assert_eq!(true_conditions(&plan), 1, "{:?}", plan.status);
            let size = serde_json::to_vec(&plan.status).unwrap().len();
            prop_assert!(size <= 16 * 1024, "{size} bytes");
        }
    }

    /// A deletion ends in one plan, whatever is there.
    // spec: pr§8
    #[test]
    fn deletion_always_ends(mut observed in observed()) {
        (observed.rollout.deleting, observed.rollout.has_finalizer) = (true, true);
        let plan = decide(&observed, moment(NOW));
        prop_assert_eq!(plan.actions.last(), Some(&Action::RemoveFinalizer));
    }

    /// A status that was written as planned, with nothing else changed and nothing left to do, is not written again.
    // spec: pr§9
    #[test]
    fn nothing_is_written_twice(mut observed in observed()) {
        observed.tried = None;
        let now = moment(NOW);
        let mut plan = decide(&observed, now);
        // Waits and marks settle within a few rounds; actions change the world, so they end the chain.
        for _ in 0..6 {
            if !plan.actions.is_empty() || plan.check.is_some() {
                return Ok(());
            }
            observed.rollout.status = plan.status.clone();
            plan = decide(&observed, now);
            if plan.status == observed.rollout.status && plan.events.is_empty() {
                return Ok(());
            }
        }
        prop_assert!(false, "never settles: {:#?}", plan);
    }
}

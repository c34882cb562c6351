//! What tools that wait for objects (kubectl plugins, Flux, Argo CD, cli-utils) make of one: the published rules of kstatus
//! (sigs.k8s.io/cli-utils, pkg/kstatus/status: `Compute` for a kind without rules of its own), restated.

use serde_json::Value;

/// What kstatus computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kstatus {
    /// It is what was asked for.
    Current,
    /// It is on its way.
    InProgress,
    /// It does not come by itself.
    Failed,
    /// It is being deleted.
    Terminating,
}

/// In the order of the rules: deletion, generation, `Reconciling`, `Stalled`, `Ready`; without any of them it is current.
pub fn of(object: &Value) -> Kstatus {
    if object.pointer("/metadata/deletionTimestamp").is_some_and(|time| !time.is_null()) {
        return Kstatus::Terminating;
    }
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    let observed = object.pointer("/status/observedGeneration").and_then(Value::as_i64);
    if observed.is_some() && observed != generation {
        return Kstatus::InProgress;
    }
    let is_abnormal = |it: &&Value| (it["type"] == "Reconciling" || it["type"] == "Stalled") && it["status"] == "True";
    match conditions(object).find(is_abnormal) {
        Some(condition) if condition["type"] == "Reconciling" => return Kstatus::InProgress,
        Some(_) => return Kstatus::Failed,
        None => {}
    }
    match conditions(object).find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] != "True" => Kstatus::InProgress,
        _ => Kstatus::Current,
    }
}

/// What of a status is wrong: of a PhasedRollout, or of an ExtendedStatefulSet by its `kind`. `None` if all is well.
pub fn fault(object: &Value) -> Option<String> {
    let phase = object.pointer("/status/phase").and_then(Value::as_str)?;
    let truths = ["Ready", "Reconciling", "Stalled"].map(|kind| says(object, kind, "True"));
    let found = if truths.iter().filter(|is| **is).count() != 1 {
        Some("exactly one of them is to be true")
    } else if object["kind"] == "ExtendedStatefulSet" {
        fault_of_versions(object, phase, truths)
    } else {
        fault_of_rollout(object, phase, truths)
    };
    let found = found.or_else(|| {
        let is_done = matches!(phase, "Idle" | "Completed" | "Ready");
        let right = match of(object) {
            // In progress also for a spec that has not been seen yet, and while a pod at rest is on its way back.
            Kstatus::Terminating | Kstatus::InProgress => true,
            Kstatus::Current => is_done && truths[0],
            Kstatus::Failed => truths[2],
        };
        (!right).then_some("kstatus computes something else")
    });
    let computed = of(object);
    found.map(|what| format!("{phase}: {what}: Ready, Reconciling, Stalled are {truths:?}, kstatus says {computed:?}"))
}

fn fault_of_rollout(object: &Value, phase: &str, [ready, _, stalled]: [bool; 3]) -> Option<&'static str> {
    // The API server refuses the operator: the conditions say so, and the rest stays as it was.
    let is_refused = |it: &Value| it["type"] == "Stalled" && (it["reason"] == "Forbidden" || it["reason"] == "Unknown");
    if stalled && conditions(object).any(is_refused) {
        return None;
    }
    let is_settled = match phase {
        // A pod at rest may be on its way back.
        "Idle" | "Completed" => !stalled,
        "Rolling" | "Checking" | "Held" | "Paused" | "RollingBack" => !ready,
        "Failed" | "RolledBack" | "Blocked" => stalled,
        _ => return Some("it is no phase"),
    };
    let is_done = matches!(phase, "Idle" | "Completed");
    if !is_settled {
        Some("they are not those of the phase")
    } else if says(object, "RolledOut", "True") && !is_done && phase != "Blocked" {
        Some("RolledOut is true")
    } else if says(object, "Held", "True") && is_done {
        Some("Held is true")
    } else {
        None
    }
}

fn fault_of_versions(object: &Value, phase: &str, [ready, reconciling, stalled]: [bool; 3]) -> Option<&'static str> {
    let is_settled = match phase {
        "Ready" => ready,
        // What does not come by itself is said here too: a pod that has not come up for long, a version that is not whole.
        "Progressing" | "Upgrading" | "CleaningUp" | "Held" => !ready,
        "Canary" | "Paused" => reconciling,
        "Failed" | "Blocked" => stalled,
        _ => return Some("it is no phase"),
    };
    let of_generation = |it: &Value| it.get("observedGeneration") == object.pointer("/status/observedGeneration");
    if !is_settled {
        Some("they are not those of the phase")
    } else if ready && says(object, "Stale", "True") {
        Some("the version that is wanted is stale")
    } else if !stalled && says(object, "TemplateValid", "False") {
        Some("the template is refused")
    } else if !conditions(object).all(of_generation) {
        Some("a condition is about another generation")
    } else {
        None
    }
}

fn conditions(object: &Value) -> impl Iterator<Item = &Value> {
    object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten()
}

fn says(object: &Value, kind: &str, status: &str) -> bool {
    conditions(object).any(|it| it["type"] == kind && it["status"] == status)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(generation: i64, conditions: &[(&str, &str)]) -> Value {
        let conditions: Vec<_> =
            conditions.iter().map(|(kind, status)| json!({ "type": kind, "status": status })).collect();
        json!({
            "metadata": { "generation": 2 },
            "status": { "observedGeneration": generation, "conditions": conditions },
        })
    }

    #[test]
    fn the_published_rules_in_their_order() {
        assert_eq!(of(&json!({ "metadata": { "generation": 1 } })), Kstatus::Current);
        assert_eq!(of(&object(1, &[("Ready", "True")])), Kstatus::InProgress);
        assert_eq!(of(&object(2, &[("Ready", "True")])), Kstatus::Current);
        assert_eq!(of(&object(2, &[("Ready", "False")])), Kstatus::InProgress);
        assert_eq!(of(&object(2, &[("Ready", "Unknown")])), Kstatus::InProgress);
        assert_eq!(of(&object(2, &[("Ready", "True"), ("Reconciling", "True")])), Kstatus::InProgress);
        assert_eq!(of(&object(2, &[("Ready", "False"), ("Stalled", "True")])), Kstatus::Failed);
        let mut going = object(2, &[("Ready", "True")]);
        going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert_eq!(of(&going), Kstatus::Terminating);
    }

    #[test]
    fn a_version_that_is_not_done_is_never_said_to_be_ready() {
        let fault = |phase: &str, conditions: &[(&str, &str)]| {
            let mut object = object(2, conditions);
            object["kind"] = json!("ExtendedStatefulSet");
            object["status"]["phase"] = json!(phase);
            for condition in object["status"]["conditions"].as_array_mut().expect("conditions") {
                condition["observedGeneration"] = json!(2);
            }
            (super::fault(&object), object)
        };
        let is_well = |phase: &str, conditions: &[(&str, &str)]| fault(phase, conditions).0.is_none();
        assert!(is_well("Ready", &[("Ready", "True"), ("Stale", "False")]));
        assert!(is_well("Canary", &[("Ready", "False"), ("Reconciling", "True")]));
        assert!(is_well("Held", &[("Ready", "False"), ("Stalled", "True")]));
        assert!(is_well("Failed", &[("Stalled", "True"), ("Stale", "True")]));
        assert!(!is_well("Held", &[("Ready", "True")]));
        assert!(!is_well("Held", &[("Reconciling", "True"), ("Stalled", "True")]));
        assert!(!is_well("Canary", &[("Stalled", "True")]));
        assert!(!is_well("Failed", &[("Reconciling", "True")]));
        assert!(!is_well("Ready", &[("Ready", "True"), ("Stale", "True")]));
        assert!(!is_well("Progressing", &[("Reconciling", "True"), ("TemplateValid", "False")]));
        assert!(!is_well("Idle", &[("Ready", "True")]), "a phase of something else");
        let (_, mut object) = fault("Ready", &[("Ready", "True")]);
        object["status"]["conditions"][0]["observedGeneration"] = json!(1);
        assert!(super::fault(&object).is_some(), "a condition of a former generation");
    }

    #[test]
    fn a_phase_with_the_wrong_conditions_is_a_fault() {
        let with_phase = |phase: &str, conditions: &[(&str, &str)]| {
            let mut object = object(2, conditions);
            object["status"]["phase"] = json!(phase);
            fault(&object)
        };
        assert_eq!(with_phase("Completed", &[("Ready", "True"), ("RolledOut", "True")]), None);
        assert_eq!(with_phase("Failed", &[("Ready", "False"), ("Stalled", "True"), ("Held", "True")]), None);
        assert!(with_phase("Failed", &[("Ready", "True")]).is_some());
        assert!(with_phase("Failed", &[("Stalled", "True"), ("Reconciling", "True")]).is_some());
        assert!(with_phase("Paused", &[("Reconciling", "True"), ("RolledOut", "True")]).is_some());
        assert!(with_phase("Idle", &[("Ready", "True"), ("Held", "True")]).is_some());
    }
}

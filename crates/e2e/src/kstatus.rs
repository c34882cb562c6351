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
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let is = |condition: &Value, kind: &str, status: &str| condition["type"] == kind && condition["status"] == status;
    let first = conditions.clone().find(|it| is(it, "Reconciling", "True") || is(it, "Stalled", "True"));
    match first {
        Some(condition) if is(condition, "Reconciling", "True") => return Kstatus::InProgress,
        Some(_) => return Kstatus::Failed,
        None => {}
    }
    match conditions.find(|condition| condition["type"] == "Ready") {
        Some(ready) if ready["status"] != "True" => Kstatus::InProgress,
        _ => Kstatus::Current,
    }
}

/// What is right for a phase, and what else a condition must say then. `None` if all is well.
pub fn fault(object: &Value) -> Option<String> {
    let phase = object.pointer("/status/phase").and_then(Value::as_str)?;
    let says = |kind: &str| {
        let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
        conditions.filter(|it| it["type"] == kind).any(|it| it["status"] == "True")
    };
    let truths = ["Ready", "Reconciling", "Stalled"].map(says);
    if truths.iter().filter(|is| **is).count() != 1 {
        return Some(format!("{phase}: Ready, Reconciling, Stalled are {truths:?}"));
    }
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    // The API server refuses the operator: the conditions say so, and the rest stays as it was.
    let is_refused = |it: &Value| it["type"] == "Stalled" && (it["reason"] == "Forbidden" || it["reason"] == "Unknown");
    if truths[2] && conditions.into_iter().any(is_refused) {
        return None;
    }
    let settled = match phase {
        // A pod at rest may be on its way back.
        "Idle" | "Completed" => !truths[2],
        "Rolling" | "Checking" | "Held" | "Paused" | "RollingBack" => !truths[0],
        "Failed" | "RolledBack" | "Blocked" => truths[2],
        other => return Some(format!("{other} is no phase")),
    };
    if !settled {
        return Some(format!("{phase}: Ready, Reconciling, Stalled are {truths:?}"));
    }
    let is_done = matches!(phase, "Idle" | "Completed");
    if says("RolledOut") && !is_done && phase != "Blocked" {
        return Some(format!("{phase}: RolledOut is true"));
    }
    if says("Held") && is_done {
        return Some(format!("{phase}: Held is true"));
    }
    let computed = of(object);
    let right = match computed {
        // In progress also for a spec that has not been seen yet, and while a pod at rest is on its way back.
        Kstatus::Terminating | Kstatus::InProgress => true,
        Kstatus::Current => is_done && truths[0],
        Kstatus::Failed => truths[2],
    };
    (!right).then(|| format!("{phase}: kstatus says {computed:?}"))
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

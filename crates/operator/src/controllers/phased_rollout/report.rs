//! What people read in the logs: one line for each action, verdict, transition and event, with names that can be searched for.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use sts_plus_api::{ConditionType, Current, Phase, PhasedRollout, Step, Verdict};
use sts_plus_decide::{Action, ConfigProblem, Event, EventTarget, NewPartition, Plan, Severity, Try};

use super::observe::Scene;
use crate::errors::{Class, Error};
use crate::views::SetObject;

/// A write was done.
pub(super) fn action(scene: &Scene, action: &Action) {
    let (namespace, rollout) = (scene.namespace(), scene.name());
    match action {
        Action::AddFinalizer => tracing::info!(namespace, rollout, "finalizer added"),
        Action::RemoveFinalizer => tracing::info!(namespace, rollout, "finalizer removed: the PhasedRollout may go"),
        Action::ConsumeAnnotation(key) => tracing::info!(namespace, rollout, annotation = key, "annotation removed"),
        Action::DeletePod { name, .. } => tracing::info!(namespace, rollout, pod = name, "pod deleted"),
        Action::PatchSet { set, partition, annotations, .. } => {
            let seen = scene.sets.get(set);
            let before = seen.and_then(SetObject::partition);
            let annotations = changed(seen, annotations);
            match partition {
                NewPartition::Set(partition) if before != Some(*partition) => {
                    tracing::info!(namespace, rollout, set, before, partition, annotations, "partition written");
                }
                NewPartition::Remove => {
                    tracing::info!(namespace, rollout, set, before, annotations, "partition removed");
                }
                NewPartition::Set(_) | NewPartition::Keep => {
                    tracing::info!(namespace, rollout, set, annotations, "annotations written");
                }
            }
        }
    }
}

/// The annotations that differ from what was seen: `key=value` for a new one, `-key` for a removed one.
fn changed(seen: Option<&SetObject>, annotations: &BTreeMap<&'static str, Option<String>>) -> String {
    let changes = annotations.iter().filter_map(|(key, new)| match (seen.and_then(|set| set.annotation(key)), new) {
        (Some(old), Some(new)) if old == new => None,
        (_, Some(new)) => Some(format!("{key}={new}")),
        (Some(_), None) => Some(format!("-{key}")),
        (None, None) => None,
    });
    changes.collect::<Vec<_>>().join(" ")
}

/// Prometheus has answered, or not.
pub(super) fn verdicts(scene: &Scene, tried: &Try) {
    let (namespace, rollout) = (scene.namespace(), scene.name());
    let index = tried.request.index;
    for record in &tried.records {
        let (pod, query) = (record.pod.as_str(), record.name.as_str());
        let verdict = format!("{:?}", record.verdict);
        if record.verdict == Verdict::Error {
            tracing::warn!(namespace, rollout, pod, index, query, verdict, "check: {}", record.message);
        } else {
            let passed = record.passed;
            tracing::info!(namespace, rollout, pod, index, query, verdict, passed, "check: {}", record.message);
        }
    }
    let told = |problem: &&ConfigProblem| tried.records.iter().any(|record| record.message == problem.message);
    for problem in tried.config.iter().filter(|problem| !told(problem)) {
        tracing::warn!(namespace, rollout, reason = %problem.reason, "check not possible: {}", problem.message);
    }
    for (reason, text) in &tried.warnings {
        tracing::warn!(namespace, rollout, reason = %reason, "{text}");
    }
}

/// The status was written. A line only for what a person would call a step.
pub(super) fn transition(scene: &Scene, plan: &Plan) {
    let (old, new) = (&scene.observed.rollout.status, &plan.status);
    let step = |current: Option<&Current>| current.map(|current| (current.index, current.step));
    let held = |status: &sts_plus_api::PhasedRolloutStatus| {
        let condition = status.conditions.iter().find(|c| c.type_ == ConditionType::Held.to_string());
        condition.map(|condition| (condition.status.clone(), condition.reason.clone()))
    };
    let place: (Phase, Option<(i32, Step)>) = (new.phase, step(new.current.as_ref()));
    let is_step = place != (old.phase, step(old.current.as_ref()))
        || held(old) != held(new)
        || old.target_revision != new.target_revision;
    let (namespace, rollout) = (scene.namespace(), scene.name());
    let phase = format!("{:?}", new.phase);
    let pod = new.current.as_ref().map(|current| current.pod.as_str());
    let (updated, partition) = (new.updated.as_str(), new.partition);
    if is_step {
        tracing::info!(namespace, rollout, phase, pod, updated, partition, "{}", new.message);
    } else {
        tracing::debug!(namespace, rollout, phase, pod, updated, partition, "{}", new.message);
    }
}

/// An event is about to be recorded.
pub(super) fn event(scene: &Scene, event: &Event) {
    let (namespace, rollout) = (scene.namespace(), scene.name());
    let on = match event.on {
        EventTarget::Rollout => "PhasedRollout",
        EventTarget::Set => "StatefulSet",
    };
    match event.severity {
        Severity::Normal => tracing::info!(namespace, rollout, on, reason = %event.reason, "event: {}", event.note),
        Severity::Warning => tracing::warn!(namespace, rollout, on, reason = %event.reason, "event: {}", event.note),
    }
}

/// A run failed.
pub(super) fn failure(rollout: &PhasedRollout, error: &Error) {
    let (namespace, rollout) = (rollout.namespace(), rollout.name_any());
    let class = error.class();
    match class {
        Class::Bug => tracing::error!(namespace, rollout, class = %class, "{error}"),
        Class::Conflict => tracing::info!(namespace, rollout, class = %class, "{error}"),
        Class::Transient | Class::Invalid | Class::Forbidden => {
            tracing::warn!(namespace, rollout, class = %class, "{error}");
        }
    }
}

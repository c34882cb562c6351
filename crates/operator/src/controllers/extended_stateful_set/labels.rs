//! Pods whose labels somebody has changed: one with another version than its revision is not what it says. Words; it must never decide.

use std::collections::BTreeMap;

use sts_plus_api::names;
use sts_plus_decide::{ChildView, PodView};

use crate::controllers::in_the_way::Strays;

/// In place what version a pod is is told by its revision, which carries the number as well: a label of a pod is soon changed.
/// What is not known by its revision is what it says.
pub(super) fn settle(child: &mut ChildView, revisions: &BTreeMap<String, i32>, strays: &Strays) {
    let is_missing = |name: &str| !child.pods.iter().any(|pod| pod.name == name);
    child.in_the_way = strays.get(&child.uid).filter(|stray| is_missing(&stray.name)).map(|stray| stray.words.clone());
    let version_of = |pod: &PodView| pod.revision.as_ref().and_then(|revision| revisions.get(revision)).copied();
    for pod in &mut child.pods {
        let Some(version) = version_of(pod).filter(|version| pod.version != Some(*version)) else { continue };
        pod.version = Some(version);
        let (name, label) = (&pod.name, names::VERSION);
        child.mislabelled.get_or_insert_with(|| {
            format!(
                "pod {name} does not carry the label {label}={version} of its StatefulSet: put it back with `kubectl label pod {name} \
                 --overwrite {label}={version}`, or delete the pod"
            )
        });
    }
}

//! Reads: everything that one decision looks at, from the caches or from the API server. It must never write.

use std::collections::BTreeMap;
use std::iter::once;
use std::sync::Arc;

use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use sts_plus_api::PhasedRollout;
use sts_plus_decide::{ConfigProblem, HoldState, Observed, Rival, SetView, Target};

use super::{Context, Findings};
use crate::checks::{self, secrets::Seen};
use crate::client::deadline;
use crate::controllers::in_the_way;
use crate::controllers::look::LastLook;
use crate::errors::Error;
use crate::views::{PodObject, SetObject, rollout_view};

/// What was seen: the input of the decision, and the objects that a write needs more of.
pub(crate) struct Scene {
    pub(super) observed: Observed,
    pub(super) rollout: PhasedRollout,
    /// The target and the former targets, by name.
    pub(super) sets: BTreeMap<String, SetObject>,
    /// True if the caches show less than the last look at the API server did.
    pub(super) is_behind: bool,
}

impl Scene {
    pub(super) fn rollout_uid(&self) -> &str {
        &self.observed.rollout.uid
    }

    pub(super) fn namespace(&self) -> &str {
        &self.observed.rollout.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.observed.rollout.name
    }

    /// The target StatefulSet, if it is there.
    pub(super) fn target(&self) -> Option<&SetObject> {
        self.sets.get(&self.observed.rollout.spec.target_ref)
    }
}

/// The target, if it exists, and the former targets.
type CachedSets = (Option<Arc<SetObject>>, Vec<Arc<SetObject>>);

/// The sets of a PhasedRollout, as the caches have them.
fn cached_sets(rollout: &PhasedRollout, context: &Context) -> CachedSets {
    let (namespace, target_ref) = (rollout.namespace().unwrap_or_default(), &rollout.spec.target_ref);
    let former = context.caches.former_targets(&namespace, &rollout.name_any(), target_ref);
    (context.caches.set(&namespace, target_ref), former)
}

/// True if a cache has not seen what we wrote.
pub(super) fn lags(rollout: &PhasedRollout, context: &Context) -> bool {
    !are_seen(rollout, &cached_sets(rollout, context), context)
}

/// True if these show all that we wrote.
fn are_seen(rollout: &PhasedRollout, (target, former): &CachedSets, context: &Context) -> bool {
    let sets = target.iter().chain(former).map(|set| &set.metadata);
    context.written.are_seen(once(&rollout.metadata).chain(sets))
}

/// From the caches. Nothing if they are not whole yet, or older than what we wrote.
pub(super) fn cached(rollout: &PhasedRollout, context: &Context) -> Option<Scene> {
    let caches = &context.caches;
    let sets = cached_sets(rollout, context);
    if !caches.are_ready() || !are_seen(rollout, &sets, context) {
        return None;
    }
    let (namespace, (target, former)) = (rollout.namespace()?, sets);
    let pods = target.as_ref().map(|set| caches.pods_of(&namespace, set.uid())).unwrap_or_default();
    let is_behind = context.slots.findings(&rollout.uid()?, |findings| {
        let (sets, pods) = (target.iter().map(|set| &set.metadata), pods.iter().map(|pod| &pod.metadata));
        findings.look.as_ref().is_none_or(|look| !look.is_seen(context.guard.term(), sets, pods))
    });
    let scene = scene(
        rollout.clone(),
        target.map(Arc::unwrap_or_clone),
        former.into_iter().map(Arc::unwrap_or_clone).collect(),
        pods.iter().map(AsRef::as_ref),
        context,
    );
    Some(Scene { is_behind, ..scene })
}

/// From the API server itself. Nothing if the PhasedRollout is gone.
pub(super) async fn live(rollout: &PhasedRollout, context: &Context) -> Result<Option<Scene>, Error> {
    let (namespace, name, term) = (rollout.namespace().unwrap_or_default(), rollout.name_any(), context.guard.term());
    let rollouts: Api<PhasedRollout> = Api::namespaced(context.client.clone(), &namespace);
    let found = deadline(format!("reading PhasedRollout {namespace}/{name}"), rollouts.get_opt(&name)).await?;
    // One that was made anew under the same name is looked at by itself.
    let (uid, cached) = (rollout.uid(), rollout.resource_version());
    let Some(rollout) = found.filter(|found| found.uid() == uid) else { return Ok(None) };
    let name_of_it = || format!("PhasedRollout {name}");
    context.written.not_outdated(
        rollout.uid().as_deref(),
        rollout.resource_version().as_deref(),
        cached.as_deref(),
        name_of_it,
    )?;

    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), &namespace);
    let target = get_set(&sets, &rollout.spec.target_ref, &namespace, context).await?;
    let mut former = Vec::new();
    for cached in context.caches.former_targets(&namespace, &name, &rollout.spec.target_ref) {
        let set = get_set(&sets, cached.name(), &namespace, context).await?;
        former.extend(set.filter(|set| set.claimed_by() == Some(name.as_str())));
    }
    let (pods, list) = match &target {
        Some(set) => list_pods(context, &namespace, set).await?,
        None => (Vec::new(), None),
    };
    let seen = (target.iter().map(|set| &set.metadata), pods.iter().map(|pod| &pod.metadata));
    let look = LastLook::of(term, seen.0, seen.1, list.as_deref());
    let is_leaving = rollout.metadata.deletion_timestamp.is_some();
    let looked_at = if is_leaving { &[] } else { target.as_slice() };
    let strays = in_the_way::strays(&context.client, looked_at, &pods).await?;
    let stray = strays.into_values().next();
    context.slots.findings(&rollout.uid().unwrap_or_default(), |findings| {
        (findings.stray, findings.look) = (stray, Some(look));
    });
    Ok(Some(scene(rollout, target, former, pods.iter(), context)))
}

async fn get_set(
    sets: &Api<SetObject>,
    name: &str,
    namespace: &str,
    context: &Context,
) -> Result<Option<SetObject>, Error> {
    // What was known before the question: a cache that gets ahead of an answer on its way is no sign of anything.
    let known = context.caches.set(namespace, name);
    let set = deadline(format!("reading StatefulSet {name}"), sets.get_opt(name)).await?;
    if let Some(set) = &set {
        let cached = known.as_ref().filter(|cached| cached.uid() == set.uid());
        let cached = cached.and_then(|cached| cached.metadata.resource_version.as_deref());
        let read = set.metadata.resource_version.as_deref();
        context.written.not_outdated(Some(set.uid()), read, cached, || format!("StatefulSet {name}"))?;
    }
    Ok(set.map(SetObject::shrunk))
}

/// The pods, and the version of their list.
async fn list_pods(
    context: &Context,
    namespace: &str,
    set: &SetObject,
) -> Result<(Vec<PodObject>, Option<String>), Error> {
    let selector = set.pod_selector().ok_or_else(|| Error::Unusable {
        what: format!("spec.selector of StatefulSet {}", set.name()),
        problem: "it selects nothing that could be asked for".to_owned(),
    })?;
    let pods: Api<PodObject> = Api::namespaced(context.client.clone(), namespace);
    let params = ListParams::default().labels(&selector);
    let known = context.caches.pods_of(namespace, set.uid());
    let found = deadline(format!("listing the pods of StatefulSet {}", set.name()), pods.list(&params)).await?;
    for cached in known {
        let same = found.items.iter().find(|pod| pod.metadata.uid == cached.metadata.uid);
        let (read, known) = (same.map(|pod| &pod.metadata), &cached.metadata);
        let read = read.and_then(|read| read.resource_version.as_deref());
        context.written.not_outdated(known.uid.as_deref(), read, known.resource_version.as_deref(), || {
            format!("pod {}", known.name.as_deref().unwrap_or_default())
        })?;
    }
    let pods = found.items.into_iter().filter(|pod| pod.belongs_to(set.uid())).map(PodObject::shrunk);
    Ok((pods.collect(), found.metadata.resource_version))
}

fn scene<'a>(
    rollout: PhasedRollout,
    target: Option<SetObject>,
    former: Vec<SetObject>,
    pods: impl Iterator<Item = &'a PodObject>,
    context: &Context,
) -> Scene {
    let hold = target.as_ref().map_or(HoldState::Unknown, |set| context.kind.hold.look(set, &rollout));
    let former_names: Vec<_> = former.iter().map(SetObject::name).collect();
    let observed = Observed {
        rollout: rollout_view(&rollout),
        rivals: context.caches.rivals_of(&rollout, &former_names).iter().map(|other| rival(other)).collect(),
        target: target.as_ref().map_or(Target::Missing, |set| Target::Found(Box::new(seen(set, &rollout, context)))),
        former_targets: former.iter().map(SetObject::view).collect(),
        pods: pods.filter_map(PodObject::view).collect(),
        config: config(&rollout, context),
        hold,
        tried: None,
    };
    let sets = target.into_iter().chain(former).map(|set| (set.name().to_owned(), set)).collect();
    Scene { observed, rollout, sets, is_behind: false }
}

/// The target, with what its controller says about pods that it cannot make, and what was found in its way.
fn seen(set: &SetObject, rollout: &PhasedRollout, context: &Context) -> SetView {
    let refused_pods = context.caches.refusals_of(set.namespace(), set.uid());
    let stray = |findings: &mut Findings| findings.stray.clone();
    let in_the_way = context.slots.findings(&rollout.uid().unwrap_or_default(), stray);
    SetView { refused_pods, in_the_way, ..set.view() }
}

fn rival(other: &PhasedRollout) -> Rival {
    let view = rollout_view(other);
    Rival { name: view.name, target: view.spec.target_ref, created: view.created }
}

/// What is wrong with the checks as written and with their Secrets. Nobody is asked for a rollout without checks.
fn config(rollout: &PhasedRollout, context: &Context) -> Vec<ConfigProblem> {
    if rollout.spec.skips_checks() {
        return Vec::new();
    }
    let mut problems = checks::validate(&context.prober, &rollout.spec.check);
    context.slots.findings(&rollout.uid().unwrap_or_default(), |findings| {
        problems.extend(findings.secrets.iter().flat_map(Seen::problems).cloned());
    });
    problems
}

//! Reads: everything that one decision looks at, from the caches or from the API server. It writes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, ResourceExt as _};
use serde_json::Value;
use sts_plus_api::{ExtendedStatefulSet, VersionStrategyType, names};
use sts_plus_decide::{ChildView, ConfigProblem, OrphanView, SetView, VersionsObserved};

use super::known::Known;
use super::render::{self, Child};
use super::services::Services;
use super::{Context, Findings, labels, leave, templates, trial};
use crate::checks;
use crate::client::deadline;
use crate::controllers::in_the_way::{self, Strays};
use crate::errors::Error;
use crate::hold::serves_mutating_policies;
use crate::views::{PodObject, SetObject, owner_view};

/// What was seen: the input of the decision, and the objects that a write needs more of.
pub(crate) struct Scene {
    pub(super) observed: VersionsObserved,
    pub(super) owner: ExtendedStatefulSet,
    /// The StatefulSets that it controls, by name.
    pub(super) sets: BTreeMap<String, SetObject>,
}

impl Scene {
    pub(super) fn uid(&self) -> &str {
        self.owner.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        &self.observed.owner.namespace
    }

    pub(super) fn name(&self) -> &str {
        &self.observed.owner.name
    }

    /// The UIDs of its StatefulSets.
    pub(super) fn uids(&self) -> BTreeSet<String> {
        self.sets.values().map(|set| set.uid().to_owned()).collect()
    }

    /// A StatefulSet of it as the template of `owner` says. The place of a zone stays what it was when the StatefulSet was made: another
    /// order of the list restarts nothing.
    pub(super) fn body(
        &self,
        owner: &ExtendedStatefulSet,
        name: &str,
        zone: Option<&str>,
        version: i32,
        replicas: i32,
        partition: i32,
    ) -> Value {
        let made = self.sets.get(name).and_then(|set| set.annotation(names::ZONE_INDEX)?.parse().ok());
        let listed = |zone| self.owner.spec.all_zones().iter().position(|listed| listed == zone).map(|at| at + 1);
        let zone = zone.map(|zone| (zone, made.or_else(|| listed(zone)).unwrap_or_default()));
        let hash = self.observed.kept.get(&version).unwrap_or(&self.observed.template.hash);
        render::body(owner, Child { name, version, hash, replicas, partition, zone })
    }
}

/// True if a cache has not seen what we wrote.
pub(super) fn lags(owner: &ExtendedStatefulSet, context: &Context) -> bool {
    !are_seen(owner, &cached_sets(owner, context), context)
}

/// The sets of an ExtendedStatefulSet, as the caches have them.
fn cached_sets(owner: &ExtendedStatefulSet, context: &Context) -> Vec<Arc<SetObject>> {
    let (uid, namespace) = (owner.uid().unwrap_or_default(), owner.namespace().unwrap_or_default());
    context.caches.sets_of(&namespace, &uid)
}

/// True if these show all that we wrote.
fn are_seen(owner: &ExtendedStatefulSet, sets: &[Arc<SetObject>], context: &Context) -> bool {
    context.written.are_seen(once(&owner.metadata).chain(sets.iter().map(|set| &set.metadata)))
}

/// From the caches. Nothing if they are not whole yet, older than what we wrote, or if more than they hold is to be known.
pub(super) fn cached(owner: &ExtendedStatefulSet, context: &Context) -> Option<Scene> {
    let (caches, uid, namespace) = (&context.caches, owner.uid()?, owner.namespace()?);
    let sets = cached_sets(owner, context);
    if !caches.are_ready() || !are_seen(owner, &sets, context) {
        return None;
    }
    let known = context.slots.findings(&uid, |Findings(known)| known.clone())?;
    if Some(known.generation) != owner.metadata.generation || !known.services.are_unchanged(&namespace, caches) {
        return None;
    }
    let pods = sets.iter().flat_map(|set| caches.pods_of(&namespace, set.uid())).map(|pod| (*pod).clone());
    let sets = sets.iter().map(|set| (**set).clone());
    Some(scene(owner.clone(), sets.collect(), &pods.collect::<Vec<_>>(), known, context))
}

/// From the API server itself. Nothing if the object is gone.
pub(super) async fn live(owner: &ExtendedStatefulSet, context: &Context) -> Result<Option<Scene>, Error> {
    let (namespace, name) = (owner.namespace().unwrap_or_default(), owner.name_any());
    let owners: Api<ExtendedStatefulSet> = Api::namespaced(context.client.clone(), &namespace);
    let found = deadline(format!("reading ExtendedStatefulSet {namespace}/{name}"), owners.get_opt(&name)).await?;
    // One that was made anew under the same name is looked at by itself.
    let Some(owner) = found.filter(|found| found.uid() == owner.uid()) else { return Ok(None) };
    let uid = owner.uid().unwrap_or_default();
    let read = owner.resource_version();
    context.written.not_outdated(Some(&uid), read.as_deref(), None, || format!("ExtendedStatefulSet {name}"))?;
    let is_leaving = owner.metadata.deletion_timestamp.is_some();
    let ours = ListParams::default().labels(&format!("{}={name}", names::OWNER));
    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), &namespace);
    // What is to be let go may have lost its labels.
    let listed = if is_leaving { &ListParams::default() } else { &ours };
    let sets = deadline(format!("listing the StatefulSets of ExtendedStatefulSet {name}"), sets.list(listed)).await?;
    // The garbage collector may have let go of some of them a moment ago; their pods count all the same.
    let was_ours = |set: &SetObject| is_leaving && set.label(names::OWNER) == Some(&name) && !set.is_controlled();
    let is_ours = |set: &SetObject| set.is_controlled_by(&uid) || was_ours(set);
    let orphans = if is_leaving { Vec::new() } else { sets.items.iter().filter_map(orphan).collect() };
    let sets: Vec<_> = sets.items.into_iter().filter(is_ours).map(SetObject::shrunk).collect();
    for set in &sets {
        let read = set.metadata.resource_version.as_deref();
        context.written.not_outdated(Some(set.uid()), read, None, || format!("StatefulSet {}", set.name()))?;
    }
    let pods: Api<PodObject> = Api::namespaced(context.client.clone(), &namespace);
    let pods = deadline(format!("listing the pods of ExtendedStatefulSet {name}"), pods.list(&ours)).await?;
    let known = Known {
        generation: owner.metadata.generation.unwrap_or_default(),
        services: Services::read(&owner, context).await?,
        kept: templates::list(&owner, context).await?,
        strays: if is_leaving {
            Strays::new()
        } else {
            in_the_way::strays(&context.client, &sets, &pods.items).await?
        },
        abandoned: pods.items.iter().filter_map(|pod| abandoned(pod, &name, &sets)).collect(),
        empty_zones: if is_leaving { Vec::new() } else { empty_zones(&owner, context).await? },
        serves_policies: owner.spec.written_replicas().is_some() || serves_mutating_policies(&context.client).await,
        ..Known::default()
    };
    let keeps_children = is_leaving && leave::keeps_children(&owner, &sets, context).await?;
    let mut scene = scene(owner, sets, &pods.items, known.clone(), context);
    scene.observed.keeps_children = keeps_children;
    scene.observed.orphans = orphans;
    if is_leaving {
        return Ok(Some(scene));
    }
    let trial = trial::of(&scene, context).await?;
    trial.tell(&mut scene.observed.template);
    let known = Known { sets: scene.uids(), trial, ..known };
    context.slots.findings(&uid, |Findings(found)| *found = Some(known));
    Ok(Some(scene))
}

fn scene(
    owner: ExtendedStatefulSet,
    sets: Vec<SetObject>,
    pods: &[PodObject],
    known: Known,
    context: &Context,
) -> Scene {
    let is_in_place = owner.spec.update_strategy.kind == VersionStrategyType::InPlace;
    let children: Vec<ChildView> = sets
        .iter()
        .filter_map(|set| {
            let pods = pods.iter().filter(|pod| pod.belongs_to(set.uid())).filter_map(PodObject::view);
            let mut child = set.child_view(pods.collect())?;
            labels::settle(&mut child, &known.kept.revisions, &known.strays);
            // What the controller of the StatefulSet says about pods that it cannot make.
            let refused_pods = context.caches.refusals_of(set.namespace(), set.uid());
            let refused = refused_pods.iter().min_by_key(|pod| &pod.name).cloned();
            // What the rollout engine looks at.
            let set = is_in_place.then(|| Box::new(SetView { refused_pods, ..set.view() }));
            Some(ChildView { refused, set, ..child })
        })
        .collect();
    let mut template = render::template_view(&owner);
    known.trial.tell(&mut template);
    let observed = VersionsObserved {
        owner: owner_view(&owner),
        template,
        children,
        kept: known.kept.templates,
        orphans: Vec::new(),
        abandoned: known.abandoned,
        foreign: foreign(&owner, context),
        active: known.services.active,
        preview: known.services.preview,
        former: known.services.former,
        keeps_children: false,
        serves_policies: known.serves_policies,
        config: config(&owner, context),
        empty_zones: known.empty_zones,
        tried: None,
    };
    let sets = sets.into_iter().map(|set| (set.name().to_owned(), set)).collect();
    Scene { observed, owner, sets }
}

/// StatefulSets of the namespace whose names begin like those of ours and that do not belong to it.
fn foreign(owner: &ExtendedStatefulSet, context: &Context) -> Vec<String> {
    let (namespace, uid) = (owner.namespace().unwrap_or_default(), owner.uid().unwrap_or_default());
    context.caches.foreign_sets(&namespace, &owner.name_any(), &uid)
}

/// A StatefulSet with our label, if it is one of a version and belongs to nobody.
fn orphan(set: &SetObject) -> Option<OrphanView> {
    let is_free =
        !set.is_controlled() && set.metadata.deletion_timestamp.is_none() && set.annotation(names::VERSION).is_some();
    is_free.then(|| OrphanView { name: set.name().to_owned(), uid: set.uid().to_owned() })
}

/// The name of a pod of ours that nobody controls, if no StatefulSet is there that would take it in.
fn abandoned(pod: &PodObject, owner: &str, sets: &[SetObject]) -> Option<String> {
    let name = pod.metadata.name.as_deref()?;
    let (set, _) = name.rsplit_once('-')?;
    let is_marked = pod.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(names::VERSION));
    let is_ours = is_marked && (set == owner || set.strip_prefix(owner).is_some_and(|rest| rest.starts_with('-')));
    let is_free = pod.controller().is_none() && pod.metadata.deletion_timestamp.is_none();
    (is_ours && is_free && sets.iter().all(|other| other.name() != set)).then(|| name.to_owned())
}

/// What is wrong with the checks as written.
fn config(owner: &ExtendedStatefulSet, context: &Context) -> Vec<ConfigProblem> {
    let check = owner.spec.update_strategy.check.as_ref();
    check.map(|check| checks::validate(&context.prober, &check.to_check())).unwrap_or_default()
}

/// Zones that no node carries.
async fn empty_zones(owner: &ExtendedStatefulSet, context: &Context) -> Result<Vec<String>, Error> {
    let nodes: Api<Node> = Api::all(context.client.clone());
    let mut empty = Vec::new();
    for zone in owner.spec.all_zones() {
        let params = ListParams::default().labels(&format!("{}={zone}", owner.spec.zone_node_label)).limit(1);
        let found = deadline(format!("listing the nodes of zone {zone}"), nodes.list_metadata(&params)).await?;
        if found.items.is_empty() {
            empty.push(zone.clone());
        }
    }
    Ok(empty)
}

//! The templates of versions, kept as `ControllerRevision`s, which is how a StatefulSet keeps its own: what a version is made from is known
//! for as long as the version is there. It must never decide.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::api::{DeleteParams, ListParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Resource as _, ResourceExt as _};
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSet, VersionStrategyType, names};
use sts_plus_decide::child_name;

use super::Context;
use super::observe::Scene;
use crate::client::deadline;
use crate::errors::Error;

/// Kubernetes adds it to the `ControllerRevision`s of StatefulSets.
const REVISION_HASH: &str = "controller.kubernetes.io/hash";

/// What is kept beside the template: the label of nodes by which its pods find their zone.
const ZONE_NODE_LABEL: &str = "zoneNodeLabel";

/// What `ControllerRevision`s say of the versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    /// Versions whose templates are kept, with their digests.
    pub(super) templates: BTreeMap<i32, String>,
    /// In place: the versions of the revisions that the StatefulSets keep, by their names.
    pub(super) revisions: BTreeMap<String, i32>,
}

/// The `ControllerRevision`s of `owner`, and in place those of its StatefulSets.
pub(super) async fn list(owner: &ExtendedStatefulSet, context: &Context) -> Result<Kept, Error> {
    let name = owner.name_any();
    // Those of its StatefulSets have the labels of the pods as well, and one that Kubernetes adds.
    let others = match owner.spec.update_strategy.kind {
        VersionStrategyType::SideBySide => format!(",!{REVISION_HASH}"),
        VersionStrategyType::InPlace => String::new(),
    };
    let wanted = ListParams::default().labels(&format!("{}={name}{others}", names::OWNER));
    let call = format!("listing the ControllerRevisions of ExtendedStatefulSet {name}");
    let found = deadline(call, api(owner, context).list_metadata(&wanted)).await?;
    // Those that the garbage collector has let go of are ours all the same, and go with the object.
    let is_leaving = owner.metadata.deletion_timestamp.is_some();
    let mut kept = Kept::default();
    for revision in found.items {
        let version = revision.labels().get(names::VERSION).and_then(|version| version.parse().ok());
        let Some(version) = version else { continue };
        if revision.labels().contains_key(REVISION_HASH) {
            kept.revisions.insert(revision.name_any(), version);
        } else if is_owned(&revision, owner) || (is_leaving && revision.owner_references().is_empty()) {
            kept.templates.extend(revision.annotations().get(names::HASH).map(|hash| (version, hash.clone())));
        }
    }
    Ok(kept)
}

/// The one of this name. The operator may list them, and not get one.
fn named(name: &str) -> ListParams {
    ListParams::default().fields(&format!("metadata.name={name}"))
}

fn is_owned(kept: &PartialObjectMeta<ControllerRevision>, owner: &ExtendedStatefulSet) -> bool {
    kept.owner_references().iter().any(|reference| Some(&reference.uid) == owner.metadata.uid.as_ref())
}

/// Keeps `spec.template` as that of the version. One of ours that is there was kept in an earlier run, and never changes; one that an object
/// of the same name has left behind may be of another template, and gives way.
pub(super) async fn remember(version: i32, scene: &Scene, context: &Context) -> Result<(), Error> {
    let kept = revision(version, scene);
    let name = name(&scene.owner, version);
    let revisions = api(&scene.owner, context);
    let call = || format!("keeping the template of version {version}");
    match deadline(call(), revisions.create(&PostParams::default(), &kept)).await {
        Err(error) if error.is_already_there() => {}
        other => return other.map(|_| ()),
    }
    let Some(there) = deadline(call(), revisions.list_metadata(&named(&name))).await?.items.into_iter().next() else {
        return Err(Error::Outdated { what: format!("ControllerRevision {name}") });
    };
    if is_owned(&there, &scene.owner) {
        return Ok(());
    }
    if !there.owner_references().is_empty() {
        let problem = "it belongs to somebody else: delete it".to_owned();
        return Err(Error::Unusable { what: format!("ControllerRevision {name}"), problem });
    }
    let preconditions = Preconditions { uid: there.metadata.uid, resource_version: None };
    deadline(call(), revisions.delete(&name, &DeleteParams::default().preconditions(preconditions))).await?;
    deadline(call(), revisions.create(&PostParams::default(), &kept)).await.map(|_| ())
}

fn revision(version: i32, scene: &Scene) -> ControllerRevision {
    let owner = &scene.owner;
    let mut kept = ControllerRevision {
        revision: i64::from(version),
        data: Some(RawExtension(
            json!({ "template": owner.spec.template, ZONE_NODE_LABEL: owner.spec.zone_node_label }),
        )),
        ..ControllerRevision::default()
    };
    kept.metadata.name = Some(name(owner, version));
    kept.metadata.labels = Some(BTreeMap::from([
        (names::OWNER.to_owned(), owner.name_any()),
        (names::VERSION.to_owned(), version.to_string()),
    ]));
    kept.metadata.annotations = Some(BTreeMap::from([(names::HASH.to_owned(), scene.observed.template.hash.clone())]));
    kept.metadata.owner_references = owner.controller_owner_ref(&()).map(|owner| vec![owner]);
    kept
}

pub(super) async fn forget(version: i32, scene: &Scene, context: &Context) -> Result<(), Error> {
    let name = name(&scene.owner, version);
    let call = format!("dropping the template of version {version}");
    match deadline(call, api(&scene.owner, context).delete(&name, &DeleteParams::default())).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// The object with the template of the version in place of the one that it has now.
pub(super) async fn owner_at<'s>(
    version: i32,
    scene: &'s Scene,
    context: &Context,
) -> Result<Cow<'s, ExtendedStatefulSet>, Error> {
    let kept = scene.observed.kept.get(&version);
    if kept.is_none_or(|hash| *hash == scene.observed.template.hash) {
        return Ok(Cow::Borrowed(&scene.owner));
    }
    let name = name(&scene.owner, version);
    let call = format!("reading the template of version {version}");
    let found = deadline(call, api(&scene.owner, context).list(&named(&name))).await?;
    let data = found.items.into_iter().next().and_then(|kept| kept.data);
    let data = data.map(|RawExtension(data)| data).unwrap_or_default();
    let Some(template) = data.get("template") else {
        return Err(Error::Outdated { what: format!("ControllerRevision {name}") });
    };
    let mut owner = scene.owner.clone();
    owner.spec.template = template.clone();
    if let Some(label) = data.get(ZONE_NODE_LABEL).and_then(Value::as_str) {
        label.clone_into(&mut owner.spec.zone_node_label);
    }
    Ok(Cow::Owned(owner))
}

fn name(owner: &ExtendedStatefulSet, version: i32) -> String {
    child_name(&owner.name_any(), VersionStrategyType::SideBySide, version, None)
}

fn api(owner: &ExtendedStatefulSet, context: &Context) -> Api<ControllerRevision> {
    Api::namespaced(context.client.clone(), &owner.namespace().unwrap_or_default())
}

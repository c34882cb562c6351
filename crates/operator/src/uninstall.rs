//! `sts-plus uninstall`: every StatefulSet is let go first, as its PhasedRollout says, or so that it stays when its
//! ExtendedStatefulSet goes, and then all that was installed is removed.
//!
//! It needs no running operator, no roles and no policies, since one of them may be gone already: it brings what it needs and acts
//! under the name of the operator's service account, which the admission policies leave alone.

use std::fmt::{Debug, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use http::{HeaderName, HeaderValue};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta, TypeMeta};
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout, names};

use crate::args::UninstallArgs;
use crate::client::deadline;
use crate::errors::{Error, told};
use crate::views::SetObject;
use crate::{client, manifests, rbac, run};

const PAUSE: Duration = Duration::from_millis(200);
const MANAGER: &str = "sts-plus-uninstall";
const IMPERSONATE: HeaderName = HeaderName::from_static("impersonate-user");

/// Lets every StatefulSet go and removes all that was installed. Twice is as good as once.
///
/// # Errors
///
/// If the API server refuses something, or if it takes longer than allowed; what was not done is named.
pub async fn uninstall(args: &UninstallArgs) -> anyhow::Result<()> {
    let config = client::config().await.map_err(|error| anyhow::anyhow!(told(&error)))?;
    let client = Client::try_from(config.clone()).map_err(|error| anyhow::anyhow!(told(&error)))?;
    let patience = Duration::from_secs(args.timeout);
    release_all(config, &client, &args.namespace, patience).await?;
    let options = manifests::Options {
        namespace: args.namespace.clone(),
        // Any image, so that the Deployment is among the objects.
        image: Some(rbac::NAME.to_owned()),
        ..manifests::Options::default()
    };
    remove_all(&client, &manifests::render(&options)?, patience).await?;
    say("uninstalled");
    Ok(())
}

/// Deletes every object of ours and does the operator's part of it.
async fn release_all(config: kube::Config, client: &Client, namespace: &str, patience: Duration) -> anyhow::Result<()> {
    let rollouts: Api<PhasedRollout> = Api::all(client.clone());
    let owners: Api<ExtendedStatefulSet> = Api::all(client.clone());
    let (found, owning) = (all_of("PhasedRollouts", &rollouts).await?, all_of("ExtendedStatefulSets", &owners).await?);
    if found.is_empty() && owning.is_empty() {
        return Ok(());
    }
    say(&format!("{} PhasedRollouts let go of their StatefulSets", found.len()));
    say(&format!("{} ExtendedStatefulSets go, and their StatefulSets stay as they are", owning.len()));
    let claimed = claimed_sets(client).await?;
    for object in
        rbac::objects(namespace, &[]).iter().filter(|object| object["kind"].as_str().is_some_and(is_cluster_role))
    {
        let (api, name) = api_of(client, object)?;
        let params = PatchParams::apply(MANAGER).force();
        deadline(format!("applying {}", what_is(object)), api.patch(&name, &params, &Patch::Apply(object))).await?;
    }
    delete_all::<PhasedRollout>(client, &found, &DeleteParams::background()).await?;
    // With the definition all of their StatefulSets would go, and take their pods along.
    delete_all::<ExtendedStatefulSet>(client, &owning, &DeleteParams::orphan()).await?;
    let mut config = config;
    config.headers.push((IMPERSONATE, HeaderValue::from_str(&rbac::user_name(namespace))?));
    let none_is_left = async {
        until_none_is_left("PhasedRollouts", &rollouts, patience).await?;
        until_none_is_left("ExtendedStatefulSets", &owners, patience).await
    };
    run::work_until(config, none_is_left).await??;
    tell_held(client, &claimed).await
}

async fn delete_all<K>(client: &Client, found: &[PartialObjectMeta<K>], params: &DeleteParams) -> anyhow::Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    for object in found {
        let api: Api<K> = Api::namespaced(client.clone(), &object.namespace().unwrap_or_default());
        let name = object.name_any();
        gone(deadline(format!("deleting {} {name}", K::kind(&())), api.delete(&name, params)).await)?;
    }
    Ok(())
}

/// All objects of a kind; none if it is not served here.
async fn all_of<K>(kind: &str, objects: &Api<K>) -> anyhow::Result<Vec<PartialObjectMeta<K>>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    match deadline(format!("listing {kind}"), objects.list_metadata(&ListParams::default())).await {
        Ok(found) => Ok(found.items),
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}

fn is_cluster_role(kind: &str) -> bool {
    matches!(kind, "ClusterRole" | "ClusterRoleBinding")
}

async fn until_none_is_left<K>(kind: &str, objects: &Api<K>, patience: Duration) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut left = Vec::new();
    let emptied = async {
        loop {
            // With its last object the definition may be gone.
            match all_of(kind, objects).await {
                Ok(list) if list.is_empty() => return,
                Ok(list) => left = list,
                Err(error) => tracing::warn!("{error}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    if tokio::time::timeout(patience, emptied).await.is_ok() {
        return Ok(());
    }
    let names = left.iter().map(|left| format!("{}/{}", left.namespace().unwrap_or_default(), left.name_any()));
    anyhow::bail!(
        "after {} s these {kind} are still there, and nothing else was removed: {}",
        patience.as_secs(),
        names.collect::<Vec<_>>().join(", ")
    )
}

/// Namespace and name of every set that belongs to a PhasedRollout or an ExtendedStatefulSet.
async fn claimed_sets(client: &Client) -> anyhow::Result<Vec<(String, String)>> {
    let sets = all_sets(client).await?;
    let claimed = sets.iter().filter(|set| set.claimed_by().is_some() || is_version(set));
    Ok(claimed.map(|set| (set.namespace().to_owned(), set.name().to_owned())).collect())
}

/// Names those of them that keep a partition: they were in mid-rollout.
async fn tell_held(client: &Client, claimed: &[(String, String)]) -> anyhow::Result<()> {
    for set in all_sets(client).await? {
        let partition = set.partition().unwrap_or(0);
        if partition != 0 && claimed.contains(&(set.namespace().to_owned(), set.name().to_owned())) {
            let why = if is_version(&set) { "was that of a version" } else { "was in mid-rollout" };
            say(&format!(
                "StatefulSet {}/{} {why}: it keeps partition {partition}, so nothing rolls until you remove \
                 spec.updateStrategy.rollingUpdate.partition",
                set.namespace(),
                set.name()
            ));
        }
    }
    Ok(())
}

/// It is controlled by an ExtendedStatefulSet, or was until a moment ago.
fn is_version(set: &SetObject) -> bool {
    set.label(names::OWNER).is_some() && set.annotation(names::VERSION).is_some()
}

async fn all_sets(client: &Client) -> anyhow::Result<Vec<SetObject>> {
    let sets: Api<SetObject> = Api::all(client.clone());
    Ok(deadline("listing StatefulSets", sets.list(&ListParams::default())).await?.items)
}

/// Removes `objects`, the last one first, and waits until they are gone. What does not carry our label is somebody else's.
async fn remove_all(client: &Client, objects: &[Value], patience: Duration) -> anyhow::Result<()> {
    let mut going = Vec::new();
    for object in objects.iter().rev() {
        let (api, name) = api_of(client, object)?;
        let what = what_is(object);
        let found = match deadline(format!("reading {what}"), api.get_metadata(&name)).await {
            Ok(found) => found,
            Err(error) if error.is_not_found() => continue,
            Err(error) => return Err(error.into()),
        };
        if found.labels().get(manifests::PART_OF).is_none_or(|part_of| part_of != rbac::NAME) {
            say(&format!("{what} has no label {}={}: it stays", manifests::PART_OF, rbac::NAME));
            continue;
        }
        gone(deadline(format!("deleting {what}"), api.delete(&name, &DeleteParams::background())).await)?;
        going.push((api, name, what));
    }
    let gone = async {
        while let Some((api, name, _)) = going.last() {
            match deadline("reading what is left", api.get_metadata(name)).await {
                Err(error) if error.is_not_found() => drop(going.pop()),
                _ => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    if tokio::time::timeout(patience, gone).await.is_ok() {
        return Ok(());
    }
    let mut left = format!("still there after {} s:", patience.as_secs());
    for (_, _, what) in &going {
        write!(left, " {what},")?;
    }
    anyhow::bail!("{}", left.trim_end_matches(','))
}

/// The way to one object, and its name.
fn api_of(client: &Client, object: &Value) -> anyhow::Result<(Api<DynamicObject>, String)> {
    let meta: PartialObjectMeta<DynamicObject> = serde_json::from_value(object.clone())?;
    let types: &TypeMeta = meta.types.as_ref().context("an object has a kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    let api = match meta.namespace() {
        Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    Ok((api, meta.name_any()))
}

/// For people: kind and name.
fn what_is(object: &Value) -> String {
    let text = |pointer| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    format!("{} {}", text("/kind"), text("/metadata/name"))
}

/// What is gone already, or whose kind is not served here, is deleted.
fn gone<T>(deleted: Result<T, Error>) -> Result<(), Error> {
    match deleted {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn say(text: &str) {
    eprintln!("sts-plus: {text}");
}

//! `sts-plus uninstall`: every StatefulSet is let go first, as its PhasedRollout says, or so that it stays when its
//! ExtendedStatefulSet goes, and then all that was installed is removed.
//!
//! It needs no running operator, no roles and no policies, since one of them may be gone already: it brings what it needs and acts
//! under the name of the operator's service account, which the admission policies leave alone.

use std::collections::BTreeSet;
use std::fmt::{Debug, Write as _};
use std::time::Duration;

use anyhow::Context as _;
use http::{HeaderName, HeaderValue};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::NamespaceResourceScope;
use kube::core::{DynamicObject, GroupVersionKind, ObjectList, PartialObjectMeta, TypeMeta};
use kube::discovery::ApiResource;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sts_plus_api::{ExtendedStatefulSet, PhasedRollout, names};

use crate::args::UninstallArgs;
use crate::client::deadline;
use crate::errors::{Error, told};
use crate::rbac::Rights;
use crate::views::SetObject;
use crate::{client, manifests, rbac, run};

/// Objects of one answer.
const PAGE: u32 = 500;
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
    let mut objects = manifests::render(&options)?;
    objects.extend(roles_of_namespaces(&client).await?);
    remove_all(&client, &objects, patience).await?;
    say("uninstalled");
    Ok(())
}

/// What a role and its binding in a namespace in which the operator works, wherever there is one, are called.
async fn roles_of_namespaces(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut objects = Vec::new();
    for kind in ["Role", "RoleBinding"] {
        let group = GroupVersionKind::gvk("rbac.authorization.k8s.io", "v1", kind);
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&group));
        let params = ListParams::default().fields(&format!("metadata.name={}", rbac::WORKLOADS));
        let list = |params| {
            let api = api.clone();
            async move { api.list_metadata(&params).await }
        };
        let identify = |found: PartialObjectMeta<DynamicObject>| {
            let metadata = json!({ "name": found.name_any(), "namespace": found.namespace() });
            Some(json!({ "apiVersion": group.api_version(), "kind": kind, "metadata": metadata }))
        };
        objects.extend(every(&format!("listing {kind}s"), params, list, identify).await?);
    }
    Ok(objects)
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
    for object in Rights::everywhere(namespace)
        .objects()
        .iter()
        .filter(|object| object["kind"].as_str().is_some_and(is_cluster_role))
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

/// What `keep` keeps of a list, which is read page by page: of thousands none is too large, and no answer takes too long.
async fn every<K: Clone, T, F>(
    call: &str,
    params: ListParams,
    list: impl Fn(ListParams) -> F,
    keep: impl Fn(K) -> Option<T>,
) -> Result<Vec<T>, Error>
where
    F: Future<Output = Result<ObjectList<K>, kube::Error>> + Send,
{
    let (mut kept, mut params) = (Vec::new(), params.limit(PAGE));
    loop {
        let page = deadline(call, list(params.clone())).await?;
        kept.extend(page.items.into_iter().filter_map(&keep));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(kept),
        }
    }
}

/// All objects of a kind; none if it is not served here.
async fn all_of<K>(kind: &str, objects: &Api<K>) -> anyhow::Result<Vec<PartialObjectMeta<K>>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let list = |params| {
        let objects = objects.clone();
        async move { objects.list_metadata(&params).await }
    };
    match every(&format!("listing {kind}"), ListParams::default(), list, Some).await {
        Ok(found) => Ok(found),
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
async fn claimed_sets(client: &Client) -> anyhow::Result<BTreeSet<(String, String)>> {
    let is_claimed = |set: &SetObject| set.claimed_by().is_some() || is_version(set);
    let claimed = sets(client, |set| is_claimed(&set).then(|| name_of(&set))).await?;
    Ok(claimed.into_iter().collect())
}

/// With its namespace.
fn name_of(set: &SetObject) -> (String, String) {
    (set.namespace().to_owned(), set.name().to_owned())
}

/// Names those of them that keep a partition: they were in mid-rollout.
async fn tell_held(client: &Client, claimed: &BTreeSet<(String, String)>) -> anyhow::Result<()> {
    let held = sets(client, |set| {
        let partition = set.partition().filter(|partition| *partition != 0)?;
        let (namespace, name) = claimed.get(&name_of(&set))?;
        let why = if is_version(&set) { "was that of a version" } else { "was in mid-rollout" };
        Some(format!(
            "StatefulSet {namespace}/{name} {why}: it keeps partition {partition}, so nothing rolls until you remove \
             spec.updateStrategy.rollingUpdate.partition"
        ))
    });
    held.await?.iter().for_each(|line| say(line));
    Ok(())
}

/// It is controlled by an ExtendedStatefulSet, or was until a moment ago.
fn is_version(set: &SetObject) -> bool {
    set.label(names::OWNER).is_some() && set.annotation(names::VERSION).is_some()
}

/// What `keep` keeps of all StatefulSets.
async fn sets<T>(client: &Client, keep: impl Fn(SetObject) -> Option<T>) -> anyhow::Result<Vec<T>> {
    let sets: Api<SetObject> = Api::all(client.clone());
    let list = |params| {
        let sets = sets.clone();
        async move { sets.list(&params).await }
    };
    Ok(every("listing StatefulSets", ListParams::default(), list, keep).await?)
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

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use kube::client::Body;

    use super::*;

    /// An API server with 1,200 StatefulSets, of which each third is claimed, that gives as many as it is asked for.
    fn server() -> Client {
        let service = tower::service_fn(|request: Request<Body>| async move {
            let asked: Vec<(String, String)> = url(request.uri());
            let of = |key: &str| asked.iter().find(|(name, _)| name == key).and_then(|(_, value)| value.parse().ok());
            let (from, limit): (usize, usize) = (of("continue").unwrap_or(0), of("limit").unwrap_or(usize::MAX));
            assert!(limit <= 500, "a page and no more: {asked:?}");
            let to = from.saturating_add(limit).min(1200);
            let set = |n| {
                let annotations = if n % 3 == 0 { json!({ names::CLAIM: "gate" }) } else { json!({}) };
                json!({ "metadata": { "namespace": "shop", "name": format!("set-{n}"), "annotations": annotations } })
            };
            let next = if to < 1200 { json!(to.to_string()) } else { json!("") };
            let list = json!({
                "apiVersion": "apps/v1", "kind": "StatefulSetList", "metadata": { "continue": next },
                "items": (from..to).map(set).collect::<Vec<_>>(),
            });
            Response::builder().body(Body::from(list.to_string().into_bytes()))
        });
        Client::new(service, "default")
    }

    fn url(uri: &http::Uri) -> Vec<(String, String)> {
        let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[tokio::test]
    async fn thousands_of_sets_are_read_page_by_page_and_none_is_left_out() {
        let claimed = claimed_sets(&server()).await.unwrap();
        let all = (0..1200).step_by(3).map(|n| ("shop".to_owned(), format!("set-{n}")));
        assert_eq!(claimed, all.collect());
    }
}

//! What is done to other objects at the end: Services and StatefulSets are let go, and the finalizer of the ExtendedStatefulSet comes and
//! goes. Reads whether its definition goes. It must never decide.

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Patch;
use kube::core::PartialObjectMeta;
use kube::{Api, CustomResourceExt as _, Resource as _, ResourceExt as _};
use serde_json::{Map, Value, json};
use sts_plus_api::{ExtendedStatefulSet, names};

use super::Context;
use super::observe::Scene;
use crate::client::deadline;
use crate::errors::Error;
use crate::patch::{add_finalizer, by, remove, remove_finalizer, test};
use crate::views::SetObject;

/// Of an object that is deleted with `--cascade=orphan`: the garbage collector takes it away when it has let go of what it owned.
const ORPHAN: &str = "orphan";

/// True if the StatefulSets of an object that is being deleted stay: whoever deletes the definition has not asked for the end of the pods.
pub(super) async fn keeps_children(
    owner: &ExtendedStatefulSet,
    sets: &[SetObject],
    context: &Context,
) -> Result<bool, Error> {
    if context.kind.keeps_children || owner.finalizers().iter().any(|finalizer| finalizer == ORPHAN) || are_freed(sets)
    {
        return Ok(true);
    }
    let definitions: Api<CustomResourceDefinition> = Api::all(context.client.clone());
    let call = deadline(
        "reading the definition of ExtendedStatefulSets",
        definitions.get_metadata(ExtendedStatefulSet::crd_name()),
    );
    match call.await {
        Ok(definition) => Ok(definition.metadata.deletion_timestamp.is_some()),
        Err(error) if error.is_not_found() => Ok(true),
        Err(error) => Err(error),
    }
}

/// The garbage collector has let go of all of them, and may have taken its finalizer away: it does so to keep them, and otherwise leaves them
/// to whom they belong for as long as the object is there.
fn are_freed(sets: &[SetObject]) -> bool {
    !sets.is_empty() && sets.iter().all(|set| !set.is_controlled())
}

/// The finalizer is put on the object. Somebody else may have written in between: then it is looked at again.
pub(super) async fn guard(scene: &Scene, context: &Context) -> Result<(), Error> {
    let Some(patch) = add_finalizer(&scene.owner, names::FINALIZER_VERSIONS) else { return Ok(()) };
    let written = write_owner(patch, scene, context).await?;
    context.written.remember(scene.uid(), written.resource_version().as_deref());
    Ok(())
}

/// The finalizer is taken away, and with it all that is remembered.
pub(super) async fn end(scene: &Scene, context: &Context) -> Result<(), Error> {
    if let Some(patch) = remove_finalizer(&scene.owner, names::FINALIZER_VERSIONS) {
        match write_owner(patch, scene, context).await {
            Err(error) if !error.is_not_found() => return Err(error),
            _ => {}
        }
    }
    context.forget(scene.uid());
    Ok(())
}

async fn write_owner(
    patch: json_patch::Patch,
    scene: &Scene,
    context: &Context,
) -> Result<PartialObjectMeta<ExtendedStatefulSet>, Error> {
    let owners: Api<ExtendedStatefulSet> = Api::namespaced(context.client.clone(), scene.namespace());
    let call = format!("writing the finalizer of ExtendedStatefulSet {}", scene.name());
    let params = by(names::MANAGER_LIFECYCLE);
    deadline(call, owners.patch_metadata(scene.name(), &params, &Patch::Json::<()>(patch))).await
}

/// No version and no mark of ours stays on the Service. One that is gone, or has not our mark any more, is none of our business.
pub(super) async fn free(name: &str, scene: &Scene, context: &Context) -> Result<(), Error> {
    let services: Api<Service> = Api::namespaced(context.client.clone(), scene.namespace());
    let Some(service) = deadline(format!("reading Service {name}"), services.get_opt(name)).await? else {
        return Ok(());
    };
    let Some(patch) = free_patch(&service, scene.name()) else { return Ok(()) };
    let params = by(names::MANAGER_VERSIONS);
    match deadline(format!("freeing Service {name}"), services.patch(name, &params, &Patch::Json::<()>(patch))).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn free_patch(service: &Service, owner: &str) -> Option<json_patch::Patch> {
    let mark = service.annotations().get(names::OWNER).filter(|mark| *mark == owner)?;
    let mut operations = vec![
        test(["metadata", "uid"], json!(service.metadata.uid)),
        test(["metadata", "resourceVersion"], json!(service.metadata.resource_version)),
        test(["metadata", "annotations", names::OWNER], mark.as_str()),
        remove(["metadata", "annotations", names::OWNER]),
    ];
    let selector = service.spec.as_ref().and_then(|spec| spec.selector.as_ref());
    if selector.is_some_and(|selector| selector.contains_key(names::VERSION)) {
        operations.push(remove(["spec", "selector", names::VERSION]));
    }
    Some(json_patch::Patch(operations))
}

/// Every StatefulSet that it controls is let go, and the admission policies hold it no longer; its partition stays.
pub(super) async fn orphan(scene: &Scene, context: &Context) -> Result<(), Error> {
    for set in scene.sets.values() {
        let_go(set.name(), set.uid(), scene, context).await?;
    }
    Ok(())
}

/// Taking away what is gone already is no change: the garbage collector may do the same.
async fn let_go(name: &str, uid: &str, scene: &Scene, context: &Context) -> Result<(), Error> {
    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), scene.namespace());
    let reference = json!([{ "$patch": "delete", "uid": scene.uid() }]);
    let claim: Map<_, _> = names::OF_A_CLAIM.iter().map(|name| ((*name).to_owned(), Value::Null)).collect();
    let body = json!({ "metadata": { "uid": uid, "ownerReferences": reference, "annotations": claim } });
    let params = by(names::MANAGER_VERSIONS);
    let call = format!("letting go of StatefulSet {name}");
    match deadline(call, sets.patch_metadata(name, &params, &Patch::Strategic(body))).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Takes in a StatefulSet that belongs to nobody. While the object is deleted with `--cascade=orphan` the garbage collector makes them so:
/// one that was taken in again then would go with the object. So it is asked before and after whether the object stays.
pub(super) async fn adopt(name: &str, uid: &str, scene: &Scene, context: &Context) -> Result<SetObject, Error> {
    assert_stays(scene, context).await?;
    let sets: Api<SetObject> = Api::namespaced(context.client.clone(), scene.namespace());
    let references = json!([scene.owner.controller_owner_ref(&())]);
    let change = Patch::Strategic(json!({ "metadata": { "uid": uid, "ownerReferences": references } }));
    // If somebody else has taken it in between, the API server refuses a second controller.
    let params = by(names::MANAGER_VERSIONS);
    let adopted = deadline(format!("taking in StatefulSet {name}"), sets.patch(name, &params, &change)).await?;
    if let Err(error) = assert_stays(scene, context).await {
        let_go(name, uid, scene, context).await?;
        return Err(error);
    }
    Ok(adopted)
}

/// An error unless the object is there and is not being deleted, as the API server has it now.
async fn assert_stays(scene: &Scene, context: &Context) -> Result<(), Error> {
    let owners: Api<ExtendedStatefulSet> = Api::namespaced(context.client.clone(), scene.namespace());
    let call = format!("reading ExtendedStatefulSet {}", scene.name());
    let owner = deadline(call, owners.get_metadata_opt(scene.name())).await?;
    let stays = owner.is_some_and(|owner| {
        owner.metadata.uid.as_deref() == Some(scene.uid()) && owner.metadata.deletion_timestamp.is_none()
    });
    if stays { Ok(()) } else { Err(Error::Outdated { what: format!("ExtendedStatefulSet {}", scene.name()) }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(service: &Value) -> Option<Value> {
        let patch = free_patch(&serde_json::from_value(service.clone()).unwrap(), "db")?;
        let mut after = service.clone();
        json_patch::patch(&mut after, &patch).unwrap();
        Some(after)
    }

    #[test]
    fn the_version_goes_and_all_else_stays() {
        let service = json!({
            "metadata": {"name": "live", "uid": "u", "resourceVersion": "7", "annotations": {names::OWNER: "db", "a": "b"}},
            "spec": {"selector": {"app": "db", names::VERSION: "3"}},
        });
        let after = freed(&service).unwrap();
        assert_eq!(after["spec"]["selector"], json!({"app": "db"}));
        assert_eq!(after["metadata"]["annotations"], json!({"a": "b"}));
    }

    #[test]
    fn a_service_without_our_mark_is_not_touched() {
        let selector = json!({"selector": {names::VERSION: "3"}});
        assert_eq!(freed(&json!({"metadata": {"name": "live"}, "spec": selector})), None);
        let theirs = json!({"metadata": {"name": "live", "annotations": {names::OWNER: "other"}}, "spec": selector});
        assert_eq!(freed(&theirs), None);
    }

    #[test]
    fn a_mark_goes_also_where_somebody_took_the_version_away() {
        let service = json!({"metadata": {"name": "live", "uid": "u", "resourceVersion": "7", "annotations": {names::OWNER: "db"}}, "spec": {}});
        assert_eq!(freed(&service).unwrap()["metadata"]["annotations"], json!({}));
    }
}

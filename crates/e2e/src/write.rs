//! What a scenario writes and reads as a person: by the API server where it is about the object, by kubectl where that is the subject.

use std::path::Path;

use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, Resource as _, TypeMeta};
use serde_json::Value;

use crate::Scene;

/// Who writes, in the managed fields of an object.
const PERSON: &str = "person";

/// What kubectl said.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Whether it succeeded.
    pub ok: bool,
    /// Its stdout.
    pub stdout: String,
    /// Its stderr.
    pub stderr: String,
}

/// What the API server answered: the object, or the sentence with which it refused.
///
/// # Errors
/// When it refused.
pub fn answer<T>(outcome: kube::Result<T>) -> Result<T, String> {
    outcome.map_err(|error| match error {
        kube::Error::Api(status) => status.message.clone(),
        error => panic!("no answer of the API server: {error}"),
    })
}

impl Scene {
    /// Creates an object as a person; as it is stored.
    pub async fn create(&self, object: &Value) -> Value {
        let created = self.post(object, "").await;
        let created = created.unwrap_or_else(|error| panic!("it is not created: {error}\n{object:#}"));
        self.catch_up().await;
        created
    }

    /// What would become of an object that a person creates, or why it is refused.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn try_create(&self, object: &Value) -> Result<Value, String> {
        answer(self.post(object, "&dryRun=All").await)
    }

    /// As strict as `kubectl create`: a field that nobody knows is refused.
    async fn post(&self, object: &Value, more: &str) -> kube::Result<Value> {
        let types: TypeMeta = serde_json::from_value(object.clone()).expect("an object has a kind");
        let kind = GroupVersionKind::try_from(&types).expect("an object has an API version");
        // The only objects of no namespace that scenarios make.
        let namespace = (kind.group != "admissionregistration.k8s.io").then_some(self.namespace.as_str());
        let path = DynamicObject::url_path(&ApiResource::from_gvk(&kind), namespace);
        let request = http::Request::post(format!("{path}?fieldManager={PERSON}&fieldValidation=Strict{more}"))
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(object.to_string().into_bytes());
        self.client.request(request.expect("a request")).await
    }

    /// An object such as `statefulset/web` as it is stored.
    pub async fn get(&self, object: &str) -> Value {
        let (api, name) = self.find(object);
        let found = api.get(name).await.unwrap_or_else(|error| panic!("{object}: {error}"));
        serde_json::to_value(found).expect("an object is JSON")
    }

    /// `kubectl apply` of an object, which must succeed.
    pub async fn apply(&self, object: &Value) -> Reply {
        self.kubectl_ok(&["apply", "-f", "-"], &object.to_string()).await
    }

    /// A merge patch of an object such as `statefulset/web`, which must succeed; the object as it is stored then.
    pub async fn patch(&self, object: &str, body: &Value) -> DynamicObject {
        self.try_patch(object, body).await.expect("the patch is accepted")
    }

    /// A merge patch of an object such as `statefulset/web`.
    ///
    /// # Errors
    /// What the API server says when it refuses.
    pub async fn try_patch(&self, object: &str, body: &Value) -> Result<DynamicObject, kube::Error> {
        let (api, name) = self.find(object);
        let params = PatchParams { field_manager: Some(PERSON.to_owned()), ..PatchParams::default() };
        let patched = api.patch(name, &params, &Patch::Merge(body)).await;
        self.catch_up().await;
        patched
    }

    /// Deletes an object such as `pod/web-0`; it may be there for a while after that.
    pub async fn delete(&self, object: &str) {
        let (api, name) = self.find(object);
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.unwrap_or_else(|error| panic!("{object}: {error}"));
        self.catch_up().await;
    }

    /// The kind and the name of an object such as `statefulset/web`.
    fn find<'a>(&self, object: &'a str) -> (Api<DynamicObject>, &'a str) {
        let (kind, name) = object.split_once('/').expect("kind/name");
        (self.api(kind), name)
    }

    /// Objects of a kind in this namespace.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, kind) = match kind {
            "statefulset" => ("apps", "v1", "StatefulSet"),
            "controllerrevision" => ("apps", "v1", "ControllerRevision"),
            "phasedrollout" => ("sts.plus", "v1alpha1", "PhasedRollout"),
            "extendedstatefulset" => ("fissile.cloudfoundry.org", "v1alpha1", "ExtendedStatefulSet"),
            "service" => ("", "v1", "Service"),
            "pod" => ("", "v1", "Pod"),
            "secret" => ("", "v1", "Secret"),
            "resourcequota" => ("", "v1", "ResourceQuota"),
            other => panic!("{other} is not known here"),
        };
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    /// Runs kubectl as an admin in the namespace.
    pub async fn kubectl(&self, args: &[&str], stdin: &str) -> Reply {
        self.kubectl_as(self.ground.cluster.kubeconfig(), args, stdin).await
    }

    /// Runs kubectl in the namespace with another kubeconfig.
    pub async fn kubectl_as(&self, kubeconfig: &Path, args: &[&str], stdin: &str) -> Reply {
        let args = [&["--namespace", &self.namespace], args].concat();
        let output = self.ground.cluster.kubectl_as(kubeconfig, &args, stdin).await.expect("kubectl ends");
        self.catch_up().await;
        Reply {
            ok: output.status.success(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// As [`Scene::kubectl`], and it must succeed.
    pub async fn kubectl_ok(&self, args: &[&str], stdin: &str) -> Reply {
        let reply = self.kubectl(args, stdin).await;
        assert!(reply.ok, "kubectl {}: {}", args.join(" "), reply.stderr);
        reply
    }
}

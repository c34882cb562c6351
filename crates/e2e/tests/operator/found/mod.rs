//! Faults of the engine that were found by reading and by trying, each as a user met it and with the right end, on the real control plane
//! with the admission policies on. Whatever people do here is done by kubectl, by one user who has the rights of the owner of an application
//! in its namespace. The same stories on the model, in many more forms, are in `crates/model/tests/model/found`.

mod failed;
mod missing;
mod reverts;
mod tries;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use sts_plus_api::names;
use sts_plus_e2e::{Asked, OWNER, Scene, Seen, World, eventually, image_of};

/// A scenario, and the owner of the application in it.
struct Owned {
    scene: Scene,
    kubeconfig: PathBuf,
}

impl Deref for Owned {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.scene
    }
}

impl Owned {
    /// An empty namespace in which the owner has rights; no operator runs for it yet.
    async fn new(name: &str) -> Self {
        let scene = Scene::new(name).await;
        for object in rights() {
            scene.create(&object).await;
        }
        let kubeconfig = scene.ground.cluster.kubeconfig_for(OWNER, &[]).expect("a user of the cluster");
        let owned = Self { scene, kubeconfig };
        let may = async || owned.try_kubectl(&["auth", "can-i", "create", "phasedrollouts"], "").await.is_ok();
        eventually("the owner has rights", may).await;
        let reply = owned.try_kubectl(&["auth", "can-i", "create", "clusterroles"], "").await;
        assert!(reply.is_err(), "and no others: {reply:?}");
        owned
    }

    /// A set `web` with Ready pods on `app:1`, claimed by `rollout` and at rest; the operator runs.
    async fn at_rest(name: &str, set: &Value, rollout: &Value) -> Self {
        let mut owned = Self::new(name).await;
        owned.apply(set).await;
        owned.until("all pods are Ready", |world| world.all_on("app:1") && world.controller_has_seen()).await;
        owned.apply(rollout).await;
        owned.scene.start_operator();
        owned.until_at_rest().await;
        owned
    }

    /// kubectl of the owner: what it printed, or why it failed.
    async fn try_kubectl(&self, args: &[&str], stdin: &str) -> Result<String, String> {
        let reply = self.scene.kubectl_as(&self.kubeconfig, args, stdin).await;
        if reply.ok { Ok(reply.stdout) } else { Err(reply.stderr) }
    }

    /// kubectl of the owner, which must succeed.
    async fn kubectl(&self, args: &[&str]) {
        let outcome = self.try_kubectl(args, "").await;
        outcome.unwrap_or_else(|error| panic!("kubectl {}: {error}", args.join(" ")));
    }

    async fn apply(&self, object: &Value) {
        let outcome = self.try_kubectl(&["apply", "-f", "-"], &object.to_string()).await;
        outcome.unwrap_or_else(|error| panic!("kubectl apply: {error}\n{object:#}"));
    }

    async fn release(&self, image: &str) {
        self.kubectl(&["set", "image", "statefulset/web", &format!("app={image}")]).await;
    }

    async fn delete_pod(&self, pod: &str) {
        // It comes back under the same name, so nobody waits until it is gone.
        self.kubectl(&["delete", "pod", pod, "--wait=false"]).await;
    }

    async fn configure(&self, spec: &Value) {
        let patch = json!({ "spec": spec }).to_string();
        self.kubectl(&["patch", "phasedrollout", "gate", "--type=merge", "--patch", &patch]).await;
    }

    async fn annotate(&self, object: &str, key: &str, value: &str) {
        self.kubectl(&["annotate", "--overwrite", object, &format!("{key}={value}")]).await;
    }

    async fn approve(&self, index: i32) {
        let word = format!("{}/{index}", self.world().update_revision());
        self.annotate("phasedrollout/gate", names::APPROVE, &word).await;
    }

    async fn retry(&self) {
        self.annotate("phasedrollout/gate", names::RETRY, "now").await;
    }

    /// Waits for that many answers of Prometheus from now on that are passes, or that are none: what the operator makes of them it has made
    /// of all but the last. How it looks then.
    async fn until_answered(&self, count: usize, are_passes: bool) -> Arc<World> {
        let start = Timestamp::now();
        let counts = |asked: &&Asked| asked.at > start && asked.has_passed() == are_passes;
        let what = format!("{count} answers, passes: {are_passes}");
        eventually(&what, async || self.asked().iter().filter(counts).count() >= count).await;
        self.catch_up().await;
        self.world()
    }

    /// Edits the spec in a way that changes nothing for this rollout: the new deadline.
    async fn edit_something_else(&self) -> Option<i32> {
        let deadline = self.world().rollouts["gate"].spec.progress_deadline_seconds.unwrap_or(80_000) + 1;
        self.configure(&json!({ "progressDeadlineSeconds": deadline })).await;
        Some(deadline)
    }

    /// Waits until the operator has looked at everything again: another spec is observed.
    async fn until_looked_at_again(&self) -> Arc<World> {
        let deadline = self.edit_something_else().await;
        let observed = |world: &World| {
            let gate = &world.rollouts["gate"];
            let observed = gate.status.as_ref().and_then(|status| status.observed_generation);
            gate.spec.progress_deadline_seconds == deadline && observed == gate.metadata.generation
        };
        self.until("looked at again", observed).await
    }

    /// The end of a scenario ([`Scene::end`]): and whatever people wrote, the owner wrote.
    async fn end(self) {
        let entries = self.ground.cluster.audit_log().entries_in(&self.namespace).expect("the audit log can be read");
        let is_setting = |resource: &str| ["namespaces", "roles", "rolebindings"].contains(&resource);
        let others: Vec<_> = entries
            .iter()
            .filter(|entry| entry.is_write() && entry.user == "admin" && !is_setting(&entry.resource))
            .collect();
        assert!(others.is_empty(), "{others:#?}");
        assert!(entries.iter().any(|entry| entry.is_write() && entry.user == OWNER && entry.code < 300));
        self.scene.end().await;
    }
}

/// What the owner of an application may do in its namespace: a role, and its binding.
fn rights() -> [Value; 2] {
    let group = "rbac.authorization.k8s.io";
    let all = ["get", "list", "watch", "create", "patch", "delete"];
    let role = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": { "name": "owner" },
        "rules": [
            { "apiGroups": ["apps"], "resources": ["statefulsets"], "verbs": all },
            { "apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["get", "list"] },
            { "apiGroups": ["sts.plus"], "resources": ["phasedrollouts"], "verbs": all },
            { "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch", "delete"] },
            { "apiGroups": [""], "resources": ["resourcequotas"], "verbs": all },
        ],
    });
    let binding = json!({
        "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": { "name": "owner" },
        "roleRef": { "apiGroup": group, "kind": "Role", "name": "owner" },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": OWNER }],
    });
    [role, binding]
}

/// The images of the pods from index 0 up.
fn images(world: &World) -> Vec<&str> {
    world.pods.values().map(image_of).collect()
}

/// Notes of events and messages of statuses so far.
async fn words(scene: &Scene) -> Vec<String> {
    let notes = scene.events().await.into_iter().filter_map(|event| event.note);
    let entries = scene.tape.entries();
    let messages = entries.iter().filter_map(|entry| match &entry.seen {
        Seen::Rollout(gate) => Some(gate.status.as_ref()?.message.clone()),
        _ => None,
    });
    notes.chain(messages).collect()
}

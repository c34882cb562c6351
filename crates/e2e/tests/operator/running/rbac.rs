//! The operator has the rights that it uses, all of them and no others, by the audit log of the API server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sts_plus::rbac::{self, Rights};
use sts_plus_api::{Phase, Reason};
use sts_plus_e2e::{PATIENCE, World, audit, objects};
use testcluster::AuditEntry;

use super::leader::{Field, LEADS, until_logged};

/// Group, resource with its subresource, verb.
type Right = (String, String, String);

#[tokio::test]
async fn every_right_is_used_and_none_is_missing() {
    let field = Field::bare("rights").await;
    let scene = &field.scene;
    scene.create(&objects::secret("credentials", &[("token", "t")])).await;
    scene.create(&objects::set(3)).await;
    let gate = sts_plus_e2e::Scene::quick_gate().await;
    scene.create(&objects::with(gate, "/spec/check/query/secretRef", "credentials")).await;
    let first = field.start("first", &[]);
    until_logged(&first, LEADS).await;
    let second = field.start("second", &[]);
    until_logged(&second, "standing by").await;
    field.until_rest("app:1").await;

    scene.release("app:2").await;
    scene.until("complete", |world| world.is_complete("app:2")).await;
    scene.release("app:3-broken").await;
    let failed = |world: &World| world.image("web-2") == "app:3-broken" && world.is(Phase::Failed);
    scene.until("the release has failed", failed).await;
    scene.release("app:4").await;
    scene.until("complete", |world| world.is_complete("app:4")).await;
    upgrade_versions(scene).await;
    scene.kubectl_ok(&["delete", "phasedrollout", "gate"], "").await;
    scene.until("gone", |world| world.rollouts.is_empty()).await;
    scene.until_events(Reason::Released, 1).await;
    assert!(first.stop().await.success());
    until_logged(&second, LEADS).await;
    assert!(second.stop().await.success());

    let granted = granted();
    let unused = || {
        // A watch is in the log when it has ended.
        let used = used(&requests(&field));
        let unused = granted.difference(&used).filter(|right| !implied().contains(right));
        unused.cloned().collect::<Vec<_>>()
    };
    let ended = Instant::now() + PATIENCE;
    while !unused().is_empty() {
        assert!(Instant::now() < ended, "granted and never used: {:?}", unused());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let refused: Vec<_> = requests(&field).into_iter().filter(|entry| entry.code == 403).collect();
    assert!(refused.is_empty(), "{refused:?}");
    field.end().await;
}

/// What the operators of this scenario asked for, and those of all for what is in no namespace: one namespace of others may be on its way
/// out, where nobody can make anything.
fn requests(field: &Field) -> Vec<Arc<AuditEntry>> {
    let is_ours = |entry: &Arc<AuditEntry>| {
        entry.user == rbac::user_name(rbac::NAMESPACE)
            && (entry.namespace == field.scene.namespace || entry.namespace.is_empty())
    };
    field.requests_everywhere().into_iter().filter(is_ours).collect()
}

/// Versions with a Service; zones, which no node carries here.
async fn upgrade_versions(scene: &sts_plus_e2e::Scene) {
    scene.create(&objects::service("live")).await;
    let db = objects::with(objects::extended("db"), "/spec/updateStrategy/activeService", "live");
    scene.create(&db).await;
    scene.create(&objects::with(objects::extended("zoned"), "/spec/az", json!(["nowhere"]))).await;
    let is_on = |image: &'static str, pod: &'static str| move |world: &World| world.is_ready_on(pod, image);
    scene.until("version 1 is there", is_on("app:1", "db-v1-0")).await;
    let next = objects::with(db, "/spec/template/spec/template/spec/containers/0/image", "app:2");
    assert!(scene.apply(&next).await.ok);
    scene
        .until("version 2 alone", |world| world.is_ready_on("db-v2-0", "app:2") && !world.sets.contains_key("db-v1"))
        .await;
    scene.kubectl_ok(&["delete", "ests", "db"], "").await;
}

/// Rights that the API server asks for without a word in the audit log: to make something by server-side apply, and to let an owner
/// reference block the deletion of its owner (where the admission plugin `OwnerReferencesPermissionEnforcement` is on).
fn implied() -> BTreeSet<Right> {
    let right = |group: &str, resource: &str, verb: &str| (group.to_owned(), resource.to_owned(), verb.to_owned());
    BTreeSet::from([
        right("apps", "statefulsets", "create"),
        right("fissile.cloudfoundry.org", "extendedstatefulsets/finalizers", "update"),
    ])
}

fn granted() -> BTreeSet<Right> {
    let objects = Rights::everywhere(rbac::NAMESPACE).objects();
    let rules = objects.iter().filter_map(|role| role["rules"].as_array()).flatten();
    let mut rights = BTreeSet::new();
    for rule in rules {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                rights
                    .extend(texts(&rule["verbs"]).map(|verb| (group.to_owned(), resource.to_owned(), verb.to_owned())));
            }
        }
    }
    assert!(rights.len() > 10, "{rights:?}");
    rights
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

fn used(requests: &[Arc<AuditEntry>]) -> BTreeSet<Right> {
    let done = requests.iter().filter(|entry| entry.code < 300);
    done.map(|entry| (entry.group.clone(), audit::full_name(entry), entry.verb.clone())).collect()
}

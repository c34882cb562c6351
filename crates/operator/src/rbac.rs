//! Who the operator is and what it may do: its service account, its roles with only the verbs that it uses, and their bindings. The
//! cluster role is for what it works on, the role in its own namespace for the election. No IO.

use serde_json::{Value, json};

use crate::admission;

/// Name of the service account, the role and the binding.
pub const NAME: &str = "sts-plus";
/// The namespace in which the operator lives unless told otherwise.
pub const NAMESPACE: &str = "sts-plus-system";

/// The user name of the operator's service account, as the API server sees it.
#[must_use]
pub fn user_name(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{NAME}")
}

/// Service account, role and binding. `identities` are further user names under which an operator outside the cluster works.
#[must_use]
pub fn objects(namespace: &str, identities: &[String]) -> Vec<Value> {
    let mut objects = vec![service_account(namespace), cluster_role(), cluster_role_binding(namespace, identities)];
    objects.extend(lease_objects(namespace, namespace, identities));
    objects
}

/// The right to be elected over the Lease in `lease_namespace`, for the operator that lives in `namespace`.
#[must_use]
pub fn lease_objects(lease_namespace: &str, namespace: &str, identities: &[String]) -> Vec<Value> {
    let metadata = json!({ "name": NAME, "namespace": lease_namespace, "labels": crate::manifests::labels() });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": metadata,
        "rules": [
            // A right to create cannot be bound to a name.
            rule("coordination.k8s.io", &["leases"], &["create"]),
            named_rule("coordination.k8s.io", &["leases"], &["get", "watch", "update"], &[NAME]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME },
        "subjects": subjects(namespace, identities),
    });
    vec![role, binding]
}

fn service_account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": NAME, "namespace": namespace, "labels": crate::manifests::labels() },
    })
}

fn cluster_role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": { "name": NAME, "labels": crate::manifests::labels() },
        "rules": [
            rule("sts.plus", &["phasedrollouts"], &["get", "list", "watch", "patch"]),
            rule("sts.plus", &["phasedrollouts/status"], &["patch"]),
            rule("fissile.cloudfoundry.org", &["extendedstatefulsets"], &["get", "list", "watch", "patch"]),
            rule("fissile.cloudfoundry.org", &["extendedstatefulsets/status"], &["patch"]),
            // An owner reference that blocks the deletion of its owner needs it where that is enforced.
            rule("fissile.cloudfoundry.org", &["extendedstatefulsets/finalizers"], &["update"]),
            // Whether it is being deleted, and every ExtendedStatefulSet with it.
            named_rule(
                "apiextensions.k8s.io",
                &["customresourcedefinitions"],
                &["get"],
                &["extendedstatefulsets.fissile.cloudfoundry.org"],
            ),
            rule("apps", &["statefulsets"], &["get", "list", "watch", "create", "patch", "delete"]),
            rule("apps", &["controllerrevisions"], &["list", "create", "delete"]),
            rule("", &["services"], &["get", "list", "watch", "patch"]),
            rule("", &["nodes"], &["list"]),
            rule("", &["pods"], &["list", "watch", "delete"]),
            rule("", &["secrets"], &["get"]),
            rule("", &["events"], &["list", "watch"]),
            rule("events.k8s.io", &["events"], &["create"]),
            named_rule(
                "admissionregistration.k8s.io",
                &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
                &["list", "watch"],
                &admission::MUTATING,
            ),
            named_rule(
                "admissionregistration.k8s.io",
                &["validatingadmissionpolicies", "validatingadmissionpolicybindings"],
                &["list", "watch"],
                &[admission::HOLD],
            ),
        ],
    })
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// A rule for objects of these names only; list and watch then need a field selector on the name.
fn named_rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names })
}

fn cluster_role_binding(namespace: &str, identities: &[String]) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": NAME, "labels": crate::manifests::labels() },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
        "subjects": subjects(namespace, identities),
    })
}

fn subjects(namespace: &str, identities: &[String]) -> Vec<Value> {
    let account = json!({ "kind": "ServiceAccount", "name": NAME, "namespace": namespace });
    let users =
        identities.iter().map(|name| json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name }));
    std::iter::once(account).chain(users).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_role_has_no_wildcard_and_reads_secrets_only_by_name() {
        let role = cluster_role();
        assert!(!role.to_string().contains("\"*\""));
        let secrets = role["rules"].as_array().unwrap().iter().find(|rule| rule["resources"][0] == "secrets").unwrap();
        assert_eq!(secrets["verbs"], json!(["get"]));
    }

    #[test]
    fn an_identity_outside_the_cluster_is_bound_to_the_role() {
        let binding = cluster_role_binding(NAMESPACE, &["jane".to_owned()]);
        assert_eq!(binding["subjects"][0]["name"], NAME);
        assert_eq!(binding["subjects"][1]["name"], "jane");
    }
}

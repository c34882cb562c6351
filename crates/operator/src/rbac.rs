//! Who the operator is and what it may do: its service account, its role with only the verbs that it uses, and the binding. No IO.

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
    vec![service_account(namespace), cluster_role(), cluster_role_binding(namespace, identities)]
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
            rule("apps", &["statefulsets"], &["get", "list", "watch", "patch"]),
            rule("", &["pods"], &["get", "list", "watch", "delete"]),
            rule("", &["secrets"], &["get"]),
            rule("events.k8s.io", &["events"], &["create"]),
            named_rule(
                "admissionregistration.k8s.io",
                &["mutatingadmissionpolicies", "mutatingadmissionpolicybindings"],
                &["get", "list", "watch"],
                &admission::MUTATING,
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
    let account = json!({ "kind": "ServiceAccount", "name": NAME, "namespace": namespace });
    let users =
        identities.iter().map(|name| json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name }));
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": { "name": NAME, "labels": crate::manifests::labels() },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME },
        "subjects": std::iter::once(account).chain(users).collect::<Vec<_>>(),
    })
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

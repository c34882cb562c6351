//! Who the operator is and what it may do: its service account, its roles with only the verbs that it uses, and their bindings. What it
//! works on it reaches by the cluster role, or, where it works in some namespaces only, by a role in each of these; then the cluster role
//! has what is in no namespace and nothing of a user. The role in its own namespace is for the election. No IO.

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

/// The name of the role and the binding in a namespace in which the operator works.
pub const WORKLOADS: &str = "sts-plus-workloads";

/// Whom the rights are for, and where.
#[derive(Clone, Copy, Debug)]
pub struct Rights<'a> {
    /// The namespace in which the operator lives.
    pub namespace: &'a str,
    /// Further user names under which an operator outside the cluster works.
    pub identities: &'a [String],
    /// The namespaces in which it works. Empty: all.
    pub watched: &'a [String],
    /// The name of the Lease over which it is elected.
    pub lease: &'a str,
}

impl<'a> Rights<'a> {
    /// To work in all namespaces, for the operator that lives in `namespace`.
    #[must_use]
    pub fn everywhere(namespace: &'a str) -> Self {
        Self { namespace, identities: &[], watched: &[], lease: NAME }
    }

    /// Service account, roles and bindings.
    #[must_use]
    pub fn objects(self) -> Vec<Value> {
        let mut objects = vec![service_account(self.namespace)];
        objects.extend(self.role("ClusterRole", NAME, None, &self.cluster_rules()));
        for namespace in self.watched {
            objects.extend(self.role("Role", WORKLOADS, Some(namespace), &workloads()));
        }
        objects.extend(self.lease_objects(self.namespace));
        objects
    }

    /// The right to be elected over the Lease in `namespace`.
    #[must_use]
    pub fn lease_objects(self, namespace: &str) -> [Value; 2] {
        let rules = [
            // A right to create cannot be bound to a name.
            rule("coordination.k8s.io", &["leases"], &["create"]),
            named_rule("coordination.k8s.io", &["leases"], &["get", "watch", "update"], &[self.lease]),
        ];
        self.role("Role", NAME, Some(namespace), &rules)
    }

    fn cluster_rules(self) -> Vec<Value> {
        let mut rules = if self.watched.is_empty() { workloads() } else { Vec::new() };
        rules.extend(of_the_cluster());
        rules
    }

    /// A role and its binding.
    fn role(self, kind: &str, name: &str, namespace: Option<&str>, rules: &[Value]) -> [Value; 2] {
        let mut metadata = json!({ "name": name, "labels": crate::manifests::labels() });
        if let (Some(namespace), Some(metadata)) = (namespace, metadata.as_object_mut()) {
            metadata.insert("namespace".to_owned(), namespace.into());
        }
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": rules,
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": format!("{kind}Binding"),
            "metadata": metadata,
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name },
            "subjects": self.subjects(),
        });
        [role, binding]
    }

    fn subjects(self) -> Vec<Value> {
        let account = json!({ "kind": "ServiceAccount", "name": NAME, "namespace": self.namespace });
        let user = |name| json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name });
        std::iter::once(account).chain(self.identities.iter().map(user)).collect()
    }
}

fn service_account(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": { "name": NAME, "namespace": namespace, "labels": crate::manifests::labels() },
    })
}

/// What belongs to users and what is made for them, all of it in namespaces.
fn workloads() -> Vec<Value> {
    vec![
        rule("sts.plus", &["phasedrollouts"], &["get", "list", "watch", "patch"]),
        rule("sts.plus", &["phasedrollouts/status"], &["patch"]),
        rule("fissile.cloudfoundry.org", &["extendedstatefulsets"], &["get", "list", "watch", "patch"]),
        rule("fissile.cloudfoundry.org", &["extendedstatefulsets/status"], &["patch"]),
        // An owner reference that blocks the deletion of its owner needs it where that is enforced.
        rule("fissile.cloudfoundry.org", &["extendedstatefulsets/finalizers"], &["update"]),
        rule("apps", &["statefulsets"], &["get", "list", "watch", "create", "patch", "delete"]),
        rule("apps", &["controllerrevisions"], &["list", "create", "delete"]),
        rule("", &["services"], &["get", "list", "watch", "patch"]),
        rule("", &["pods"], &["list", "watch", "delete"]),
        rule("", &["secrets"], &["get"]),
        rule("", &["events"], &["list", "watch"]),
        rule("events.k8s.io", &["events"], &["create"]),
    ]
}

/// What is in no namespace.
fn of_the_cluster() -> [Value; 4] {
    [
        // Whether it is being deleted, and every ExtendedStatefulSet with it.
        named_rule(
            "apiextensions.k8s.io",
            &["customresourcedefinitions"],
            &["get"],
            &["extendedstatefulsets.fissile.cloudfoundry.org"],
        ),
        // Which zones there are.
        rule("", &["nodes"], &["list"]),
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
    ]
}

fn rule(group: &str, resources: &[&str], verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs })
}

/// A rule for objects of these names only; list and watch then need a field selector on the name.
fn named_rule(group: &str, resources: &[&str], verbs: &[&str], names: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": resources, "verbs": verbs, "resourceNames": names })
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVERYWHERE: Rights<'static> = Rights { namespace: NAMESPACE, identities: &[], watched: &[], lease: NAME };

    fn some() -> Vec<Value> {
        let watched = ["shop".to_owned(), NAMESPACE.to_owned()];
        Rights { watched: &watched, lease: "ours", ..EVERYWHERE }.objects()
    }

    fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
        objects.iter().filter(|object| object["kind"] == kind).collect()
    }

    fn resources(role: &Value) -> Vec<&str> {
        let rules = role["rules"].as_array().unwrap();
        rules.iter().flat_map(|rule| rule["resources"].as_array().unwrap()).map(|it| it.as_str().unwrap()).collect()
    }

    #[test]
    fn no_role_has_a_wildcard_and_secrets_are_read_only_by_name() {
        for objects in [EVERYWHERE.objects(), some()] {
            assert!(!json!(objects).to_string().contains("\"*\""));
            let rules = objects.iter().filter_map(|object| object["rules"].as_array()).flatten();
            let secrets: Vec<_> = rules.filter(|rule| rule["resources"] == json!(["secrets"])).collect();
            assert!(!secrets.is_empty() && secrets.iter().all(|rule| rule["verbs"] == json!(["get"])));
        }
    }

    #[test]
    fn an_identity_outside_the_cluster_is_bound_to_each_role() {
        let (identities, watched) = (["jane".to_owned()], ["shop".to_owned()]);
        let objects = Rights { identities: &identities, watched: &watched, ..EVERYWHERE }.objects();
        let bindings = [of_kind(&objects, "ClusterRoleBinding"), of_kind(&objects, "RoleBinding")].concat();
        assert_eq!(bindings.len(), 3);
        for binding in bindings {
            assert_eq!(
                (&binding["subjects"][0]["name"], &binding["subjects"][1]["name"]),
                (&json!(NAME), &json!("jane"))
            );
        }
    }

    #[test]
    fn for_some_namespaces_the_cluster_role_reaches_no_object_of_a_user() {
        let objects = some();
        let [cluster] = of_kind(&objects, "ClusterRole")[..] else { panic!("{objects:?}") };
        assert_eq!(
            resources(cluster),
            [
                "customresourcedefinitions",
                "nodes",
                "mutatingadmissionpolicies",
                "mutatingadmissionpolicybindings",
                "validatingadmissionpolicies",
                "validatingadmissionpolicybindings"
            ]
        );
        let verbs = json!(cluster["rules"].as_array().unwrap().iter().map(|rule| &rule["verbs"]).collect::<Vec<_>>());
        assert_eq!(verbs, json!([["get"], ["list"], ["list", "watch"], ["list", "watch"]]), "it writes nothing");
    }

    #[test]
    fn what_the_roles_of_some_namespaces_lack_of_that_of_all_is_in_no_namespace() {
        let (all, some) = (EVERYWHERE.objects(), some());
        let whole = of_kind(&all, "ClusterRole")[0]["rules"].as_array().unwrap().clone();
        let cluster = of_kind(&some, "ClusterRole")[0]["rules"].as_array().unwrap().clone();
        let places = of_kind(&some, "Role").into_iter().filter(|role| role["metadata"]["name"] == WORKLOADS);
        let places: Vec<_> =
            places.map(|role| (role["metadata"]["namespace"].clone(), role["rules"].clone())).collect();
        assert_eq!(places.iter().map(|(place, _)| place).collect::<Vec<_>>(), ["shop", NAMESPACE]);
        for (_, rules) in places {
            assert_eq!([rules.as_array().unwrap().clone(), cluster.clone()].concat(), whole);
        }
    }

    #[test]
    fn the_role_of_the_election_names_the_lease() {
        let objects = some();
        let roles = of_kind(&objects, "Role");
        let lease = roles.iter().find(|role| role["metadata"]["name"] == NAME).unwrap();
        assert_eq!(lease["metadata"]["namespace"], NAMESPACE);
        assert_eq!(lease["rules"][1]["resourceNames"], json!(["ours"]));
    }
}

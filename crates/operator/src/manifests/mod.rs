//! What gets installed, as objects and as YAML. `crds` and `manifests` of the command line print it, the files under `deploy/`
//! are its output (a test fails when they differ), and tests install it. No IO.

mod deployment;
mod yaml;

use serde_json::{Value, json};

use crate::rbac::Rights;
use crate::{admission, rbac};

pub use yaml::{Error, to_yaml};

/// What an installation can vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Namespace of the operator and of its service account.
    pub namespace: String,
    /// User names of operators outside the cluster: bound to the role and left alone by the admission policies.
    pub identities: Vec<String>,
    /// Image of the operator. Missing: no Deployment, the operator is started by hand.
    pub image: Option<String>,
    /// The namespaces in which it works: its rights over their objects are roles in them. Empty: all.
    pub watched: Vec<String>,
    /// Name of the Lease over which it is elected.
    pub lease: String,
    /// More flags of `run`.
    pub run: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: rbac::NAMESPACE.to_owned(),
            identities: Vec::new(),
            image: None,
            watched: Vec::new(),
            lease: rbac::NAME.to_owned(),
            run: Vec::new(),
        }
    }
}

/// The custom resource definitions.
///
/// # Errors
///
/// If one cannot be written as JSON, which is a bug.
pub fn crds() -> Result<Vec<Value>, Error> {
    sts_plus_api::crds()
        .into_iter()
        .map(|mut crd| {
            crd.metadata.labels = serde_json::from_value(labels()).ok();
            Ok(serde_json::to_value(crd)?)
        })
        .collect()
}

/// Everything, in an order that one `kubectl apply -f -` can take: what others need comes first. The birth policy names the kind
/// PhasedRollout, which the API server looks up again until it is served.
///
/// # Errors
///
/// As [`crds`].
pub fn render(options: &Options) -> Result<Vec<Value>, Error> {
    let mut operators = vec![rbac::user_name(&options.namespace)];
    operators.extend(options.identities.iter().filter(|name| !name.is_empty()).cloned());
    operators.dedup();
    let rights = Rights {
        namespace: &options.namespace,
        identities: operators.get(1..).unwrap_or_default(),
        watched: &options.watched,
        lease: &options.lease,
    };
    let mut objects = vec![namespace(&options.namespace)];
    objects.extend(crds()?);
    objects.extend(rights.objects());
    objects.extend(admission::policies(&operators));
    objects.extend(operator(options));
    Ok(objects)
}

/// What runs the operator in the cluster: everything else must be there before. Nothing without an image.
#[must_use]
pub fn operator(options: &Options) -> Vec<Value> {
    options.image.iter().flat_map(|image| deployment::objects(&options.namespace, image, &flags(options))).collect()
}

/// What `run` is to know.
fn flags(options: &Options) -> Vec<String> {
    let mut flags = vec!["--leader-elect".to_owned()];
    if options.lease != rbac::NAME {
        flags.push(format!("--leader-elect-name={}", options.lease));
    }
    flags.extend(options.watched.iter().map(|namespace| format!("--namespace={namespace}")));
    flags.extend(options.run.iter().cloned());
    flags
}

/// The label that every object has which gets installed; its value is [`rbac::NAME`].
pub const PART_OF: &str = "app.kubernetes.io/part-of";

/// The labels of every object that gets installed.
pub(crate) fn labels() -> Value {
    json!({ "app.kubernetes.io/name": rbac::NAME, PART_OF: rbac::NAME })
}

/// The namespace, closed for every pod that is not restricted.
fn namespace(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "labels": {
                "app.kubernetes.io/name": rbac::NAME,
                PART_OF: rbac::NAME,
                "pod-security.kubernetes.io/enforce": "restricted",
                "pod-security.kubernetes.io/audit": "restricted",
                "pod-security.kubernetes.io/warn": "restricted",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(options: &Options) -> Vec<String> {
        let objects = render(options).unwrap();
        objects
            .iter()
            .map(|object| {
                format!("{} {}", object["kind"].as_str().unwrap(), object["metadata"]["name"].as_str().unwrap())
            })
            .collect()
    }

    #[test]
    fn everything_is_there_and_what_others_need_comes_first() {
        assert_eq!(
            kinds(&Options::default()),
            [
                "Namespace sts-plus-system",
                "CustomResourceDefinition phasedrollouts.sts.plus",
                "CustomResourceDefinition extendedstatefulsets.fissile.cloudfoundry.org",
                "ServiceAccount sts-plus",
                "ClusterRole sts-plus",
                "ClusterRoleBinding sts-plus",
                "Role sts-plus",
                "RoleBinding sts-plus",
                "MutatingAdmissionPolicy sts-plus-hold",
                "MutatingAdmissionPolicyBinding sts-plus-hold",
                "MutatingAdmissionPolicy sts-plus-birth",
                "MutatingAdmissionPolicyBinding sts-plus-birth",
                "MutatingAdmissionPolicy sts-plus-replicas",
                "MutatingAdmissionPolicyBinding sts-plus-replicas",
                "ValidatingAdmissionPolicy sts-plus-hold",
                "ValidatingAdmissionPolicyBinding sts-plus-hold",
                "ValidatingAdmissionPolicy sts-plus-birth",
                "ValidatingAdmissionPolicyBinding sts-plus-birth",
                "ValidatingAdmissionPolicy sts-plus-hold-warning",
                "ValidatingAdmissionPolicyBinding sts-plus-hold-warning",
                "ValidatingAdmissionPolicy sts-plus-hold-type",
                "ValidatingAdmissionPolicyBinding sts-plus-hold-type",
            ]
        );
    }

    #[test]
    fn a_deployment_is_there_only_with_an_image() {
        let options = Options { image: Some("registry.example/sts-plus:1".to_owned()), ..Options::default() };
        assert!(
            kinds(&options).ends_with(&["Deployment sts-plus".to_owned(), "PodDisruptionBudget sts-plus".to_owned()])
        );
        assert!(!kinds(&Options::default()).iter().any(|kind| kind.starts_with("Deployment")));
    }

    /// Each with a namespace, and with the flags of `run` where there are any.
    #[test]
    fn for_some_namespaces_there_are_roles_and_the_operator_is_told() {
        let options = Options {
            image: Some("registry.example/sts-plus:1".to_owned()),
            watched: vec!["a".to_owned(), "b".to_owned()],
            lease: "ours".to_owned(),
            run: vec!["--require-labelled-secrets".to_owned()],
            ..Options::default()
        };
        let objects = render(&options).unwrap();
        let place = |object: &Value| object["metadata"]["namespace"].as_str().map(str::to_owned);
        let roles: Vec<_> = objects.iter().filter(|object| object["kind"] == "RoleBinding").filter_map(place).collect();
        assert_eq!(roles, ["a", "b", "sts-plus-system"]);
        let deployment = objects.iter().find(|object| object["kind"] == "Deployment").unwrap();
        let args = &deployment["spec"]["template"]["spec"]["containers"][0]["args"];
        let flags = ["--leader-elect-name=ours", "--namespace=a", "--namespace=b", "--require-labelled-secrets"];
        assert_eq!(args, &json!([&["run", "--leader-elect"], &flags[..]].concat()));
        let plain = operator(&Options { image: options.image, ..Options::default() });
        assert_eq!(plain[0]["spec"]["template"]["spec"]["containers"][0]["args"], json!(["run", "--leader-elect"]));
    }

    #[test]
    fn an_identity_is_left_alone_by_the_policies_also_with_odd_characters() {
        let options = Options { identities: vec!["o'neil \"x\"".to_owned()], ..Options::default() };
        let text = render(&options).unwrap().iter().map(Value::to_string).collect::<String>();
        assert!(text.contains("system:serviceaccount:sts-plus-system:sts-plus"));
        let policy =
            render(&options).unwrap().into_iter().find(|object| object["kind"] == "MutatingAdmissionPolicy").unwrap();
        let condition = policy["spec"]["matchConditions"][1]["expression"].as_str().unwrap();
        assert!(
            condition.contains(r#"in ["system:serviceaccount:sts-plus-system:sts-plus","o'neil \"x\""]"#),
            "{condition}"
        );
    }
}

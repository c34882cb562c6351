//! The folder of a cluster: which file is where, and the files that its components read before they start.

use std::{
    fs,
    os::unix::fs::{DirBuilderExt as _, symlink},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::builder::User;

/// Names of the files in the folder of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Makes the folders; only the owner may look in, since keys and tokens are kept here.
    pub(crate) fn create(&self) -> anyhow::Result<()> {
        for dir in ["", "bin", "config", "data", "logs", "pki", "users"] {
            let dir = self.root.join(dir);
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .with_context(|| format!("cannot make {}", dir.display()))?;
        }
        Ok(())
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn pki(&self, name: &str) -> PathBuf {
        self.root.join("pki").join(name)
    }

    pub(crate) fn config(&self, name: &str) -> PathBuf {
        self.root.join("config").join(name)
    }

    pub(crate) fn data(&self, name: &str) -> PathBuf {
        self.root.join("data").join(name)
    }

    pub(crate) fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    pub(crate) fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.jsonl")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.root.join("kubeconfig")
    }

    pub(crate) fn user(&self, name: &str) -> PathBuf {
        let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        self.root.join("users").join(format!("{plain}.kubeconfig"))
    }

    pub(crate) fn kubectl(&self) -> PathBuf {
        self.root.join("bin/kubectl")
    }

    pub(crate) fn link_kubectl(&self, binary: &Path) -> anyhow::Result<()> {
        symlink(binary, self.kubectl()).context("cannot link kubectl")
    }

    /// Requests without bodies, once they are answered. Of the components of the cluster only what they write to pods and to what pods
    /// stem from, and how autoscalers look at counts: the rest is most of the log, and nobody asks for it.
    pub(crate) fn write_audit_policy(&self) -> anyhow::Result<()> {
        let components = [
            ("users", json!(["system:apiserver", "system:kube-controller-manager", "system:kube-scheduler", "kwok"])),
            ("userGroups", json!(["system:serviceaccounts:kube-system"])),
        ];
        let of_pods = json!([
            { "group": "", "resources": ["pods", "persistentvolumeclaims", "services"] },
            { "group": "apps", "resources": ["statefulsets"] },
            { "group": "batch", "resources": ["jobs"] },
        ]);
        let writes = json!(["create", "update", "patch", "delete", "deletecollection"]);
        let kept = components
            .iter()
            .map(|(key, who)| json!({ "level": "Metadata", *key: who, "verbs": writes, "resources": of_pods }));
        let scale =
            ["apps", "fissile.cloudfoundry.org"].map(|group| json!({ "group": group, "resources": ["*/scale"] }));
        let scale = json!({ "level": "Metadata", "resources": scale });
        let left_out = components.iter().map(|(key, who)| json!({ "level": "None", *key: who }));
        let probes = json!({ "level": "None", "nonResourceURLs": ["/livez*", "/readyz*"] });
        let rules: Vec<Value> =
            kept.chain([scale]).chain(left_out).chain([probes, json!({ "level": "Metadata" })]).collect();
        let policy = json!({
            "apiVersion": "audit.k8s.io/v1",
            "kind": "Policy",
            "omitStages": ["RequestReceived", "ResponseStarted"],
            "rules": rules,
        });
        fs::write(self.config("audit-policy.json"), policy.to_string())?;
        Ok(())
    }

    pub(crate) fn write_tokens(&self, users: &[User]) -> anyhow::Result<()> {
        let lines: Vec<String> = users
            .iter()
            .map(|user| format!("{},{},{},\"{}\"\n", user.token, user.name, user.name, user.groups.join(",")))
            .collect();
        fs::write(self.config("tokens.csv"), lines.concat())?;
        Ok(())
    }
}

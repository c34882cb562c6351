//! Writes kubeconfig files. They are JSON, which every reader of YAML reads.

use std::{fs, os::unix::fs::OpenOptionsExt as _, path::Path};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

/// Where the server is and how to check that it is the right one.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// `https://127.0.0.1:<port>`.
    pub(crate) url: String,
    /// The certificate authority as PEM.
    pub(crate) ca: String,
}

/// Who asks.
#[derive(Clone, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) token: &'a str,
    /// The user and groups to act as, when the token may impersonate.
    pub(crate) acts_as: Option<(&'a str, &'a [&'a str])>,
}

/// Writes a kubeconfig, readable by its owner only.
pub(crate) fn write(path: &Path, server: &Server, caller: &Caller<'_>) -> anyhow::Result<()> {
    use std::io::Write as _;
    let config = document(server, caller);
    let mut file = fs::File::options()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    file.write_all(serde_json::to_string_pretty(&config)?.as_bytes())?;
    Ok(())
}

fn document(server: &Server, caller: &Caller<'_>) -> Value {
    let mut user = json!({ "token": caller.token });
    if let (Some((name, groups)), Some(fields)) = (caller.acts_as, user.as_object_mut()) {
        fields.insert("as".to_owned(), json!(name));
        fields.insert("as-groups".to_owned(), json!(groups));
    }
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testcluster",
        "clusters": [{ "name": "testcluster", "cluster": {
            "server": server.url,
            "certificate-authority-data": STANDARD.encode(&server.ca),
        }}],
        "contexts": [{ "name": "testcluster", "context": { "cluster": "testcluster", "user": "testcluster" }}],
        "users": [{ "name": "testcluster", "user": user }],
    })
}

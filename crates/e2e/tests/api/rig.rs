//! Where these tests stand: a control plane of each minor with the whole installation on it, shared by all of them.

use std::{fs, path::Path};

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use sts_plus_e2e::{Policies, Scene, SharedGround};
use testcluster::{Builder, Cluster, Minor};

/// The user name of an operator outside the cluster, which the installation is told.
pub const OUTSIDE: &str = "outside-operator";
/// The user name of a person with all rights.
pub const PERSON: &str = "jane";

/// Kubernetes 1.36.
pub static V1_36: SharedGround = SharedGround::new(|| described(Minor::V1_36), Policies::Installed, &[OUTSIDE]);
/// Kubernetes 1.37.
pub static V1_37: SharedGround = SharedGround::new(|| described(Minor::V1_37), Policies::Installed, &[OUTSIDE]);

fn described(minor: Minor) -> Builder {
    Cluster::builder().kubernetes(minor).user(PERSON, &["system:masters"]).user(OUTSIDE, &[])
}

/// A file of the project.
pub fn file(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A person cannot create it, and the answer holds each of these.
pub async fn refused(scene: &Scene, object: &Value, sentences: &[&str]) {
    let error = scene.try_create(object).await.err().unwrap_or_default();
    assert!(!error.is_empty(), "it is accepted: {object}");
    for sentence in sentences {
        assert!(error.contains(sentence), "it is refused without {sentence:?}:\n{error}");
    }
}

/// A person can create it; as it would be stored.
pub async fn accepted(scene: &Scene, object: &Value) -> Value {
    scene.try_create(object).await.unwrap_or_else(|error| panic!("{error}\n{object}"))
}

/// Writes into the status of an object such as `phasedrollout/gate`, as the operator does.
pub async fn reported(scene: &Scene, object: &str, status: &Value) {
    let (kind, name) = object.split_once('/').expect("kind/name");
    let body = Patch::Merge(json!({ "status": status }));
    scene.api(kind).patch_status(name, &PatchParams::default(), &body).await.expect("a status is written");
}

/// Makes a test on 1.36 and one on 1.37 of each `async fn(&'static Ground)`. Those after `in soak on 1.36` have hundreds of requests, and
/// what they are about is the same for both minors: on 1.36 they are for `make soak`.
macro_rules! on_both_minors {
    ($($test:ident),* $(,)? $(; in soak on 1.36: $($table:ident),* $(,)?)?) => {
        mod kubernetes_1_36 {
            $(#[tokio::test] async fn $test() { super::$test(crate::rig::V1_36.get().await).await; })*
            $($(
                #[tokio::test]
                #[ignore = "the table of 1.37, which has hundreds of requests, once more"]
                async fn $table() { super::$table(crate::rig::V1_36.get().await).await; }
            )*)?
        }
        mod kubernetes_1_37 {
            $(#[tokio::test] async fn $test() { super::$test(crate::rig::V1_37.get().await).await; })*
            $($(#[tokio::test] async fn $table() { super::$table(crate::rig::V1_37.get().await).await; })*)?
        }
    };
}
pub(crate) use on_both_minors;

//! What is read from outside, fed with anything. Each target takes bytes, runs what the operator would run on them, and asserts what
//! must hold whatever they are. libFuzzer searches for bytes that break it (`scripts/fuzz`); the test `corpus` runs what it found so
//! far, without an engine. Nothing of this is shipped.

#![allow(clippy::panic, clippy::expect_used, clippy::indexing_slicing, reason = "a panic is how a target reports")]

pub mod answer;
mod draw;
pub mod pod;
pub mod refusal;
pub mod rollout;
pub mod set;
pub mod state;
pub mod substitution;
pub mod url;
pub mod versions;
mod world;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// One parser and what must hold for it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics if `bytes` break something.
    pub run: fn(bytes: &[u8]),
}

/// Every target.
pub const TARGETS: [Target; 9] = [
    Target { name: "rollout", run: rollout::run },
    Target { name: "state", run: state::run },
    Target { name: "answer", run: answer::run },
    Target { name: "substitution", run: substitution::run },
    Target { name: "url", run: url::run },
    Target { name: "set", run: set::run },
    Target { name: "pod", run: pod::run },
    Target { name: "refusal", run: refusal::run },
    Target { name: "versions", run: versions::run },
];

/// An object as JSON or YAML.
fn object<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    if bytes.first() == Some(&b'{') {
        return serde_json::from_slice(bytes).ok();
    }
    let value: Value = serde_saphyr::from_str(std::str::from_utf8(bytes).ok()?).ok()?;
    serde_json::from_value(value).ok()
}

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

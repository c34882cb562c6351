//! What users write into an ExtendedStatefulSet, for the `World` of each of the test binaries.

use serde_json::json;
use sts_plus_api::names;

use crate::world::World;

impl World {
    fn wrote(&mut self) {
        self.generation += 1;
    }

    /// Another template.
    pub fn template(&mut self, hash: &str) {
        hash.clone_into(&mut self.hash);
        self.wrote();
    }

    /// A template that the API server refuses.
    pub fn refused_template(&mut self, hash: &str) {
        self.problem = Some("no such field".to_owned());
        self.template(hash);
    }

    pub fn scale(&mut self, replicas: i32) {
        self.spec["template"]["spec"]["replicas"] = json!(replicas);
        self.wrote();
    }

    pub fn pause(&mut self, is_paused: bool) {
        self.spec["paused"] = json!(is_paused);
        self.wrote();
    }

    pub fn zones(&mut self, zones: &[&str]) {
        self.spec["az"] = json!(zones);
        self.wrote();
    }

    /// One field of `spec.updateStrategy`.
    pub fn strategy(&mut self, field: &str, value: &serde_json::Value) {
        self.spec["updateStrategy"][field] = value.clone();
        self.wrote();
    }

    /// Annotations are no new generation.
    pub fn retry(&mut self, value: &str) {
        self.annotations.insert(names::RETRY_VERSION.to_owned(), value.to_owned());
    }
}

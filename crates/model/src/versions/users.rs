//! What people, their tools, and accidents do.

use sts_plus_api::ExtendedStatefulSetSpec;

use super::{
    World,
    world::{BY_HAND, number},
};
use crate::{Shared, tale::Deed, world::Set};

impl World {
    /// Tells what a person did.
    fn user(&mut self, what: &str) {
        self.native.tell(Deed::User(what.to_owned()));
    }

    /// Another template.
    pub fn edit(&mut self, template: u32) {
        self.user(&format!("template {template}"));
        self.owner.edit(template);
    }

    /// Another number of replicas.
    pub fn scale(&mut self, replicas: i32) {
        self.user(&format!("replicas {replicas}"));
        self.owner.scale(replicas);
    }

    /// Another list of zones.
    pub fn zones(&mut self, zones: &[&str]) {
        self.user(&format!("zones {zones:?}"));
        self.owner.write(|spec| spec.az = zones.iter().map(|zone| (*zone).to_owned()).collect());
    }

    /// Another field of the spec.
    pub fn configure(&mut self, what: &str, change: impl FnOnce(&mut ExtendedStatefulSetSpec)) {
        self.user(what);
        self.owner.write(change);
    }

    /// The retry annotation.
    pub fn retry(&mut self, token: &str) {
        self.user(&format!("retry {token}"));
        self.owner.retry(token);
    }

    /// A hand at a StatefulSet; the admission policies have their word.
    pub fn edit_set(&mut self, name: &str, what: &str, change: impl FnOnce(&mut Set)) {
        self.native.edit(name, &format!("{name}: {what}"), change);
    }

    /// An image that the template does not say.
    pub fn edit_image(&mut self, name: &str) {
        let Some(version) = self.marks.get(name).map(|marks| marks.version) else { return };
        self.native.set_template(name, number(version, BY_HAND));
    }

    /// Its pods go with it.
    pub fn delete_set(&mut self, name: &str) {
        self.user(&format!("deletes StatefulSet {name}"));
        self.native.sets.remove(name);
        self.native.ledger.forget(name);
        self.marks.remove(name);
    }

    /// A hand empties the status.
    pub fn lose_status(&mut self) {
        self.user("empties the status");
        self.status = Shared::default();
        self.status_version += 1;
    }
}

//! What users do to StatefulSets.

use super::world::World;

impl World {
    /// Its pods go with it.
    pub fn delete_child(&mut self, name: &str) {
        self.children.retain(|child| child.name != name);
    }

    pub fn scale_child(&mut self, name: &str, replicas: i32) {
        for child in self.children.iter_mut().filter(|child| child.name == name) {
            child.replicas = replicas;
            child.generation += 1;
        }
    }
}

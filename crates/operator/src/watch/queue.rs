//! Who is to look again, and why.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use kube::Resource;
use kube::runtime::reflector::ObjectRef;

/// Where the streams, and others, ask for a look at objects of one kind.
pub struct Queue<K: Resource<DynamicType = ()>> {
    to: UnboundedSender<ObjectRef<K>>,
    /// Until the look.
    why: Arc<Mutex<HashMap<ObjectRef<K>, &'static str>>>,
}

impl<K: Resource<DynamicType = ()>> Clone for Queue<K> {
    fn clone(&self) -> Self {
        Self { to: self.to.clone(), why: Arc::clone(&self.why) }
    }
}

impl<K: Resource<DynamicType = ()>> Queue<K> {
    /// An empty one, and where it comes out.
    #[must_use]
    pub fn new() -> (Self, UnboundedReceiver<ObjectRef<K>>) {
        let (to, from) = mpsc::unbounded();
        (Self { to, why: Arc::default() }, from)
    }

    /// Asks for a look at each object, once until the look. The receiver goes only when the operator stops.
    pub fn ask(&self, objects: impl IntoIterator<Item = ObjectRef<K>>, why: &'static str) {
        let mut all = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        for object in objects {
            if all.insert(object.clone(), why).is_none() {
                let _ = self.to.unbounded_send(object);
            }
        }
    }

    /// Why it was asked for a look at this object since the last one, which is now. Nothing if its time has come.
    #[must_use]
    pub fn why(&self, object: &ObjectRef<K>) -> Option<&'static str> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner).remove(object)
    }
}

#[cfg(test)]
mod tests {
    use sts_plus_api::PhasedRollout;

    use super::*;

    #[test]
    fn the_reason_is_there_until_the_look() {
        let (queue, mut asked) = Queue::<PhasedRollout>::new();
        let web = ObjectRef::new("web").within("ns");
        queue.ask([web.clone(), web.clone()], "Pods");
        assert_eq!(asked.try_recv().unwrap(), web);
        assert!(asked.try_recv().is_err(), "one look is enough");
        assert_eq!((queue.why(&web), queue.why(&web)), (Some("Pods"), None));
    }
}

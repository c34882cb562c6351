//! The ExtendedStatefulSet as a decision sees it.

use kube::ResourceExt as _;
use sts_plus_api::{ExtendedStatefulSet, names};
use sts_plus_decide::OwnerView;

/// What a decision looks at.
#[must_use]
pub fn owner_view(owner: &ExtendedStatefulSet) -> OwnerView {
    let meta = &owner.metadata;
    OwnerView {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        generation: meta.generation.unwrap_or_default(),
        deleting: meta.deletion_timestamp.is_some(),
        has_finalizer: owner.finalizers().iter().any(|finalizer| finalizer == names::FINALIZER_VERSIONS),
        annotations: meta.annotations.clone().unwrap_or_default(),
        spec: owner.spec.clone(),
        status: owner.status.clone().unwrap_or_default(),
    }
}

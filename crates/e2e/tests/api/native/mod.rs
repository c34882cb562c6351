//! How the native StatefulSet controller behaves under a partition: the facts that the operator relies on (docs/native-statefulset.md),
//! each on Kubernetes 1.36 and 1.37 with the feature gate `MaxUnavailableStatefulSet` on and off, without our operator.

mod birth;
mod broken;
mod place;
mod roll;
mod status;
mod writes;

use place::{Place, everywhere};

//! `spec.updateStrategy.rollingUpdate.partition` of a StatefulSet: the only place that writes it, and says whether it was granted.

use json_patch::PatchOperation;
use serde_json::{Value, json};
use sts_plus_decide::NewPartition;

use crate::errors::Error;
use crate::patch::{add, remove};
use crate::views::SetObject;
use crate::written::Written;

const ROLLING_UPDATE: [&str; 3] = ["spec", "updateStrategy", "rollingUpdate"];

/// The update strategy of a StatefulSet that is made or written as a whole; `budget` is its `maxUnavailable`.
pub(super) fn strategy(partition: i32, budget: Option<Value>) -> Value {
    let rolling_update = match budget {
        Some(budget) => json!({ "partition": partition, "maxUnavailable": budget }),
        None => json!({ "partition": partition }),
    };
    json!({ "type": "RollingUpdate", "rollingUpdate": rolling_update })
}

/// What of the strategy stays as a user wrote it.
pub(super) fn budget(body: &Value) -> Option<Value> {
    body.pointer("/spec/updateStrategy/rollingUpdate/maxUnavailable").cloned()
}

/// The operations that bring it about. None if it is so.
pub(super) fn change(set: &SetObject, partition: NewPartition) -> Vec<PatchOperation> {
    let view = set.view();
    let field = ROLLING_UPDATE.into_iter().chain(["partition"]);
    match partition {
        NewPartition::Set(value) if view.partition == Some(value) => Vec::new(),
        NewPartition::Set(value) if view.has_rolling_update => vec![add(field, value)],
        NewPartition::Set(value) => vec![add(ROLLING_UPDATE, json!({"partition": value}))],
        NewPartition::Remove if view.partition.is_some() => vec![remove(field)],
        NewPartition::Keep | NewPartition::Remove => Vec::new(),
    }
}

/// A step that was not granted a moment ago is not written again: the write alone would start the next run. A higher partition
/// is always worth trying.
pub(super) fn is_worth_trying(seen: &SetObject, partition: NewPartition, written: &Written) -> Result<(), Error> {
    let before = seen.partition().unwrap_or(0);
    let asked = match partition {
        NewPartition::Set(asked) if asked < before => Some(asked),
        NewPartition::Remove if before > 0 => None,
        NewPartition::Keep | NewPartition::Set(_) | NewPartition::Remove => return Ok(()),
    };
    match written.lately_kept(seen.uid()) {
        Some(kept) => Err(Error::NotGranted { set: seen.name().to_owned(), asked, kept }),
        None => Ok(()),
    }
}

/// The policies leave the operator alone by its user name. Under another name its steps would be accepted and undone, without an
/// end. Without a partition the API server fills in 0.
pub(super) fn is_granted(asked: NewPartition, set: &SetObject, written: &Written) -> Result<(), Error> {
    let kept = set.partition();
    let (granted, asked) = match asked {
        NewPartition::Keep => return Ok(()),
        NewPartition::Set(asked) => (kept == Some(asked), Some(asked)),
        NewPartition::Remove => (kept.is_none_or(|kept| kept == 0), None),
    };
    if granted {
        return Ok(());
    }
    written.not_granted(set.uid(), kept);
    Err(Error::NotGranted { set: set.name().to_owned(), asked, kept })
}

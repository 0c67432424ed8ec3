//! Writes: a batch of updates.
//!
//! Updates are executed in order. By default, each update is executed regardless of the other
//! updates. With `ROLLBACK_ON_ERROR`, the first failure rolls all earlier updates back.
//! `DATAPLANE_ATOMIC` works the same, but only on devices that apply the batch atomically.

use std::time::Duration;

use super::{
    device::Device,
    store::{EntryStore, UpdateContext},
};
use crate::{
    error::{EntityError, RpcError},
    wire::p4::v1::{Update, WriteRequest, update, write_request::Atomicity},
};

/// The relation between the updates of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchMode {
    /// Each update of the batch is independent.
    Each,
    /// All updates succeed or none.
    All,
}

impl BatchMode {
    /// Returns the mode of an atomicity that the device can guarantee.
    fn new(atomicity: i32, device: &dyn Device) -> Result<Self, RpcError> {
        match Atomicity::try_from(atomicity) {
            Ok(Atomicity::ContinueOnError) => Ok(Self::Each),
            Ok(Atomicity::RollbackOnError) => Ok(Self::All),
            Ok(Atomicity::DataplaneAtomic) if device.is_atomic() => Ok(Self::All),
            Ok(Atomicity::DataplaneAtomic) => Err(RpcError::NotAtomic),
            Err(_) => Err(RpcError::Unknown("atomicity")),
        }
    }
}

/// Maximum number of parts of a request.
///
/// Other requests wait while the parts of a request are executed.
const PARTS_MAX: usize = 16384;

/// Checks that a request does not have too many parts.
pub(super) const fn check_parts(count: usize) -> Result<(), RpcError> {
    if count <= PARTS_MAX { Ok(()) } else { Err(RpcError::TooManyParts(PARTS_MAX)) }
}

/// Executes the updates of a request and returns their results in order.
///
/// The caller checks the permission to write.
///
/// # Errors
///
/// The atomicity is unknown, or the device does not support it.
pub fn write(
    store: &mut EntryStore,
    device: &mut dyn Device,
    request: WriteRequest,
    now: Duration,
) -> Result<Vec<Result<(), EntityError>>, RpcError> {
    let mode = BatchMode::new(request.atomicity, device)?;
    check_parts(request.updates.len())?;
    Ok(write_all(store, device, request.updates, mode, now))
}

/// Applies updates in order; in atomic mode, an error undoes all of them.
fn write_all(
    store: &mut EntryStore,
    device: &mut dyn Device,
    updates: Vec<Update>,
    mode: BatchMode,
    now: Duration,
) -> Vec<Result<(), EntityError>> {
    let mut results = Vec::with_capacity(updates.len());
    let mut undos = Vec::new();
    let (is_undoable, mut has_failed) = (mode == BatchMode::All, false);
    for (number, update) in updates.into_iter().enumerate() {
        if has_failed && is_undoable {
            results.push(Err(EntityError::Aborted));
            continue;
        }
        let kind = update::Type::try_from(update.r#type).unwrap_or_default();
        let entity = update.entity.and_then(|entity| entity.entity);
        let result = if kind == update::Type::Unspecified {
            Err(EntityError::NoType)
        } else {
            store.apply(device, &UpdateContext { kind, now, is_undoable }, entity)
        };
        results.push(match result {
            Ok(undo) => {
                undos.extend(undo.filter(|_| is_undoable).map(|undo| (number, undo)));
                Ok(())
            }
            Err(error) => {
                has_failed = true;
                Err(error)
            }
        });
    }
    if has_failed && is_undoable {
        for (number, undo) in undos.into_iter().rev() {
            results[number] =
                Err(store.undo(device, undo, now).err().unwrap_or(EntityError::Aborted));
        }
    }
    results
}

#[cfg(test)]
mod tests;

//! Writing: a batch of updates.
//!
//! Updates are made in their order. Without more, each is tried, whatever became of those before it.
//! With `ROLLBACK_ON_ERROR` the first failure takes back all that was done. `DATAPLANE_ATOMIC` is that
//! as well, on devices whose packets cannot meet the middle of it.

use std::time::Duration;

use super::{
    device::Device,
    store::{Change, Store},
};
use crate::{
    error::{EntityError, RequestError},
    wire::p4::v1::{Update, WriteRequest, update, write_request::Atomicity},
};

/// How updates of a batch depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// Not at all.
    Each,
    /// All or none.
    All,
}

impl Together {
    fn new(atomicity: i32, device: &dyn Device) -> Result<Self, RequestError> {
        match Atomicity::try_from(atomicity) {
            Ok(Atomicity::ContinueOnError) => Ok(Self::Each),
            Ok(Atomicity::RollbackOnError) => Ok(Self::All),
            Ok(Atomicity::DataplaneAtomic) if device.is_atomic() => Ok(Self::All),
            Ok(Atomicity::DataplaneAtomic) => Err(RequestError::NotAtomic),
            Err(_) => Err(RequestError::Unknown("atomicity")),
        }
    }
}

/// Parts of one request: others wait while they are made.
const PARTS_MAX: usize = 16384;

/// That a request has no more parts than are served at once.
pub(super) const fn check_parts(count: usize) -> Result<(), RequestError> {
    if count <= PARTS_MAX { Ok(()) } else { Err(RequestError::TooManyParts(PARTS_MAX)) }
}

/// Makes the updates of a request; what became of each, in their order. Who may write is not asked
/// here.
///
/// # Errors
///
/// The updates do not belong together in a way that the device has.
pub fn write(
    store: &mut Store,
    device: &mut dyn Device,
    request: WriteRequest,
    now: Duration,
) -> Result<Vec<Result<(), EntityError>>, RequestError> {
    let together = Together::new(request.atomicity, device)?;
    check_parts(request.updates.len())?;
    Ok(write_all(store, device, (request.updates, together), now))
}

fn write_all(
    store: &mut Store,
    device: &mut dyn Device,
    (updates, together): (Vec<Update>, Together),
    now: Duration,
) -> Vec<Result<(), EntityError>> {
    let mut results = Vec::with_capacity(updates.len());
    let mut undos = Vec::new();
    let (is_undoable, mut has_failed) = (together == Together::All, false);
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
            store.apply(device, &Change { kind, now, is_undoable }, entity)
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

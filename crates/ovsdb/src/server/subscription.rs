//! Notification of the owner about the changes of clients.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use super::OvsdbHandle;
use crate::{
    database::{ChangeSet, DatabaseSnapshot, RowChange},
    error::OvsdbServerError,
    schema::DatabaseSchema,
    value::RowUuid,
};

/// The changes of clients since the owner last took them.
///
/// Changes are merged, so the changes that wait for a slow owner need no more memory than the rows.
#[derive(Debug)]
pub struct ChangeSubscription {
    pending: Arc<PendingChanges>,
    handle: OvsdbHandle,
}

/// Changes that the owner has not taken yet.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    changes: Mutex<MergedChanges>,
    notify: Notify,
}

/// The changes of several transactions as one change.
#[derive(Debug, Default)]
struct MergedChanges {
    change: ChangeSet,
    /// Number of transactions that were merged.
    count: u64,
}

/// The changes of clients, and the rows after them.
#[derive(Clone, Debug)]
pub struct ClientChanges {
    /// The rows that clients changed.
    pub rows: Vec<ChangedRow>,
    /// All rows after these changes, and perhaps after later changes.
    pub snapshot: DatabaseSnapshot,
}

/// A row that a client has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangedRow {
    /// The name of the table.
    pub table: String,
    /// The UUID of the row, which may be deleted or new.
    pub uuid: RowUuid,
}

impl ChangeSubscription {
    /// Returns the subscription of the owner to changes of clients.
    pub(super) const fn new(pending: Arc<PendingChanges>, handle: OvsdbHandle) -> Self {
        Self { pending, handle }
    }

    /// Waits until clients have changed a row.
    ///
    /// Dropping the future loses no change.
    ///
    /// # Errors
    ///
    /// If the server has stopped.
    pub async fn next(&mut self) -> Result<ClientChanges, OvsdbServerError> {
        loop {
            let notified = self.pending.notify.notified();
            if let Some(count) = self.pending.count() {
                let snapshot = self.handle.snapshot().await?;
                // If changes arrived after the snapshot, the loop takes a new snapshot.
                if let Some(rows) = self.pending.take(count, snapshot.schema()) {
                    return Ok(ClientChanges { rows, snapshot });
                }
                continue;
            }
            tokio::select! {
                () = notified => {}
                () = self.handle.stopped() => return Err(OvsdbServerError::Stopped),
            }
        }
    }
}

impl PendingChanges {
    /// Adds a change. Returns false when the subscription was dropped.
    pub(super) fn add(self: &Arc<Self>, change: &ChangeSet) -> bool {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        changes.change.append(change);
        changes.count = changes.count.wrapping_add(1);
        drop(changes);
        self.notify.notify_one();
        Arc::strong_count(self) > 1
    }

    /// Returns the number of merged transactions, or `None` if they change nothing.
    fn count(&self) -> Option<u64> {
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        (!changes.change.is_empty()).then_some(changes.count)
    }

    /// Takes the changed rows, unless further transactions were merged after `count`.
    fn take(&self, count: u64, schema: &DatabaseSchema) -> Option<Vec<ChangedRow>> {
        let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        if changes.count != count {
            return None;
        }
        let change = std::mem::take(&mut changes.change);
        let row = |(table, uuid, _): (usize, RowUuid, &RowChange)| {
            let table = schema.tables().get(table)?;
            Some(ChangedRow { table: table.name().to_owned(), uuid })
        };
        Some(change.rows().filter_map(row).collect())
    }
}

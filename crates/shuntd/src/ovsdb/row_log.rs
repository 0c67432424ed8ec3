//! A log of rows without effect; each row is logged once with its reason.

use std::collections::BTreeMap;

use shunt_ovsdb::value::RowUuid;
use tracing::warn;

/// The rows of a table that have no effect, with the logged reasons.
#[derive(Debug)]
pub(super) struct RowLog {
    /// The name of the table.
    table: &'static str,
    /// The logged reason of each row.
    reasons: BTreeMap<RowUuid, String>,
}

impl RowLog {
    /// Creates the log of a table.
    pub(super) const fn new(table: &'static str) -> Self {
        Self { table, reasons: BTreeMap::new() }
    }

    /// Logs the reasons that were not logged before.
    pub(super) fn update(&mut self, reasons: BTreeMap<RowUuid, String>) {
        for (row, reason) in &reasons {
            if self.reasons.get(row) != Some(reason) {
                warn!("ovsdb: row {row} of {}: {reason}", self.table);
            }
        }
        self.reasons = reasons;
    }
}

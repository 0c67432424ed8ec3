//! The rows of sFlow, NetFlow and IPFIX of a bridge, and their effect on the switch.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::config::{BridgeOptions, ConfigError};

use super::{ipfix, netflow, sflow};
use crate::ovsdb::row_log::RowLog;

/// The reasons why rows of a table have no effect, by row.
pub(in crate::ovsdb) type RefusedRows = BTreeMap<RowUuid, String>;

/// The refused rows of sFlow, NetFlow and IPFIX, with the reasons, by table.
#[derive(Clone, Debug, Default)]
pub(in crate::ovsdb) struct RefusedExports {
    sflow: RefusedRows,
    netflow: RefusedRows,
    ipfix: RefusedRows,
    pub(in crate::ovsdb) collector_sets: RefusedRows,
}

/// The rows of sFlow, NetFlow and IPFIX of a bridge.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ovsdb) struct ExportRows {
    sflow: ExportRow,
    netflow: ExportRow,
    ipfix: ExportRow,
}

/// The row of one protocol.
#[derive(Clone, Copy, Debug, Default)]
enum ExportRow {
    /// The bridge references no row: the protocol is off.
    #[default]
    Absent,
    /// The options in force are the options of the row.
    Valid(RowUuid),
    /// The row has a wrong value: the options in force stay.
    Wrong,
}

/// The logs of rows of sFlow, NetFlow and IPFIX that have no effect.
#[derive(Debug)]
pub(in crate::ovsdb) struct ExportLogs {
    sflow: RowLog,
    netflow: RowLog,
    ipfix: RowLog,
    collector_sets: RowLog,
}

/// Reads the rows of sFlow, NetFlow and IPFIX into the options of a bridge,
/// and returns the rows.
///
/// The options of a row that cannot be used are omitted.
pub(in crate::ovsdb) fn exports(
    snapshot: &DatabaseSnapshot,
    bridge: RowView<'_>,
    options: &mut BridgeOptions,
    refused: &mut RefusedExports,
) -> ExportRows {
    let row =
        |column, table| bridge.uuids(column).next().and_then(|uuid| snapshot.row(table, uuid));
    let mut rows = ExportRows::default();
    if let Some(row) = row("sflow", "sFlow") {
        let (read, refused) = (sflow::options(row), &mut refused.sflow);
        rows.sflow = accept(bridge, row, read, &mut options.sflow, refused);
    }
    if let Some(row) = row("netflow", "NetFlow") {
        let (read, refused) = (netflow::options(row), &mut refused.netflow);
        rows.netflow = accept(bridge, row, read, &mut options.netflow, refused);
    }
    if let Some(row) = row("ipfix", "IPFIX") {
        let (read, refused) = (ipfix::options(row), &mut refused.ipfix);
        rows.ipfix = accept(bridge, row, read, &mut options.ipfix, refused);
    }
    rows
}

/// Stores the options of a row; or records why the row has no effect.
fn accept<T>(
    bridge: RowView<'_>,
    row: RowView<'_>,
    read: Result<T, String>,
    options: &mut T,
    refused: &mut RefusedRows,
) -> ExportRow {
    match read {
        Ok(read) => {
            *options = read;
            ExportRow::Valid(row.uuid())
        }
        Err(reason) => {
            let bridge = bridge.string("name").unwrap_or_default();
            let text = format!("bridge {bridge} keeps the options in force: {reason}");
            refused.insert(row.uuid(), text);
            ExportRow::Wrong
        }
    }
}

/// Returns the options if they are valid, otherwise the reason.
pub(super) fn checked<T>(
    options: T,
    check: impl FnOnce(&T) -> Result<(), ConfigError>,
) -> Result<T, String> {
    match check(&options) {
        Ok(()) => Ok(options),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the number in a column, or the default for an empty column.
pub(super) fn number<T: TryFrom<i64>>(
    row: RowView<'_>,
    column: &str,
    default: T,
    range: &str,
) -> Result<T, String> {
    match row.integer(column) {
        None => Ok(default),
        Some(value) => {
            value.try_into().map_err(|_| format!("{column} = {value}: it must be {range}"))
        }
    }
}

/// The range of a 32-bit number, for errors.
pub(super) const WORDS: &str = "from 0 to 4294967295";

impl ExportRows {
    /// Copies the options in force into `desired` for each protocol with a wrong row.
    pub(in crate::ovsdb) fn keep_wrong(
        &self,
        desired: &mut BridgeOptions,
        in_force: &BridgeOptions,
    ) {
        if matches!(self.sflow, ExportRow::Wrong) {
            desired.sflow.clone_from(&in_force.sflow);
        }
        if matches!(self.netflow, ExportRow::Wrong) {
            desired.netflow.clone_from(&in_force.netflow);
        }
        if matches!(self.ipfix, ExportRow::Wrong) {
            desired.ipfix.clone_from(&in_force.ipfix);
        }
    }
}

impl RefusedExports {
    /// Records that the switch refuses the sFlow options of a bridge.
    pub(in crate::ovsdb) fn refuse_sflow(&mut self, rows: ExportRows, reason: &str) {
        refuse(&mut self.sflow, rows.sflow, reason);
    }

    /// Records that the switch refuses the NetFlow options of a bridge.
    pub(in crate::ovsdb) fn refuse_netflow(&mut self, rows: ExportRows, reason: &str) {
        refuse(&mut self.netflow, rows.netflow, reason);
    }

    /// Records that the switch refuses the IPFIX options of a bridge.
    pub(in crate::ovsdb) fn refuse_ipfix(&mut self, rows: ExportRows, reason: &str) {
        refuse(&mut self.ipfix, rows.ipfix, reason);
    }
}

/// Records why a row has no effect.
fn refuse(refused: &mut RefusedRows, row: ExportRow, reason: &str) {
    if let ExportRow::Valid(row) = row {
        refused.insert(row, reason.to_owned());
    }
}

impl ExportLogs {
    /// Creates empty logs for all tables.
    pub(in crate::ovsdb) const fn new() -> Self {
        Self {
            sflow: RowLog::new("sFlow"),
            netflow: RowLog::new("NetFlow"),
            ipfix: RowLog::new("IPFIX"),
            collector_sets: RowLog::new("Flow_Sample_Collector_Set"),
        }
    }

    /// Logs the reasons that were not logged before.
    pub(in crate::ovsdb) fn update(&mut self, refused: RefusedExports) {
        self.sflow.update(refused.sflow);
        self.netflow.update(refused.netflow);
        self.ipfix.update(refused.ipfix);
        self.collector_sets.update(refused.collector_sets);
    }
}

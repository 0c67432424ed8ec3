//! The rows of all exports of a bridge, and their effect.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::{
    Switch,
    config::{BridgeOptions, ConfigError},
    with_causes,
};

use super::{ipfix, netflow, sflow};
use crate::ovsdb::row_log::RowLog;

/// The reasons why rows of a table have no effect.
type RefusedRows = BTreeMap<RowUuid, String>;

/// The rows of exports that cannot be used, with the reason, by their table.
#[derive(Clone, Debug, Default)]
pub(in crate::ovsdb) struct RefusedExports {
    sflow: RefusedRows,
    netflow: RefusedRows,
    ipfix: RefusedRows,
}

/// The rows of the exports of a bridge.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::ovsdb) struct ExportRows {
    sflow: Option<RowUuid>,
    netflow: Option<RowUuid>,
    ipfix: Option<RowUuid>,
}

/// The logs of rows that cannot be used or applied.
#[derive(Debug)]
pub(in crate::ovsdb) struct ExportLogs {
    sflow: RowLog,
    netflow: RowLog,
    ipfix: RowLog,
}

/// Reads the exports of a bridge into its options, and returns their rows.
///
/// Without a row a protocol is off. It is also off with a row that cannot be used.
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
        let read = sflow::options(row);
        rows.sflow = accept(bridge, row, read, "sends no samples", &mut refused.sflow)
            .map(|read| options.sflow = read)
            .map(|()| row.uuid());
    }
    if let Some(row) = row("netflow", "NetFlow") {
        let read = netflow::options(row);
        rows.netflow = accept(bridge, row, read, "reports no flows", &mut refused.netflow)
            .map(|read| options.netflow = read)
            .map(|()| row.uuid());
    }
    if let Some(row) = row("ipfix", "IPFIX") {
        let read = ipfix::options(row);
        rows.ipfix = accept(bridge, row, read, "reports no flows", &mut refused.ipfix)
            .map(|read| options.ipfix = read)
            .map(|()| row.uuid());
    }
    rows
}

/// Returns the options of a row, or notes why the row has no effect.
fn accept<T>(
    bridge: RowView<'_>,
    row: RowView<'_>,
    read: Result<T, String>,
    effect: &str,
    refused: &mut RefusedRows,
) -> Option<T> {
    let note = |reason| {
        let bridge = bridge.string("name").unwrap_or_default();
        refused.insert(row.uuid(), format!("bridge {bridge} {effect}: {reason}"));
    };
    read.map_err(note).ok()
}

/// Returns the options if they are valid, or the reason.
pub(super) fn checked<T>(
    options: T,
    check: impl FnOnce(&T) -> Result<(), ConfigError>,
) -> Result<T, String> {
    match check(&options) {
        Ok(()) => Ok(options),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the number in a column, or its default.
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

/// The range of a number of 32 bits.
pub(super) const WORDS: &str = "from 0 to 4294967295";

/// Sets the exports of a bridge that differ.
///
/// Also those that another client has changed.
///
/// Notes rows that cannot be applied.
pub(in crate::ovsdb) async fn set_exports(
    switch: &Switch,
    running: &BridgeOptions,
    desired: &BridgeOptions,
    rows: ExportRows,
    refused: &mut RefusedExports,
) {
    let mut settings = Vec::new();
    let bridge = &desired.name;
    if running.sflow != desired.sflow {
        settings.push((sflow::settings(&desired.sflow), rows.sflow, &mut refused.sflow));
    }
    if running.netflow != desired.netflow {
        settings.push((netflow::settings(&desired.netflow), rows.netflow, &mut refused.netflow));
    }
    if running.ipfix != desired.ipfix {
        settings.push((ipfix::settings(&desired.ipfix), rows.ipfix, &mut refused.ipfix));
    }
    for (settings, row, refused) in settings {
        let settings: Vec<_> = settings.iter().map(|(key, value)| (*key, value.as_str())).collect();
        if let Err(error) = switch.declarative().set_bridge(bridge, &settings).await {
            refused.extend(row.map(|row| (row, with_causes(&error))));
        }
    }
}

impl ExportLogs {
    /// Creates the logs of all tables.
    pub(in crate::ovsdb) const fn new() -> Self {
        Self {
            sflow: RowLog::new("sFlow"),
            netflow: RowLog::new("NetFlow"),
            ipfix: RowLog::new("IPFIX"),
        }
    }

    /// Logs the reasons that are new.
    pub(in crate::ovsdb) fn update(&mut self, refused: RefusedExports) {
        self.sflow.update(refused.sflow);
        self.netflow.update(refused.netflow);
        self.ipfix.update(refused.ipfix);
    }
}

//! sFlow, NetFlow and IPFIX from the rows of an OVSDB database.

mod collector_sets;
mod ipfix;
mod netflow;
mod rows;
mod sflow;

pub(super) use collector_sets::{DesiredCollectorSets, collector_sets};
pub(super) use rows::{ExportLogs, ExportRows, RefusedExports, exports};

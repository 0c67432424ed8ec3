//! sFlow, NetFlow and IPFIX as the rows of a bridge describe them.

mod ipfix;
mod netflow;
mod rows;
mod sflow;

pub(super) use rows::{ExportLogs, ExportRows, RefusedExports, exports, set_exports};

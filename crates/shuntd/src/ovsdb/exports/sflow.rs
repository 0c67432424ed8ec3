//! sFlow options from the table `sFlow`.

use shunt_ovsdb::RowView;
use shunt_switch::config::SflowOptions;

use super::rows::{WORDS, checked, number};

/// Reads a row of `sFlow`, or returns the reason why it cannot be used.
pub(super) fn options(row: RowView<'_>) -> Result<SflowOptions, String> {
    let defaults = SflowOptions::default();
    let options = SflowOptions {
        targets: row.strings("targets").map(str::to_owned).collect(),
        agent: row.string("agent").unwrap_or_default().to_owned(),
        sampling: number(row, "sampling", defaults.sampling, WORDS)?,
        polling: number(row, "polling", defaults.polling, WORDS)?,
        header: number(row, "header", defaults.header, WORDS)?,
    };
    checked(options, SflowOptions::check)
}

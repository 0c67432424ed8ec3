//! NetFlow options from the table `NetFlow`.

use shunt_ovsdb::RowView;
use shunt_switch::config::NetflowOptions;

use super::rows::{checked, number};

/// Reads a row of `NetFlow`, or returns the reason why it cannot be used.
pub(super) fn options(row: RowView<'_>) -> Result<NetflowOptions, String> {
    let defaults = NetflowOptions::default();
    let (seconds, byte) = ("from -1 to 2147483647", "from 0 to 255");
    let options = NetflowOptions {
        targets: row.strings("targets").map(str::to_owned).collect(),
        active_timeout: number(row, "active_timeout", defaults.active_timeout, seconds)?,
        engine_type: number(row, "engine_type", defaults.engine_type, byte)?,
        engine_id: number(row, "engine_id", defaults.engine_id, byte)?,
        add_id_to_interface: row.boolean("add_id_to_interface").unwrap_or_default(),
    };
    checked(options, NetflowOptions::check)
}

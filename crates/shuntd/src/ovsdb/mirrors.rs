//! Mirrors from the rows of an OVSDB database.
//!
//! If settings of a row contradict each other, `select_all` and `output_port` have precedence, as
//! in Open vSwitch.

use std::collections::BTreeMap;

use shunt_ovsdb::{DatabaseSnapshot, RowView, value::RowUuid};
use shunt_switch::config::{ConfigError, MirrorOptions};

use super::bonds::interfaces;

/// The rows of the mirrors of a bridge, by mirror name.
pub(super) type DesiredMirrors = BTreeMap<String, RowUuid>;

/// Reads the mirrors of a bridge; records why rows are not mirrors.
///
/// A row that is not a mirror does not affect other rows.
pub(super) fn mirrors(
    snapshot: &DatabaseSnapshot,
    bridge: RowView<'_>,
    refused: &mut BTreeMap<RowUuid, String>,
) -> (Vec<MirrorOptions>, DesiredMirrors) {
    let (mut mirrors, mut rows) = (Vec::new(), DesiredMirrors::new());
    for row in bridge.uuids("mirrors").filter_map(|uuid| snapshot.row("Mirror", uuid)) {
        let uuid = row.uuid();
        let name = row.string("name").filter(|name| !name.is_empty() && !rows.contains_key(*name));
        // The name in a row may be empty, or occur in several rows.
        let name = name.map_or_else(|| uuid.to_string(), str::to_owned);
        match mirror(snapshot, row, &name).and_then(|options| admit(options, mirrors.len())) {
            Ok(options) => {
                mirrors.push(options);
                rows.insert(name, uuid);
            }
            Err(reason) => {
                refused.insert(uuid, format!("mirror {name} copies nothing: {reason}"));
            }
        }
    }
    (mirrors, rows)
}

/// Returns the mirror if a bridge with `count` other mirrors can have it,
/// or the reason.
fn admit(mirror: MirrorOptions, count: usize) -> Result<MirrorOptions, String> {
    let limit = MirrorOptions::COUNT_MAX;
    if count >= limit {
        return Err(format!(
            "the bridge has {limit} other mirrors, which is the limit: delete one first"
        ));
    }
    let error = |error: ConfigError| error.to_string();
    mirror.check().map_err(error).map(|()| mirror)
}

/// Reads a mirror, or returns the reason why it has no output.
fn mirror(
    snapshot: &DatabaseSnapshot,
    row: RowView<'_>,
    name: &str,
) -> Result<MirrorOptions, String> {
    let ports =
        |column| row.uuids(column).filter_map(|uuid| port_name(snapshot, uuid)).collect::<Vec<_>>();
    let select_all = row.boolean("select_all") == Some(true);
    let of_ports = |column| if select_all { Vec::new() } else { ports(column) };
    let output_port = ports("output_port").pop().unwrap_or_default();
    let number = |column| row.integer(column).and_then(|own| u16::try_from(own).ok());
    let output_vlan = number("output_vlan").filter(|_| output_port.is_empty()).unwrap_or_default();
    if output_port.is_empty() && output_vlan == 0 {
        return Err("set output_port or output_vlan".to_owned());
    }
    Ok(MirrorOptions {
        name: name.to_owned(),
        select_all,
        select_src_port: of_ports("select_src_port"),
        select_dst_port: of_ports("select_dst_port"),
        select_vlan: row.integers("select_vlan").filter_map(|own| own.try_into().ok()).collect(),
        output_port,
        output_vlan,
        snaplen: number("snaplen").unwrap_or_default().into(),
    })
}

/// Returns the name of the port that a row of `Port` describes.
///
/// The result is the name of the interface, or the name of the row if the row is a bond.
fn port_name(snapshot: &DatabaseSnapshot, uuid: RowUuid) -> Option<String> {
    let port = snapshot.row("Port", uuid)?;
    let named = match interfaces(snapshot, port).as_slice() {
        [interface] => *interface,
        _ => port,
    };
    named.string("name").map(str::to_owned)
}

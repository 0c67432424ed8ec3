//! Real clients of the daemon: `ovs-ofctl`, `ovs-appctl`, `shuntctl`, and peers that send garbage.
//!
//! The tests need no privileges, because all ports are null ports. Only the tests of `vsctl` and
//! `foreign_database` need a namespace for the local port of a bridge.

#![expect(clippy::expect_used, reason = "a test that cannot be set up has failed")]

mod absent_features;
mod appctl;
mod bad_input;
mod bfd;
mod bonds;
mod changed_values;
mod devices;
mod exports;
mod forecasts;
mod foreign_database;
mod host_statistics;
mod ipfix;
mod lacp;
mod managers;
mod mirrors;
mod multicast;
mod netflow;
mod ofctl;
mod ovn;
mod policing;
mod sflow;
mod shuntctl;
mod tls;
mod vsctl;

use shunt_tests::daemon::Daemon;

/// Starts a daemon with bridge `br0` and four null ports `p1` to `p4`.
fn daemon() -> Daemon {
    daemon_with("")
}

/// Starts the daemon of [`daemon`] with additional configuration.
fn daemon_with(configuration: &str) -> Daemon {
    let mut text = configuration.to_owned();
    text += "[[bridge]]\nname = \"br0\"\ndatapath_id = \"00000000000000c1\"\n";
    for number in 1..=4 {
        text += &format!("[[bridge.port]]\nname = \"p{number}\"\nnumber = {number}\n");
        text += "type = \"null\"\n";
    }
    Daemon::start(&text)
}

//! Bridges: settings, ports, bonds, mirrors, and the MAC table and multicast table of NORMAL.

pub(crate) mod bond;
pub(crate) mod bridge;
pub(crate) mod expiry_queue;
pub(crate) mod learned_ages;
pub(crate) mod learned_totals;
pub(crate) mod mac_table;
pub(crate) mod mirror;
pub(crate) mod mirror_table;
pub(crate) mod multicast;
pub(crate) mod multicast_table;
pub(crate) mod output_counter;
pub(crate) mod port;
pub(crate) mod port_change;
pub(crate) mod port_table;
pub(crate) mod port_vlans;
pub(crate) mod settings;

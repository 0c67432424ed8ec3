//! Bridges and their ports: names, numbers, devices, VLANs, rate limits, and captures.

pub(crate) mod attacher;
pub(crate) mod bfd;
pub(crate) mod bond_buckets;
pub(crate) mod bond_events;
mod bond_member;
pub(crate) mod bonds;
#[cfg(test)]
mod bonds_tests;
pub(crate) mod bridge_ports;
pub(crate) mod bridges;
pub(crate) mod capture;
pub(crate) mod change_log;
pub(crate) mod changed_bonds;
mod datapath_id;
pub(crate) mod device;
pub(crate) mod device_users;
pub(crate) mod exclusive;
pub(crate) mod frame_inbox;
pub(crate) mod lacp;
pub(crate) mod lacp_actors;
pub(crate) mod learning_packets;
pub(crate) mod link_events;
pub(crate) mod mirror_problem;
pub(crate) mod names;
pub(crate) mod numbers;
pub(crate) mod own_frames;
mod patch_peer;
pub(crate) mod policing;
pub(crate) mod port;
pub(crate) mod publication;
pub(crate) mod qos;
pub(crate) mod registry;
pub(crate) mod removed_losses;
pub(crate) mod set_down;
pub(crate) mod static_macs;
pub(crate) mod vlans;

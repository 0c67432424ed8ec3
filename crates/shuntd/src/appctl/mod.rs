//! The commands of the control socket: commands of `ovs-appctl`, and commands that only Shunt has.
//!
//! A group of commands is a module with a list of [`AppctlCommand`](command::AppctlCommand)s, and
//! [`table`] has all groups. `list-commands` and the table of `docs/appctl.md` are made from these
//! lists. Answers have the format of `ovs-vswitchd` 3.1. The commands of `ovs-vswitchd` that Shunt
//! lacks are in [`refusals`], each with an alternative.

mod absent;
mod bfd;
mod bond;
mod bridge;
mod cleared_counters;
mod command;
mod coverage;
mod dpctl;
mod dpif;
mod fdb;
mod lacp;
mod mdb;
mod memory;
mod methods;
mod odp_flow;
mod ofproto;
mod own;
mod pmd;
mod process;
mod qos;
mod refusals;
mod settings;
mod table;
mod upcall;
mod vlog;

pub(crate) use methods::DaemonMethods;

//! Bridges and ports from an OVSDB database, which `ovs-vsctl` configures.
//!
//! The database belongs to the embedded server, or to a foreign server such as `ovsdb-server`
//! ([`SwitchDatabase`](database::SwitchDatabase)).
//!
//! [`DesiredBridges`](desired::DesiredBridges) are the bridges that the rows describe.
//! [`Reconciler`](reconciler::Reconciler) changes the switch accordingly, with as few changes as
//! possible. [`report`] writes the results into the rows. `cur_cfg` is written in the same
//! transaction as `ofport` and `error`, because clients wait for `cur_cfg`.

mod applied_rows;
mod apply_errors;
mod auto_lb;
mod bfd;
mod bonds;
mod bridge_rows;
mod cache_limits;
mod changed_rows;
mod columns;
mod database;
mod datapaths;
mod desired;
mod desired_update;
mod exports;
mod follower;
mod host_system;
mod ignored;
mod managers;
mod mirrors;
mod normal_rule;
mod options;
mod port_readings;
mod port_rows;
mod problem;
mod qos;
mod reconciler;
mod report;
mod row_log;
mod service;
mod statistics_reader;
mod tls;
mod vlan_limit;

pub(crate) use datapaths::capability;
pub(crate) use options::OvsdbOptions;
pub(crate) use problem::DatabaseProblem;
pub(crate) use service::{OvsdbService, OvsdbStartError};

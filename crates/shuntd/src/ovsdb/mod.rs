//! Bridges and ports from an OVSDB database, which `ovs-vsctl` configures.
//!
//! The database is that of the embedded server, or of a foreign one such as `ovsdb-server`
//! ([`SwitchDatabase`](database::SwitchDatabase)).
//!
//! [`DesiredBridges`](desired::DesiredBridges) is the meaning of the rows, [`Reconciler`](reconciler::Reconciler)
//! changes the switch to it and keeps the difference small, and [`report`] writes the results into the
//! rows. `cur_cfg` is written in the same transaction as `ofport` and `error`, because clients wait
//! for it.

mod bfd;
mod bonds;
mod columns;
mod database;
mod desired;
mod exports;
mod follower;
mod host_system;
mod ignored;
mod managers;
mod mirrors;
mod normal_rule;
mod options;
mod port_numbers;
mod port_rows;
mod problem;
mod qos;
mod reconciler;
mod report;
mod row_log;
mod service;
mod tls;

pub(crate) use options::OvsdbOptions;
pub(crate) use problem::DatabaseProblem;
pub(crate) use service::{OvsdbService, OvsdbStartError};

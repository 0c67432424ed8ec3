//! Kairo as published, a baseline for measurements.
//!
//! A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, chapter 4.
//! The tables of the switch are built a second time, as a circuit of incremental view maintenance.
//! For every cache entry, the packet that made the entry is a row in these tables. A change of
//! rules changes the matches of these packets. When a packet matches another rule than before, its
//! entry is evicted.
//!
//! ```text
//! packets ──► table ──► gate ──► act ──┬─ filter ─► table ──► gate ──► ...
//!               ▲                      └─ filter ─► table ──► ...
//!             rules
//!
//! table: rules, split by tuple  ┐
//!        packets, by the tuple's│ ⋈ , for each tuple ┐
//!        bits                   ┘                    ├ + , group by packet, top rank ──► winners
//!        the miss of each packet ────────────────────┘
//! ```
//!
//! - [`plan`]: the tables, their order and the edges between them. Cycles of tables are unrolled
//!   into layers of copies.
//! - [`circuit`]: the operators of dbsp in the picture above, built from the plan while the switch
//!   runs.
//! - [`actions`]: the effect of rules on the bits of packets that later lookups can consult;
//!   [`state`]: packets as rows; [`rules`]: rules and tuples by number.
//! - [`packets`]: the packets, and the cache entries that each packet made: one megaflow, or a list
//!   of LTM entries.
//! - [`engine`]: the times when rules and packets enter the circuit, and the gates that are open
//!   then.
//!
//! **Time.** A change of rules enters the circuit at once. Only the gates before the last changed
//! table are open, and rows that would pass that table are held. Packets enter in batches, with all
//! gates open. Packets with expired entries are deleted in batches too. A timer bounds how long
//! packets and held rows wait. So [`apply`](PublishedKairo) returns all evictions of a change, and
//! later steps only update the circuit. The caller provides the clock.
//!
//! **Known errors** of the published design are kept: see [`PublishedKairo`].
//!
//! **Differences** exist because a dbsp circuit cannot change once it is built. For tuples that
//! appear later, each table has one more join, with the masks as data. A new edge between tables
//! rebuilds the circuit and loads all packets again, after the evictions. Joins use fingerprints of
//! masked keys, and then compare the full keys. An entry that the circuit cannot model is
//! *untracked*: every change of a table that the entry visits evicts it.

mod actions;
mod circuit;
mod engine;
mod packets;
mod plan;
mod rules;
mod settings;
mod shared_tables;
mod state;
#[cfg(test)]
mod tests;

pub use engine::PublishedKairo;
pub use settings::{PublishedSettings, PublishedStats};

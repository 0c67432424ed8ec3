//! Kairo as published, a baseline for measurements.
//!
//! A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, chapter 4.
//! The tables of the switch are built a second time, as a circuit of incremental view maintenance.
//! For every cache entry, the packet that made it is in the tables. A change of rules moves
//! packets. When a packet matches another rule than before, its entry is evicted.
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
//! - [`plan`]: the tables, their order and their edges. Cycles are condensed, and unrolled into
//!   layers of copies.
//! - [`circuit`]: the picture above, in operators of dbsp, built from the plan while the switch
//!   runs.
//! - [`actions`]: the effect of rules on packets, as far as later lookups can see it; [`state`]:
//!   packets as rows; [`rules`]: rules and tuples by number.
//! - [`packets`]: the packets, and the cache entries that each made: one megaflow, or a list of
//!   sub-traversal entries.
//! - [`engine`]: when rules and packets enter the circuit, and which gates are open then.
//!
//! **Time.** A change of rules enters at once. Only the gates before the last table that it touches
//! are open, and rows that move past it are held. Packets enter in batches, with all gates open.
//! Deletions of packets with expired entries do the same. A timer bounds how long both wait. This
//! satisfies the contract: evictions are returned by [`apply`](PublishedKairo), and later steps
//! only update the circuit. The clock is passed in.
//!
//! **Known holes** of the published design are kept: see [`PublishedKairo`].
//!
//! **Differences** exist because a dbsp circuit cannot change once it is built. A tuple that
//! appears later has its mask as data, in one more join per table. A new edge between tables
//! rebuilds the circuit and loads all packets again, after the evictions. Joins are by fingerprints
//! of masked keys, and compare the full keys afterwards. An entry that the circuit cannot model is
//! *untracked*: every change of a table that it visits evicts it.

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

//! The mirror: Kairo as it was published, a baseline to measure against.
//!
//! A. Zulfiqar, *Rearchitecting the End Host Network for the Terabit Per Second Era*, chapter 4: the
//! tables of the switch are built once more, as a circuit of incremental view maintenance. Of every
//! cache entry the packet that made it stands in the tables, and a change of rules moves packets: the
//! entry of one that matches another rule than before is evicted.
//!
//! ```text
//! packets ──► table ──► gate ──► apply_actions ──┬─ filter ─► table ──► gate ──► ...
//!               ▲                      └─ filter ─► table ──► ...
//!             rules
//!
//! table: rules, split by tuple  ┐
//!        packets, by the tuple's│ ⋈ , for each tuple ┐
//!        bits                   ┘                    ├ + , group by packet, top rank ──► winners
//!        the miss of each packet ────────────────────┘
//! ```
//!
//! - [`plan`]: which tables there are, in which order, and what leads where. Cycles are condensed, and
//!   unrolled into layers of copies.
//! - [`circuit`]: the above, in operators of dbsp, made from the plan while the switch runs.
//! - [`actions`]: what rules do to packets, as far as later lookups can see it; [`state`]: packets as
//!   rows; [`rules`]: rules and tuples by number.
//! - [`packets`]: the packets, and the cache entries that each made: one, or a list of pieces.
//! - [`engine`]: when rules and packets go in, and which gates are open then.
//!
//! **Time.** A change of rules goes in at once, with the gates open only in front of the last table
//! that it touches; what moves behind it is held. Packets go in by the batch, with all gates open; so
//! does the deletion of packets whose entries expired. A timer bounds how long either waits. So there
//! is nothing that the contract does not allow: evictions leave with [`apply`](PublishedKairo), and what comes
//! later is the circuit's own affair. The clock is passed in.
//!
//! **What it misses** is what was published, and is kept: see [`PublishedKairo`].
//!
//! **What differs**, because dbsp's circuits cannot be changed once they are built. A tuple that
//! appears later has its mask as data, in one more join that each table keeps for those; a new way
//! from table to table has the circuit built anew, and all packets put into it, after the evictions.
//! Joins are by prints of masked keys, and compared in full behind it. What circuits do not know of
//! has the entry *beside* them: one evicts it with every change of a table that it visits.

mod actions;
mod circuit;
mod engine;
mod packets;
mod plan;
mod rules;
mod settings;
mod shared;
mod state;
#[cfg(test)]
mod tests;

pub use engine::PublishedKairo;
pub use settings::{PublishedSettings, PublishedStats};

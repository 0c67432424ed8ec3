//! The owner of a target: what keeps the rules of a NIC true to the tables.
//!
//! A [target](shunt_gigaflow::offload::OffloadDevice) stands in front of the switch and forwards by itself
//! what it has rules for. Its owner is one thread, and one more owner in the protocol of versions
//! ([`crate::evict::owner`]): it reports what it installs, takes advances, and answers a version when the
//! target holds nothing any more that the version made stale. So a barrier waits for the NIC too.
//!
//! ```text
//!  packet threads ── offers of keys that missed (bounded, dropped when full) ──┐
//!                                                                              ▼
//!  eviction thread ◄── reports ── OffloadAgent: Gigaflow cuts, Owner names, Ledger orders
//!        │                            ▲   │                                    │
//!        └── invalidation ─► mailbox ──────┘   └── answer, counts, status           │ operations
//!                                                                              ▼
//!                                                                          OffloadDevice
//! ```
//!
//! # What is intended, and what is held
//!
//! The owner's chain of stages says what is *intended*. The ledger knows of every piece what
//! the target has of it: nothing yet, an insertion under way, the piece, a removal under way. It sees to
//! it that
//!
//! - there is one write at a time for an entry: a removal waits for the answer to its insertion;
//! - nothing goes in before all that a version made stale is confirmed gone;
//! - pieces go in last stage first, and out first stage first;
//! - a place (tag, match and length in a stage) is free before another entry comes there;
//! - tags of a piece stay held until it is confirmed gone, and are drained before their numbers are
//!   used again.
//!
//! An offer is a key, not a decision: the owner translates it under the version that it is at, so it
//! installs nothing else (rule 5), and an offer that waited is none the worse for it.
//!
//! # Stale
//!
//! A target that is lost, or that does not confirm within [`OffloadConfig::confirm_within`], is *stale*:
//! it may forward by rules that are gone. Then versions are answered without it, and pulls too: nobody
//! waits. [`OffloadStatus::state`] says so, since when and why, and the log does. It ends when the target
//! is there and everything stale is confirmed gone.
//!
//! # Hits
//!
//! The target's counters are read every [`OffloadConfig::count_every`], and when somebody pulls. The
//! difference to what was read before is credited to the rules of the piece, at the time of the
//! reading. A removal comes with a last reading, where the target counts; what is counted between that
//! and the removal itself is lost, and so is what a target counted before it forgot. Nobody waits for a
//! reading that takes longer than the target may take, and it makes the target no less true: versions
//! wait for removals alone.
//!
//! # How it is wired
//!
//! [`offload_endpoint`] makes the joints. The [`OffloadHandle`] is control's: its
//! [`wake`](OffloadHandle::wake) is what the target calls when it has something to tell. Each packet
//! thread gets [`OffloadCandidates`], the desk gets [`CoordinatorEndpoint`](crate::CoordinatorEndpoint), the [`OffloadAgent`] the rest,
//! and [`spawn_offload_thread`] runs it.

mod config;
mod ends;
mod status;

mod drain;
mod judge;
mod ledger;
mod pace;
mod reading;
mod ways;

mod exchange;
mod intake;
mod owner;
mod runner;

pub use config::OffloadConfig;
pub use ends::{
    OffloadCandidate, OffloadCandidates, OffloadEndpoint, OffloadHandle, offload_endpoint,
};
pub use owner::OffloadAgent;
pub use runner::spawn_offload_thread;
pub use status::{
    LATENCY_BUCKETS, Latency, OffloadState, OffloadStatus, Operations, Reason, StaleReason,
};

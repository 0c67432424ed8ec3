//! Offload of LTM entries: the agent that keeps the entries of a NIC equal to the tables.
//!
//! An [offload device](shunt_gigaflow::offload::OffloadDevice) stands in front of the switch, and
//! forwards packets by its own entries. The agent of a device is a thread, and an owner in the
//! eviction protocol ([`crate::evict::owner`]). The agent reports its installs and takes
//! invalidations. The agent acknowledges a version when the device no longer holds an entry that
//! the version made stale. So a barrier also waits for the NIC.
//!
//! ```text
//!  packet threads ── candidates: keys that missed (bounded, dropped when full) ─┐
//!                                                                               ▼
//!  eviction thread ◄── reports ── OffloadAgent: Gigaflow partitions, Owner names, Ledger orders
//!        │                            ▲   │                                     │
//!        └── invalidation ─► mailbox ─┘   └── acks, counts, status              │ operations
//!                                                                               ▼
//!                                                                         OffloadDevice
//! ```
//!
//! # Intended and held entries
//!
//! The agent's chain of stages holds the *intended* entries. For each entry the ledger knows the
//! state in the device: absent, insertion pending, held, or removal pending. The ledger guarantees:
//!
//! - An entry has one pending write at a time: a removal waits for the response to its insertion.
//! - Nothing is inserted before all entries that a version made stale are confirmed gone.
//! - Sub-traversals are inserted last stage first, and removed first stage first.
//! - A key (tag, match and length in a stage) is free before another entry takes it.
//! - The tags of an entry are held until it is confirmed gone. The number of a tag is reused only
//!   after all packets with the tag have left the device.
//!
//! A candidate is a key without a decision: the agent translates it at its current version (rule
//! 5). So an old candidate causes no stale entry.
//!
//! # Stale devices
//!
//! A device is *stale* if it is lost, or does not confirm within [`OffloadConfig::confirm_within`]:
//! it may forward by removed rules. Versions are then acknowledged, and pulls answered, without
//! waiting for the device. [`OffloadStatus::state`] and the log name the state, its beginning and
//! its reason. The state ends when the device is present and all stale entries are confirmed as
//! removed.
//!
//! # Hits
//!
//! The device's counters are read every [`OffloadConfig::count_every`], and on each pull. The
//! difference to the previous reading is credited to the rules of the entry, at the time of the
//! reading. A removal also returns the last counters, if the device counts. Hits between that reading
//! and the removal are lost, and so are hits that a device counted before it lost its state. A
//! reading that takes too long delays no pull, and does not make the device stale, because versions
//! wait only for removals.
//!
//! # Large flows
//!
//! Packet threads offer flows that miss, and one packet in 128, so a large flow is offered again and again.
//! A full stage keeps new entries and used entries apart
//! ([`Eviction`](shunt_gigaflow::ltm::Eviction)). The counters show which entries have large flows;
//! such entries are evicted last.
//!
//! # Forecasts
//!
//! A candidate can be a [forecast](crate::forecast). The entries of a forecast are inserted like
//! other entries, and are speculative until the device has counted a packet for them. The agent
//! reports the outcome to the packet thread ([`DeviceOutcome`](crate::forecast::DeviceOutcome)).
//!
//! # Wiring
//!
//! [`offload_endpoint`] creates the channels. The control plane gets the [`OffloadHandle`]; its
//! [`wake`](OffloadHandle::wake) is the device's notification. Each packet thread gets
//! [`OffloadCandidates`], the eviction coordinator gets a
//! [`CoordinatorEndpoint`](crate::CoordinatorEndpoint), the [`OffloadAgent`] gets the
//! [`OffloadEndpoint`], and [`spawn_offload_thread`] runs the agent.

mod config;
mod endpoints;
mod status;

mod drain;
mod insertion_limit;
mod judge;
mod large_flows;
mod ledger;
mod pending_traversals;
mod reading;

mod agent;
mod exchange;
mod forecasts;
mod intake;
mod runner;

pub use agent::OffloadAgent;
pub use config::OffloadConfig;
pub use endpoints::{
    OffloadCandidate, OffloadCandidates, OffloadEndpoint, OffloadHandle, offload_endpoint,
};
pub use runner::spawn_offload_thread;
pub use status::{
    LATENCY_BUCKETS, LatencyHistogram, OffloadRefusal, OffloadState, OffloadStatus,
    OperationCounts, StaleReason,
};

//! Ports, packet threads, caches and the execution of actions.
//!
//! A [`PacketThread`] receives bursts of frames from [`RxQueue`]s, and finds the cache entry of each
//! packet. The thread executes the actions of the entry, and sends the packets to [`TxQueue`]s. If
//! no entry matches, the pipeline translates the packet, and the result becomes a cache entry.
//!
//! When the tables change, an [`EvictionCoordinator`] sends each thread the new version and the
//! entries that it makes stale. The thread drops the entries between two bursts, and acknowledges
//! the version.
//!
//! | module | contents |
//! | --- | --- |
//! | [`packet`] | packets in buffers, token buckets, checksum and segmentation offload |
//! | [`port`] | the contract of ports, and the port types |
//! | [`cache`] | the exact-match cache, and the caches behind it |
//! | [`egress`] | egress queues of ports with QoS |
//! | [`forecast`] | cache entries for flows that are about to arrive |
//! | [`thread`] | packet threads and their poll loop |
//! | [`evict`] | the protocol of versions and evictions between threads |
//! | [`offload`] | the thread that keeps the entries of a NIC equal to the tables |
//! | [`capture`], [`sample`], [`netflow`] | copies, samples and flows of packets, for the operator |
//! | [`command`] | requests of the control plane to a packet thread |
//! | [`metrics`] | counters, and the reasons of drops |
//!
//! The crate knows no controllers, no OpenFlow messages and no configuration files.
//! `docs/versions.md` explains the protocol of versions, with the test of each rule.

pub mod packet;
pub mod port;

pub mod cache;
pub mod egress;
#[cfg(not(loom))]
pub mod forecast;
#[cfg(not(loom))]
pub mod thread;

pub mod evict;
#[cfg(not(loom))]
pub mod offload;

pub mod capture;
#[cfg(not(loom))]
pub mod command;
mod histogram;
pub mod metrics;
pub mod netflow;
mod reasons;
#[cfg(not(loom))]
pub mod rule_sample;
pub mod sample;
mod sync;

#[cfg(not(loom))]
pub use command::{Command, DATAPATH_PORT_MAX, NO_INGRESS, Repair};
pub use evict::{
    coordinator::{
        ChangeSender, CoordinatorEndpoint, EvictionCoordinator, EvictionTotals, LearnedChange,
        OwnerStatus,
    },
    handle::CoordinatorHandle,
    history::{CoordinatorClock, Evicted, EvictedBy, EvictionHistory},
    link::Link,
    mailbox::{Invalidation, Mailbox},
    owner::{Dropped, InstallError, LearnQueueFull, LearnRequest, LearnSeq, Owner, Report},
    signal::Signal,
    waker::Waker,
};
pub use histogram::{Histogram, HistogramCounters};
pub use metrics::{DropReason, RxLoss, ThreadCounters};
pub use packet::{
    buffer::{BURST, Packet, Pool},
    virtio::VirtioHeader,
};
pub use port::{Port, PortError, RxQueue, TxEnd, TxQueue};
#[cfg(not(loom))]
pub use thread::{Iteration, PacketThread, ThreadConfig};

//! Ports, packet threads, caches and the execution of actions.

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

//! Ports, packet threads, caches and the execution of actions.

mod packet;
pub mod port;
pub mod segment;
pub mod virtio;

pub mod cache;
pub mod capture;
#[cfg(not(loom))]
mod change;
pub mod command;
#[cfg(not(loom))]
mod execute;
mod link;
pub mod mailbox;
#[cfg(not(loom))]
mod meter;
pub mod metrics;
pub mod owner;
mod reasons;
pub mod record;
mod sleep;
mod sync;

pub mod coordinator;
pub mod handle;
#[cfg(not(loom))]
pub mod offload;
#[cfg(not(loom))]
pub mod thread;

#[cfg(feature = "testing")]
pub mod testing;

pub use command::{Command, DATAPATH_PORT_MAX, NO_INGRESS, Repair};
pub use coordinator::{
    ChangeSender, CoordinatorEndpoint, EvictionCoordinator, EvictionTotals, Learned, OwnerStatus,
};
pub use handle::CoordinatorHandle;
pub use link::Link;
pub use mailbox::{Invalidation, Mailbox};
pub use metrics::{DropReason, ThreadCounters};
pub use owner::{Dropped, InstallError, LearnQueueFull, LearnRequest, LearnSeq, Owner, Report};
pub use packet::{BURST, Packet, Pool};
pub use port::{Port, PortError, RxQueue, TxEnd, TxQueue};
pub use record::{CoordinatorClock, Evicted, EvictedBy, EvictionHistory, Histogram};
pub use sleep::Waker;
#[cfg(not(loom))]
pub use thread::{PacketThread, ThreadConfig, Turn};
pub use virtio::Offload;

//! Ports, packet threads, caches and the execution of actions.

pub mod offload;
mod packet;
pub mod port;
pub mod segment;

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

pub mod desk;
pub mod seat;
#[cfg(not(loom))]
pub mod target;
#[cfg(not(loom))]
pub mod thread;

#[cfg(feature = "testing")]
pub mod testing;

pub use command::{Command, DATAPATH_PORT_MAX, NO_INGRESS, Repair};
pub use desk::{ChangeSender, DeskEnds, DeskTotals, EvictionDesk, LaneStatus, Learned};
pub use link::Link;
pub use mailbox::{Advance, Mailbox};
pub use metrics::{DropReason, ThreadCounters};
pub use offload::Offload;
pub use owner::{Dropped, InstallError, Lesson, LessonNo, LessonsFull, Owner, Report};
pub use packet::{BURST, Packet, Pool};
pub use port::{Port, PortError, RxQueue, TxEnd, TxQueue};
pub use record::{DeskClock, DeskRecord, Evicted, EvictedBy, Histogram};
pub use seat::DeskSeat;
pub use sleep::Waker;
#[cfg(not(loom))]
pub use thread::{PacketThread, ThreadConfig, Turn};

//! A packet thread: from receive queues through the caches to transmit queues, in turns.
//!
//! [`PacketThread`] is the thread without the thread: it owns queues, caches and counters, reads no
//! clock and never waits, so that tests drive many of them in any interleaving. The loop that turns
//! one on a thread of its own is started by [`spawn_packet_thread`].
//!
//! A turn:
//!
//! ```text
//!   invalidation, commands of control
//!   entries that it took:    translate and install again                   (bounded)
//!   for each receive queue:  invalidation ─ receive ─ extract ─ caches ─ execute
//!   packets that wait:       look up again ─ translate, install or learn ─ execute   (bounded)
//!   flush every transmit queue
//!   upkeep:                  reclaim, credit, expire, dump                     (bounded)
//!   publish counters, wake who has something to do
//! ```
//!
//! A version is adopted only where no packet is under way, so no packet mixes versions: what waits
//! for a translation waits with its original headers and is looked up anew. Every step is bounded,
//! and so is the time until the next version is adopted.

mod control;
mod dry_run;
mod endpoints;
pub(crate) mod execute;
mod packet_thread;
mod receive;
mod repair;
pub(crate) mod runner;
mod stall_budget;
mod upcall_queue;
mod upkeep;
mod verify;

pub use endpoints::{ControlEnds, QueueSizes, ThreadEnds, Wakers, thread_ends};
use packet_thread::Batch;
pub use packet_thread::{PacketThread, ThreadConfig, Turn};
pub use runner::{RunnerConfig, Running, spawn_coordinator, spawn_packet_thread};
pub use verify::Difference;

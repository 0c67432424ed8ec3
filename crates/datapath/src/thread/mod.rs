//! A packet thread: receive queues, caches, actions and transmit queues in one poll loop.
//!
//! [`PacketThread`] is the state of the loop: queues, caches and counters. A packet thread reads no
//! clock and never waits, so a test can run the iterations of many packet threads in any order.
//! [`spawn_packet_thread`] starts the OS thread that calls [`PacketThread::run_iteration`] in a
//! loop.
//!
//! One iteration:
//!
//! ```text
//!   invalidation, commands of the control plane
//!   evicted entries:         translate and install again                   (bounded)
//!   for each ready queue:    invalidation ─ receive ─ extract ─ caches ─ execute
//!   upcall queues:           look up again ─ translate, install or learn ─ execute   (bounded)
//!   forecasts:               translate and install while no packet waits   (bounded)
//!   flush the transmit queues that were used
//!   upkeep:                  reclaim, credit, expire, dump                     (bounded)
//!   publish counters, wake the threads that have work
//! ```
//!
//! A thread adopts a version only between bursts, so one version decides each packet. A packet in
//! an upcall queue keeps its original headers and is looked up again later. Every step is bounded,
//! and so is the time until the thread adopts the next version.

mod control;
mod cpu_binding;
mod drop_reason;
mod endpoints;
pub(crate) mod execute;
mod flows;
mod frame_limit;
mod netflow;
mod packet_in;
mod packet_thread;
mod police;
mod port_bindings;
mod punt;
mod qos;
mod readiness;
mod receive;
mod release;
pub(crate) mod runner;
mod sample;
mod table_trainings;
mod tally;
mod translations;
mod tx_port;
mod upkeep;
mod verify;

pub use endpoints::{ControlEnds, QueueSizes, ThreadEnds, Wakers, thread_ends};
pub use packet_in::PacketInReceiver;
use packet_thread::RxBatch;
pub use packet_thread::{Iteration, PacketThread, ThreadConfig};
pub use runner::{RunnerConfig, Running, spawn_coordinator, spawn_packet_thread};
pub use shunt_thread_watch::{CurrentIteration, IterationWatch};
pub use verify::CacheMismatch;

//! The NIC in front of a bridge: what it is, how it is exchanged, what it says of itself.
//!
//! ```text
//!  port ──► NIC (embedded, or elsewhere) ──► port
//!             │  ▲ rules, by P4Runtime
//!   no entry  │  └── Exchange ◄── OffloadAgent ◄── keys that missed ── packet threads
//!             ▼                                                          ▲
//!        representor ────────────────────────────────────────────────────┘
//! ```
//!
//! The thread of the target's owner is there since the switch had a NIC for the first time, so that
//! versions wait for it; what it owns is an [`Exchange`], in which one NIC gives way to another, or to
//! none, while packets flow. An owner is laid out for the stages of its NIC and the bridge behind it: with
//! a NIC that comes after none begins a new one.

mod check;
mod exchange;
mod front;
#[cfg(test)]
mod laws;
mod leaving;
mod owner;
mod status;
mod watch;

pub(crate) use exchange::{Exchange, Successors};
pub(crate) use front::{Layout, NUMBER_MAX, NicFront, Target};
pub(crate) use owner::{NicOwner, OwnerSettings, StartedOwner};
pub use status::{NicStatus, NicTraffic, OperationsStatus, StageFill};

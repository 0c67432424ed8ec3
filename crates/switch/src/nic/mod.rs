//! The NIC in front of a bridge: its devices, their replacement, and its status.
//!
//! ```text
//!  port ──► NIC (embedded or external) ──► port
//!             │  ▲ entries, by P4Runtime
//!       miss  │  └── DeviceExchange ◄── OffloadAgent ◄── keys that missed ── packet threads
//!             ▼                                                          ▲
//!        representor ────────────────────────────────────────────────────┘
//! ```
//!
//! The offload thread starts when the switch gets its first NIC, because from then on every version
//! waits for the thread's acknowledgement. The agent of the thread owns a [`DeviceExchange`], which
//! replaces one NIC by another, or by none, while packets flow. The stages and the bridge of an
//! agent never change. A new agent starts when a NIC is enabled again after `kind = "none"`.

mod agent;
mod check;
mod device_exchange;
mod draining;
mod front;
#[cfg(test)]
mod invariants;
mod slot;
mod status;

pub(crate) use agent::{AgentSettings, NicAgent, StartedAgent};
pub(crate) use device_exchange::{DeviceExchange, SuccessorSender};
pub(crate) use front::{
    EXTERNAL_NUMBER_MAX, NUMBER_MAX, NicFront, OffloadConnection, OffloadLayout,
};
pub(crate) use slot::NicSlot;
pub use status::{NicStatus, NicTraffic, OperationsStatus, StageFill};

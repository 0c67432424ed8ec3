//! The embedded NIC: LTM tables in software with the limits of a NIC, ports in front of them, and a
//! P4Runtime server beside.
//!
//! Whatever drives it, a switch of ours or another's controller, speaks gRPC to it as to hardware, so
//! that offloading runs on any machine.
//!
//! ```text
//!             P4Runtime
//!                 │
//!             Service ── Front (entries come and go) ──┐
//!                 ▲                                    ▼
//!  port ──► thread: take apart ──► Chain::walk ──► rewrite ──► port
//!                 │                    │ no entry
//!                 └── packet-in ◄──────┘
//! ```
//!
//! It forwards as `p4/gigaflow.p4` says: packets that the program cannot take apart, and those that
//! find no end, go to the controller as they came.
//!
//! ```
//! use shunt_flow::FlowKey;
//! use shunt_nic::{Chain, Limits, Verdict};
//! use shunt_p4runtime::program::Program;
//!
//! let chain = Chain::new(Program::default(), Limits::default(), 1);
//! let verdict = chain.walk(&FlowKey::ZERO, &mut Vec::new());
//! assert!(matches!(verdict, Verdict::Punt { reason: 0, miss_tag: 0, last_stage: 0 }));
//! ```

mod chain;
mod front;
mod limits;
mod nic;
mod packets;
mod stage;
mod thread;

pub use chain::{Chain, Verdict};
pub use front::Front;
pub use limits::Limits;
pub use nic::{Nic, NicError, NicPort};

//! The embedded NIC: LTM tables in software with the limits of a NIC, ports in front of them, and a
//! P4Runtime server beside.
//!
//! Whatever drives it speaks gRPC to it as to hardware. Today that is `shuntd nic` with another's
//! controller, and whoever uses [`P4Target`](shunt_p4runtime::client::P4Target); the datapath of the
//! switch does not put a NIC in front of itself yet.
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
//! use shunt_nic::{Chain, Limits, Verdict, Walk};
//! use shunt_p4runtime::program::Program;
//!
//! let chain = Chain::new(Program::default(), Limits::default(), 1);
//! let verdict = chain.walk(&FlowKey::ZERO, &mut Walk::default());
//! assert!(matches!(verdict, Verdict::Punt { reason: 0, miss_tag: 0, last_stage: 0 }));
//! ```

mod chain;
mod drops;
mod front;
mod limits;
mod nic;
mod outbox;
mod packets;
mod table;
mod thread;

pub use chain::{Chain, Verdict, Walk};
pub use drops::{DropReason, Traffic};
pub use front::Front;
pub use limits::Limits;
pub use nic::{Nic, NicError, NicPort};

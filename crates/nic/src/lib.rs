//! The embedded NIC: LTM tables in software with the limits of a NIC, ports in front of them, and a
//! P4Runtime server beside.
//!
//! Whatever drives it speaks gRPC to it as to hardware: `shuntd nic` with another's controller, or a
//! switch of ours with a [`P4RuntimeDevice`](shunt_p4runtime::client::P4RuntimeDevice).
//!
//! ```text
//!             P4Runtime
//!                 │
//!             Service ── Front (entries come and go) ──┐
//!                 ▲                                    ▼
//!  port ──► thread: take apart ──► Chain::walk ──► rewrite ──► port
//!   ▲             │                    │ no entry
//!   │             └── packet-in ◄──────┤
//!   └────────────────────────────── representor ◄──► switch
//! ```
//!
//! A port may have a *representor*, a second port at which the switch has what the NIC knows no end
//! for, and by which it sends: so traffic goes by the NIC first, and by the switch on a miss. A NIC of
//! its own has devices for it; one inside a switch is put in front of the switch's ports while it runs
//! ([`NicPorts`]).
//!
//! It forwards as `p4/gigaflow.p4` says: packets that the program cannot take apart, and those that
//! find no end, go to the representor, or where there is none to the controller, as they came.
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

mod bell;
mod chain;
mod drops;
mod error;
mod front;
mod limits;
mod nic;
mod orders;
mod packets;
mod represent;
mod side;
mod table;
mod thread;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chain::{Chain, Verdict, Walk};
pub use drops::{DropReason, Traffic};
pub use error::NicError;
pub use front::Front;
pub use limits::Limits;
pub use nic::{Nic, NicPort};
pub use represent::NicPorts;

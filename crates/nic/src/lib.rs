//! The embedded NIC: the LTM tables of Gigaflow in software, with ports and a P4Runtime server.
//!
//! The NIC behaves like a SmartNIC in front of a switch. The NIC forwards packets that hit in its
//! LTM tables, and passes all other packets to the switch. The NIC has the limits of hardware: a
//! bounded number of stages, entries, masks and key bits. The program `p4/gigaflow.p4` defines its
//! tables and actions.
//!
//! A controller drives the NIC over gRPC, as it drives hardware. The controller is a switch with a
//! [`P4RuntimeDevice`](shunt_p4runtime::client::P4RuntimeDevice), or for `shuntd nic` any P4Runtime
//! controller.
//!
//! ```text
//!             P4Runtime
//!                 │
//!             Service ── NicDevice (writes entries) ────┐
//!                 ▲                                     ▼
//!  port ──► thread: parse_frame ──► NicChain::walk ──► rewrite ──► port
//!   ▲             │                     │ miss
//!   │             └── packet-in ◄───────┤
//!   └─────────────────────────────── representor ◄──► switch
//! ```
//!
//! A port may have a *representor*, which is a second port that the switch uses. Packets that miss
//! in the NIC arrive on the representor. Packets that the switch sends by the representor leave by
//! the port of the NIC. So packets pass the NIC first, and reach the switch only on a miss. The
//! representors of a stand-alone NIC are devices. An embedded NIC takes over the ports of its
//! switch while the switch runs ([`NicPorts`]).
//!
//! A packet that misses, or that the program cannot parse, goes unchanged to the representor of its
//! ingress port. If the port has no representor, the packet goes to the controller.
//!
//! The NIC of this example has no entries, so each packet misses in the first stage:
//!
//! ```
//! use shunt_flow::FlowKey;
//! use shunt_nic::{NicChain, NicLimits, NicVerdict, NicWalk};
//! use shunt_p4runtime::program::Program;
//!
//! let chain = NicChain::new(Program::default(), NicLimits::default(), 1);
//! let verdict = chain.walk(&FlowKey::ZERO, &mut NicWalk::default());
//! assert!(matches!(verdict, NicVerdict::Punt { reason: 0, miss_tag: 0, last_stage: 0 }));
//! ```

mod chain;
mod commands;
mod counters;
mod device;
mod error;
mod limits;
mod nic;
mod packets;
mod ports;
mod table;
mod thread;

#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use chain::{NicChain, NicVerdict, NicWalk};
pub use counters::{NicCounters, NicDropReason, NicPortLosses};
pub use device::NicDevice;
pub use error::NicError;
pub use limits::NicLimits;
pub use nic::{Nic, NicPort};
pub use ports::representor::NicPorts;

//! Actions of OpenFlow and of the Nicira extensions, as a controller gives them.
//!
//! ```text
//! list         one action              subfield    bits of a field
//! controller   packet-ins              learn       rules made of packets
//! hash         choices by a hash       conntrack   connection tracking and samples: model only
//! ```

mod conntrack;
mod controller;
mod hash;
mod learn;
mod list;
mod subfield;

pub use conntrack::{
    CtAction, CtZone, NatAction, NatKind, NatRange, SampleAction, SampleDirection,
};
pub use controller::{ControllerAction, PacketInReason};
pub use hash::{BundleAction, BundleAlgorithm, HashFields, MultipathAction, MultipathAlgorithm};
pub use learn::{LearnAction, LearnSource, LearnSpec, LearnTarget};
pub use list::{Action, CLONE_DEPTH_MAX};
pub use subfield::Subfield;

//! The identities of the objects of a desired state.

/// The identity of an object, which its number is no part of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ObjectId {
    /// The settings of the switch.
    Settings,
    /// A bridge with its own settings, by name.
    Bridge(String),
    /// The controllers of a bridge, and its addresses for controllers, by bridge.
    Controllers(String),
    /// The sFlow options of a bridge, by bridge.
    Sflow(String),
    /// The NetFlow options of a bridge, by bridge.
    Netflow(String),
    /// The IPFIX options of a bridge, by bridge.
    Ipfix(String),
    /// The sets of IPFIX collectors of a bridge, by bridge.
    CollectorSets(String),
    /// All bonds of a bridge, by bridge.
    Bonds(String),
    /// A bond, by name.
    Bond(String),
    /// A port with its VLANs, limits, QoS and BFD session, by name.
    Port(String),
    /// A mirror of a bridge.
    Mirror {
        /// Name of the bridge.
        bridge: String,
        /// Name of the mirror.
        name: String,
    },
}

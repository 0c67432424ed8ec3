//! Bundles: several changes that are committed together (ONF EXT-230; OpenFlow 1.4.1, 7.3.9).

use super::{Message, Xid};

/// The id of a bundle, chosen by its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub u32);

/// `ofp_bundle_flags`.
///
/// Bundles are always atomic and ordered, regardless of the flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleFlags {
    /// All or nothing; no packet sees a part of the bundle (`OFPBF_ATOMIC`).
    pub atomic: bool,
    /// Committed in the order of the add messages (`OFPBF_ORDERED`).
    pub ordered: bool,
}

/// `ofp_bundle_ctrl_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleCommand {
    /// The bundle control message `OFPBCT_OPEN_REQUEST`.
    Open,
    /// The bundle control message `OFPBCT_OPEN_REPLY`.
    Opened,
    /// The bundle control message `OFPBCT_CLOSE_REQUEST`.
    Close,
    /// The bundle control message `OFPBCT_CLOSE_REPLY`.
    Closed,
    /// The bundle control message `OFPBCT_COMMIT_REQUEST`.
    Commit,
    /// The bundle control message `OFPBCT_COMMIT_REPLY`.
    Committed,
    /// The bundle control message `OFPBCT_DISCARD_REQUEST`.
    Discard,
    /// The bundle control message `OFPBCT_DISCARD_REPLY`.
    Discarded,
}

/// `ofp_bundle_ctrl_msg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Id of the bundle, which the controller chose.
    pub bundle: BundleId,
    /// The request for the bundle, such as to commit it, or the reply to that.
    pub command: BundleCommand,
    /// The flags of the bundle.
    pub flags: BundleFlags,
}

/// `ofp_bundle_add_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// Id of the bundle to which the message is added.
    pub bundle: BundleId,
    /// The flags of the bundle.
    pub flags: BundleFlags,
    /// Transaction id of the message inside.
    pub xid: Xid,
    /// The message inside: a flow-mod, group-mod, port-mod or packet-out.
    pub message: Box<Message>,
}

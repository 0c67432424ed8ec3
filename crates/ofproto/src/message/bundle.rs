//! Bundles: several changes that become true together (ONF EXT-230; OpenFlow 1.4.1, 7.3.9).

use super::{Message, Xid};

/// A bundle's number, chosen by its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BundleId(pub u32);

/// `ofp_bundle_flags`. Bundles are always atomic and ordered here, whichever is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BundleFlags {
    /// All or nothing, and no packet sees half of it (`OFPBF_ATOMIC`).
    pub atomic: bool,
    /// In the order of the additions (`OFPBF_ORDERED`).
    pub ordered: bool,
}

/// `ofp_bundle_ctrl_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BundleCommand {
    /// `OFPBCT_OPEN_REQUEST`.
    Open,
    /// `OFPBCT_OPEN_REPLY`.
    Opened,
    /// `OFPBCT_CLOSE_REQUEST`.
    Close,
    /// `OFPBCT_CLOSE_REPLY`.
    Closed,
    /// `OFPBCT_COMMIT_REQUEST`.
    Commit,
    /// `OFPBCT_COMMIT_REPLY`.
    Committed,
    /// `OFPBCT_DISCARD_REQUEST`.
    Discard,
    /// `OFPBCT_DISCARD_REPLY`.
    Discarded,
}

/// `ofp_bundle_ctrl_msg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BundleControl {
    /// Which bundle.
    pub bundle: BundleId,
    /// What about it.
    pub command: BundleCommand,
    /// How.
    pub flags: BundleFlags,
}

/// `ofp_bundle_add_msg`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BundleAdd {
    /// Which bundle.
    pub bundle: BundleId,
    /// The flags of the bundle.
    pub flags: BundleFlags,
    /// The transaction id of the message inside.
    pub xid: Xid,
    /// The message inside: a flow-mod, group-mod, port-mod or packet-out.
    pub message: Box<Message>,
}

//! Actions of OpenFlow and of the Nicira extensions, as a controller gives them.

use shunt_flow::{FieldId, PortNo};

use crate::TableId;

/// Some consecutive bits of a field, such as `NXM_NX_REG0[0..15]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Subfield {
    /// The field.
    pub field: FieldId,
    /// Its lowest bit, counted from the field's least significant one.
    pub offset: u8,
    /// Number of bits, at least 1; `offset + width` is at most the field's width.
    pub width: u8,
}

impl Subfield {
    /// A whole field.
    #[must_use]
    pub const fn whole(field: FieldId) -> Self {
        Self { field, offset: 0, width: field.width() }
    }

    /// `None` where the bits would leave the field.
    #[must_use]
    pub fn new(field: FieldId, offset: u8, width: u8) -> Option<Self> {
        let end = u16::from(offset) + u16::from(width);
        (width > 0 && end <= u16::from(field.width())).then_some(Self { field, offset, width })
    }

    /// The bits, as a mask of the field's value.
    #[must_use]
    pub const fn bits(self) -> u128 {
        (u128::MAX >> (128 - self.width)) << self.offset
    }
}

/// One action of a rule, in the words of the standard.
///
/// What is not here does not exist yet: the codec and the text parser refuse it with the right
/// error, so that a rule is never accepted and ignored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `output`: send to a port or a reserved port (`OFPAT_OUTPUT`).
    Output {
        /// Where to.
        port: PortNo,
        /// Bytes of a packet-in when `port` is the controller; else ignored.
        max_len: u16,
    },
    /// `output:FIELD[..]`: send to the port that a field names (`NXAST_OUTPUT_REG`).
    OutputField {
        /// Where the port number is read.
        source: Subfield,
        /// As for [`Action::Output`].
        max_len: u16,
    },
    /// `output(port=..,max_len=..)`: send the first bytes only (`NXAST_OUTPUT_TRUNC`).
    OutputTruncated {
        /// Where to.
        port: PortNo,
        /// Length to cut to, at least 14.
        max_len: u32,
    },
    /// `controller(..)`: a packet-in with more to say (`NXAST_CONTROLLER`, `NXAST_CONTROLLER2`).
    Controller(Box<ControllerAction>),
    /// `set_field:VALUE[/MASK]->FIELD` (`OFPAT_SET_FIELD`; with a mask `NXAST_REG_LOAD2`).
    SetField {
        /// What to write.
        field: FieldId,
        /// The value; bits outside the mask are zero.
        value: u128,
        /// The bits to write.
        mask: u128,
    },
    /// `load:VALUE->FIELD[..]` (`NXAST_REG_LOAD`).
    Load {
        /// What to write.
        target: Subfield,
        /// The value, no wider than the target.
        value: u64,
    },
    /// `move:FIELD[..]->FIELD[..]` (`NXAST_REG_MOVE`); both of one width.
    Move {
        /// What to read.
        source: Subfield,
        /// What to write.
        target: Subfield,
    },
    /// `push_vlan:TPID` (`OFPAT_PUSH_VLAN`): 0x8100 or 0x88a8.
    PushVlan {
        /// Ethernet type of the new tag.
        ethertype: u16,
    },
    /// `pop_vlan`, `strip_vlan` (`OFPAT_POP_VLAN`).
    PopVlan,
    /// `dec_ttl` (`OFPAT_DEC_NW_TTL`, `NXAST_DEC_TTL`, `NXAST_DEC_TTL_CNT_IDS`).
    DecTtl {
        /// Controllers that hear of an expired TTL; 0 alone unless the rule names others.
        controllers: Box<[u16]>,
    },
    /// `resubmit(PORT,TABLE[,ct])` (`NXAST_RESUBMIT`, `NXAST_RESUBMIT_TABLE`).
    Resubmit {
        /// `in_port` to look up with; `None`: the one that the packet has.
        port: Option<PortNo>,
        /// Table to look up in; `None`: the one that the rule stands in.
        table: Option<TableId>,
    },
    /// `set_queue:QUEUE` (`OFPAT_SET_QUEUE`): carried to the output.
    SetQueue(u32),
    /// `pop_queue` (`NXAST_POP_QUEUE`).
    PopQueue,
    /// `clone(..)`: run actions and put the packet back as it was (`NXAST_CLONE`).
    Clone(Box<[Self]>),
    /// `note:HEX`: does nothing (`NXAST_NOTE`).
    Note(Box<[u8]>),
    /// `exit`: ends the translation (`NXAST_EXIT`).
    Exit,
}

/// What a `controller` action asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ControllerAction {
    /// Bytes of the packet to send.
    pub max_len: u16,
    /// Which controllers: those with this id (`NXT_SET_CONTROLLER_ID`); 0 by default.
    pub controller_id: u16,
    /// The reason that the packet-in gives.
    pub reason: PacketInReason,
    /// Bytes that come back in the packet-in.
    pub userdata: Box<[u8]>,
}

/// Why a packet goes to a controller (OpenFlow 1.3.5, 7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketInReason {
    /// The table-miss rule sent it.
    NoMatch,
    /// An action sent it.
    Action,
    /// Its TTL was not valid.
    InvalidTtl,
    /// The action set sent it (OpenFlow 1.4).
    ActionSet,
    /// A group sent it (OpenFlow 1.4).
    Group,
    /// A packet-out sent it (OpenFlow 1.4).
    PacketOut,
}

//! OpenFlow actions and Nicira extension actions, as a controller sends them.

use shunt_flow::{FieldId, PortNo};

use super::{
    BundleAction, ControllerAction, CtAction, LearnAction, MultipathAction, NatAction,
    SampleAction, Subfield,
};
use crate::id::{GroupId, MeterId, TableId};

/// Largest depth of nested `clone` actions.
/// The limit applies to every format in which rules are read.
///
/// Open vSwitch has no limit except its stack.
pub const CLONE_DEPTH_MAX: usize = 32;

/// One action of a rule, under its OpenFlow name.
///
/// A rule with an unsupported action is refused with the right error, never accepted and ignored.
/// The codec and the text parser refuse actions that are not in this list.
/// [`Pipeline::apply`](crate::Pipeline::apply) refuses the actions that [`Action::unsupported`]
/// names.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// `output`: send to a port or a reserved port (`OFPAT_OUTPUT`).
    Output {
        /// The output port, or a reserved port.
        port: PortNo,
        /// Bytes of a packet-in when `port` is the controller; else ignored.
        max_len: u16,
    },
    /// `output:FIELD[..]`: send to the port that a field names (`NXAST_OUTPUT_REG`).
    OutputField {
        /// The field that holds the port number.
        source: Subfield,
        /// Bytes of a packet-in when the port is the controller; else ignored.
        max_len: u16,
    },
    /// `output(port=..,max_len=..)`: send the first bytes only (`NXAST_OUTPUT_TRUNC`).
    OutputTruncated {
        /// The output port, or a reserved port.
        port: PortNo,
        /// Length to truncate to, at least 14.
        max_len: u32,
    },
    /// `controller(..)`: a packet-in with options.
    /// OpenFlow encodes the action as `NXAST_CONTROLLER` or `NXAST_CONTROLLER2`.
    Controller(Box<ControllerAction>),
    /// `set_field:VALUE[/MASK]->FIELD`.
    /// OpenFlow encodes the action as `OFPAT_SET_FIELD`, and with a mask as `NXAST_REG_LOAD2`.
    SetField {
        /// The field to write.
        field: FieldId,
        /// The value; bits outside the mask are zero.
        value: u128,
        /// The bits to write.
        mask: u128,
    },
    /// The action `load:VALUE->FIELD[..]` (`NXAST_REG_LOAD`).
    Load {
        /// The bits to write.
        target: Subfield,
        /// The value, no wider than the target.
        value: u64,
    },
    /// `move:FIELD[..]->FIELD[..]` (`NXAST_REG_MOVE`); both of one width.
    Move {
        /// The bits to read.
        source: Subfield,
        /// The bits to write.
        target: Subfield,
    },
    /// `push_vlan:TPID` (`OFPAT_PUSH_VLAN`): 0x8100 or 0x88a8.
    PushVlan {
        /// Ethernet type of the new tag.
        ethertype: u16,
    },
    /// The action `pop_vlan`, `strip_vlan` (`OFPAT_POP_VLAN`).
    PopVlan,
    /// The action `dec_ttl` (`OFPAT_DEC_NW_TTL`, `NXAST_DEC_TTL`).
    DecTtl {
        /// Controllers to notify of an expired TTL; only 0 unless the rule names others.
        controllers: Box<[u16]>,
    },
    /// The action `resubmit` (`NXAST_RESUBMIT`, `NXAST_RESUBMIT_TABLE`).
    Resubmit {
        /// `in_port` to look up with; `None`: the `in_port` of the packet.
        port: Option<PortNo>,
        /// Table to look up in; `None`: the table of the rule.
        table: Option<TableId>,
    },
    /// `set_queue:QUEUE` (`OFPAT_SET_QUEUE`): the egress queue of later outputs.
    SetQueue(u32),
    /// `pop_queue` (`NXAST_POP_QUEUE`): the default queue again.
    PopQueue {
        /// True for the last of the three actions that `enqueue` of OpenFlow 1.0 means.
        ///
        /// OpenFlow 1.0 and saved rules list `enqueue` in place of the three.
        ends_enqueue: bool,
    },
    /// `clone(..)`: run actions, then restore the packet (`NXAST_CLONE`).
    Clone(Box<[Self]>),
    /// The action `note:HEX`, which has no effect (`NXAST_NOTE`).
    Note(Box<[u8]>),
    /// `exit`: ends the translation (`NXAST_EXIT`).
    Exit,
    /// `group:ID` (`OFPAT_GROUP`): run buckets of a group.
    Group(GroupId),
    /// `meter:ID` (`OFPAT_METER` of OpenFlow 1.5; in 1.3 an instruction).
    Meter(MeterId),
    /// The action `mod_nw_ttl:TTL` (`OFPAT_SET_NW_TTL`).
    SetNwTtl(u8),
    /// `mod_tp_src:PORT`: write the source port of TCP, UDP or SCTP.
    ///
    /// The action does not name the protocol (`OFPAT_SET_TP_SRC` of OpenFlow 1.1).
    SetTpSrc(u16),
    /// `mod_tp_dst:PORT`: write the destination port of TCP, UDP or SCTP.
    ///
    /// The action does not name the protocol (`OFPAT_SET_TP_DST` of OpenFlow 1.1).
    SetTpDst(u16),
    /// `copy_ttl_out`: copy the TTL to the outermost header (`OFPAT_COPY_TTL_OUT`).
    ///
    /// The source is the second outermost header with a TTL.
    CopyTtlOut,
    /// `copy_ttl_in`: copy the TTL of the outermost header (`OFPAT_COPY_TTL_IN`).
    ///
    /// The target is the second outermost header with a TTL.
    CopyTtlIn,
    /// `push_mpls:TYPE` (`OFPAT_PUSH_MPLS`): 0x8847 or 0x8848.
    PushMpls {
        /// Ethernet type of the packet after the push.
        ethertype: u16,
    },
    /// The action `pop_mpls:TYPE` (`OFPAT_POP_MPLS`).
    PopMpls {
        /// Ethernet type of the packet after its last label is popped.
        ethertype: u16,
    },
    /// The action `set_mpls_ttl:TTL` (`OFPAT_SET_MPLS_TTL`).
    SetMplsTtl(u8),
    /// The action `dec_mpls_ttl` (`OFPAT_DEC_MPLS_TTL`).
    DecMplsTtl,
    /// The action `push:FIELD[..]` (`NXAST_STACK_PUSH`).
    Push(Subfield),
    /// The action `pop:FIELD[..]` (`NXAST_STACK_POP`).
    Pop(Subfield),
    /// `learn(..)`: add or refresh a rule (`NXAST_LEARN`, `NXAST_LEARN2`).
    Learn(Box<LearnAction>),
    /// `conjunction(ID,K/N)`: one clause of a conjunctive match (`NXAST_CONJUNCTION`).
    Conjunction {
        /// Number of the conjunction: the value of `conj_id` when it matches.
        id: u32,
        /// Number of the clause, from 0.
        clause: u8,
        /// Number of clauses: 2 to 64.
        clauses_count: u8,
    },
    /// `multipath(..)` (`NXAST_MULTIPATH`): a hash of the packet into a field.
    Multipath(Box<MultipathAction>),
    /// `bundle(..)`, `bundle_load(..)`: choose a port.
    /// OpenFlow encodes the actions as `NXAST_BUNDLE` and `NXAST_BUNDLE_LOAD`.
    Bundle(Box<BundleAction>),
    /// `fin_timeout(..)`: shorten timeouts after a TCP FIN or RST.
    /// OpenFlow encodes the action as `NXAST_FIN_TIMEOUT`.
    FinTimeout {
        /// New idle timeout in seconds; 0: unchanged.
        idle: u16,
        /// New hard timeout in seconds; 0: unchanged.
        hard: u16,
    },
    /// The action `check_pkt_larger(LENGTH)->FIELD[BIT]` (`NXAST_CHECK_PKT_LARGER`).
    CheckPktLarger {
        /// Largest length of a frame, in bytes, that clears the bit.
        length: u16,
        /// The bit to set if the frame is larger, and to clear if not.
        target: Subfield,
    },
    /// `ct(..)` (`NXAST_CT`).
    ///
    /// A pipeline refuses rules with it, because there is no connection tracking yet.
    Ct(Box<CtAction>),
    /// `ct_clear` (`NXAST_CT_CLEAR`); refused like [`Action::Ct`].
    CtClear,
    /// `nat(..)` (`NXAST_NAT`), inside `ct`; refused like [`Action::Ct`].
    Nat(Box<NatAction>),
    /// `sample(..)` (`NXAST_SAMPLE3`): sample the packet for collectors.
    Sample(Box<SampleAction>),
}

impl Action {
    /// Returns the reason why pipelines refuse the action, or `None`.
    #[must_use]
    pub const fn unsupported(&self) -> Option<&'static str> {
        match self {
            Self::Ct(_) => Some("ct: connection tracking is not supported"),
            Self::CtClear => Some("ct_clear: connection tracking is not supported"),
            Self::Nat(_) => Some("nat: connection tracking is not supported"),
            _ => None,
        }
    }

    /// Returns whether an action set can hold the action.
    ///
    /// An action set can hold the actions of OpenFlow 1.3.5, 5.10, and those that Open vSwitch
    /// adds.
    #[must_use]
    pub const fn is_settable(&self) -> bool {
        match self {
            Self::Output { .. }
            | Self::Group(_)
            | Self::SetField { .. }
            | Self::Load { .. }
            | Self::Move { .. }
            | Self::SetNwTtl(_)
            | Self::SetTpSrc(_)
            | Self::SetTpDst(_)
            | Self::PushVlan { .. }
            | Self::PopVlan
            | Self::PushMpls { .. }
            | Self::PopMpls { .. }
            | Self::SetMplsTtl(_)
            | Self::DecMplsTtl
            | Self::DecTtl { .. }
            | Self::CopyTtlOut
            | Self::CopyTtlIn
            | Self::Resubmit { .. }
            | Self::Ct(_)
            | Self::SetQueue(_) => true,
            Self::OutputField { .. }
            | Self::OutputTruncated { .. }
            | Self::Controller(_)
            | Self::PopQueue { .. }
            | Self::Clone(_)
            | Self::Note(_)
            | Self::Exit
            | Self::Meter(_)
            | Self::Push(_)
            | Self::Pop(_)
            | Self::Learn(_)
            | Self::Conjunction { .. }
            | Self::Multipath(_)
            | Self::Bundle(_)
            | Self::FinTimeout { .. }
            | Self::CheckPktLarger { .. }
            | Self::CtClear
            | Self::Nat(_)
            | Self::Sample(_) => false,
        }
    }
}

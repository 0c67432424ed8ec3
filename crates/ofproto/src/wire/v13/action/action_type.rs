//! Action numbers that this switch reads or writes (`ofp_action_type`, `nx_action_subtype`).

pub(super) const OUTPUT: u16 = 0;
pub(super) const SET_VLAN_VID: u16 = 1;
pub(super) const SET_VLAN_PCP: u16 = 2;
pub(super) const SET_DL_SRC: u16 = 3;
pub(super) const SET_DL_DST: u16 = 4;
pub(super) const SET_NW_SRC: u16 = 5;
pub(super) const SET_NW_DST: u16 = 6;
pub(super) const SET_NW_TOS: u16 = 7;
pub(super) const SET_NW_ECN: u16 = 8;
pub(super) const SET_TP_SRC: u16 = 9;
pub(super) const SET_TP_DST: u16 = 10;
pub(super) const COPY_TTL_OUT: u16 = 11;
pub(super) const COPY_TTL_IN: u16 = 12;
pub(super) const SET_MPLS_LABEL: u16 = 13;
pub(super) const SET_MPLS_TC: u16 = 14;
pub(super) const SET_MPLS_TTL: u16 = 15;
pub(super) const DEC_MPLS_TTL: u16 = 16;
pub(super) const PUSH_VLAN: u16 = 17;
pub(super) const POP_VLAN: u16 = 18;
pub(super) const PUSH_MPLS: u16 = 19;
pub(super) const POP_MPLS: u16 = 20;
pub(super) const SET_QUEUE: u16 = 21;
pub(super) const GROUP: u16 = 22;
pub(super) const SET_NW_TTL: u16 = 23;
pub(super) const DEC_NW_TTL: u16 = 24;
pub(super) const SET_FIELD: u16 = 25;
pub(super) const EXPERIMENTER: u16 = 0xffff;

/// Actions of the standard that rules and buckets may have.
///
/// `copy_ttl_out` and `copy_ttl_in` are refused: `ovs-ofctl` cannot read a reply that contains them.
pub(crate) const STANDARD: [u16; 12] = [
    OUTPUT,
    SET_MPLS_TTL,
    DEC_MPLS_TTL,
    PUSH_VLAN,
    POP_VLAN,
    PUSH_MPLS,
    POP_MPLS,
    SET_QUEUE,
    GROUP,
    SET_NW_TTL,
    DEC_NW_TTL,
    SET_FIELD,
];

/// Actions of OpenFlow 1.1 that later versions removed.
///
/// Open vSwitch still reads these actions. `ovs-ofctl` sends `SET_TP_SRC` and `SET_TP_DST` where it
/// does not know the protocol, for example in buckets.
pub(crate) const OPENFLOW11: [u16; 12] = [
    SET_VLAN_VID,
    SET_VLAN_PCP,
    SET_DL_SRC,
    SET_DL_DST,
    SET_NW_SRC,
    SET_NW_DST,
    SET_NW_TOS,
    SET_NW_ECN,
    SET_TP_SRC,
    SET_TP_DST,
    SET_MPLS_LABEL,
    SET_MPLS_TC,
];

/// Subtypes of Nicira's actions.
pub(super) mod nx {
    pub(in crate::wire::v13::action) const RESUBMIT: u16 = 1;
    pub(in crate::wire::v13::action) const SET_TUNNEL: u16 = 2;
    pub(in crate::wire::v13::action) const POP_QUEUE: u16 = 5;
    pub(in crate::wire::v13::action) const REG_MOVE: u16 = 6;
    pub(in crate::wire::v13::action) const REG_LOAD: u16 = 7;
    pub(in crate::wire::v13::action) const NOTE: u16 = 8;
    pub(in crate::wire::v13::action) const SET_TUNNEL64: u16 = 9;
    pub(in crate::wire::v13::action) const MULTIPATH: u16 = 10;
    pub(in crate::wire::v13::action) const BUNDLE: u16 = 12;
    pub(in crate::wire::v13::action) const BUNDLE_LOAD: u16 = 13;
    pub(in crate::wire::v13::action) const RESUBMIT_TABLE: u16 = 14;
    pub(in crate::wire::v13::action) const OUTPUT_REG: u16 = 15;
    pub(in crate::wire::v13::action) const LEARN: u16 = 16;
    pub(in crate::wire::v13::action) const EXIT: u16 = 17;
    pub(in crate::wire::v13::action) const FIN_TIMEOUT: u16 = 19;
    pub(in crate::wire::v13::action) const CONTROLLER: u16 = 20;
    pub(in crate::wire::v13::action) const DEC_TTL_CNT_IDS: u16 = 21;
    pub(in crate::wire::v13::action) const WRITE_METADATA: u16 = 22;
    pub(in crate::wire::v13::action) const STACK_PUSH: u16 = 27;
    pub(in crate::wire::v13::action) const STACK_POP: u16 = 28;
    pub(in crate::wire::v13::action) const SAMPLE: u16 = 29;
    pub(in crate::wire::v13::action) const OUTPUT_REG2: u16 = 32;
    pub(in crate::wire::v13::action) const REG_LOAD2: u16 = 33;
    pub(in crate::wire::v13::action) const CONJUNCTION: u16 = 34;
    pub(in crate::wire::v13::action) const CT: u16 = 35;
    pub(in crate::wire::v13::action) const NAT: u16 = 36;
    pub(in crate::wire::v13::action) const CONTROLLER2: u16 = 37;
    pub(in crate::wire::v13::action) const SAMPLE2: u16 = 38;
    pub(in crate::wire::v13::action) const OUTPUT_TRUNC: u16 = 39;
    pub(in crate::wire::v13::action) const SAMPLE3: u16 = 41;
    pub(in crate::wire::v13::action) const CLONE: u16 = 42;
    pub(in crate::wire::v13::action) const CT_CLEAR: u16 = 43;
    pub(in crate::wire::v13::action) const LEARN2: u16 = 45;
    pub(in crate::wire::v13::action) const CHECK_PKT_LARGER: u16 = 49;
}

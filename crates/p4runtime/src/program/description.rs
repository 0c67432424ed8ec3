//! Tables, fields and actions of the LTM program, with their ids and widths.
//!
//! ```text
//! start            ltm_1                  ltm_2 .. ltm_K
//! packet ──────► tag 1 ──► tag, fields ──► tag ──► tag, fields ──► forward | drop
//! │ a stage without an entry for the tag is skipped
//! └──► after the last stage: punt, unmodified
//! ```
//!
//! An entry has exactly one action, so each action that rewrites headers also decides how the
//! packet continues. Every write is masked, as in an LTM rule. The fields come from a flow key
//! and share its positions: the ARP operation is stored with the IP protocol, and ICMP type and
//! code with the ports.
//!
//! Tags and ports have 16 bits. Bit 12 of `vlan_tci` is set exactly if the packet has a tag (the
//! present bit of Open vSwitch). The parser refuses the following packets, which never enter the
//! tables:
//!
//! * two VLAN tags, NSH, ARP for other address types
//! * IPv4 options, IPv6 extension headers
//! * SCTP, IGMP, neighbour discovery, ICMP of the other IP version
//! * truncated headers, inconsistent lengths

use shunt_flow::FieldId;

/// The LTM program: the number of stages and their size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    stages: u8,
    size: u32,
}

/// The number of stages is out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the program cannot have {0} stages: use 1 to {max}", max = Program::STAGES_MAX)]
pub struct UnknownStages(pub u8);

impl Program {
    /// Maximum number of stages.
    pub const STAGES_MAX: u8 = 16;

    /// Creates a program of `stages` tables with `size` entries each.
    ///
    /// # Errors
    ///
    /// The number of stages is out of range.
    pub const fn new(stages: u8, size: u32) -> Result<Self, UnknownStages> {
        if stages == 0 || stages > Self::STAGES_MAX {
            return Err(UnknownStages(stages));
        }
        Ok(Self { stages, size })
    }

    /// Returns the number of LTM stages of the program.
    #[must_use]
    pub const fn stages(&self) -> u8 {
        self.stages
    }

    /// Returns the number of entries per stage.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// Returns the table id of a stage; stages count from 0, table names from 1.
    #[must_use]
    pub fn table_id(&self, stage: u8) -> u32 {
        TABLE_PREFIX + 1 + u32::from(stage)
    }

    /// Returns the stage of a table id.
    #[must_use]
    pub fn stage(&self, table_id: u32) -> Option<u8> {
        let stage = u8::try_from(table_id.checked_sub(TABLE_PREFIX + 1)?).ok()?;
        (stage < self.stages).then_some(stage)
    }

    /// Returns the direct counter id of a stage.
    #[must_use]
    pub fn counter_id(&self, stage: u8) -> u32 {
        DIRECT_COUNTER_PREFIX + 1 + u32::from(stage)
    }
}

impl Default for Program {
    /// Returns the program of `p4/gigaflow.p4`: four stages of 8192 entries.
    fn default() -> Self {
        Self { stages: 4, size: 8192 }
    }
}

/// The match kind of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// The field is matched in all bits.
    Exact,
    /// Matches the bits of a mask.
    Ternary,
}

/// The source of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldSource {
    /// The tag of the packet.
    Tag,
    /// The field is the ingress port.
    InPort,
    /// A field of the flow key.
    Header(FieldId),
}

/// A field of the key of every LTM table.
/// The id of a key field is its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// The id of the field in matches.
    pub id: u32,
    /// Name in the P4Info and in the program.
    pub name: &'static str,
    /// The width of the field in bits.
    pub width: u16,
    /// The kind of the match, such as ternary.
    pub kind: MatchKind,
    /// Source of the value.
    pub source: FieldSource,
}

/// Returns a field of the table key.
const fn key_field(
    id: u32,
    name: &'static str,
    width: u16,
    kind: MatchKind,
    source: FieldSource,
) -> KeyField {
    KeyField { id, name, width, kind, source }
}

/// Returns a field of the table key that is a header field.
const fn header(id: u32, name: &'static str, width: u16, field: FieldId) -> KeyField {
    key_field(id, name, width, MatchKind::Ternary, FieldSource::Header(field))
}

/// Returns the key of every LTM table, by id.
#[must_use]
pub const fn key_fields() -> &'static [KeyField] {
    KEY
}

/// The key fields of every table, by id.
const KEY: &[KeyField] = &[
    key_field(1, "tag", TAG_WIDTH, MatchKind::Exact, FieldSource::Tag),
    key_field(2, "in_port", 16, MatchKind::Ternary, FieldSource::InPort),
    header(3, "eth_dst", 48, FieldId::EthDst),
    header(4, "eth_src", 48, FieldId::EthSrc),
    header(5, "eth_type", 16, FieldId::EthType),
    header(6, "vlan_tci", 16, FieldId::VlanTci),
    header(7, "ip_src", 32, FieldId::Ipv4Src),
    header(8, "ip_dst", 32, FieldId::Ipv4Dst),
    header(9, "nw_proto", 16, FieldId::ArpOp),
    header(10, "nw_tos", 8, FieldId::NwTos),
    header(11, "nw_ttl", 8, FieldId::NwTtl),
    header(12, "ip_frag", 2, FieldId::NwFrag),
    header(13, "tp_src", 16, FieldId::TcpSrc),
    header(14, "tp_dst", 16, FieldId::TcpDst),
    header(15, "tcp_flags", 12, FieldId::TcpFlags),
    header(16, "ipv6_src", 128, FieldId::Ipv6Src),
    header(17, "ipv6_dst", 128, FieldId::Ipv6Dst),
];

/// The next step of a packet after an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disposition {
    /// The packet continues in a later stage, with the tag in the last parameter.
    Next,
    /// The packet leaves by the port in the last parameter.
    /// The packet is dropped if that port is its ingress port.
    Forward,
    /// The packet is dropped.
    Drop,
    /// The packet goes to the controller, unmodified.
    Punt,
    /// The packet continues as if the table did not exist.
    Miss,
}

/// The role of an action parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamRole {
    /// The value to write to a field.
    Value(&'static KeyField),
    /// The mask of the bits to write.
    Mask(&'static KeyField),
    /// The parameter is the next tag.
    Tag,
    /// The parameter is the egress port.
    Port,
}

/// A parameter of an action. The id of a parameter is its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// The id of the parameter in actions.
    pub id: u32,
    /// The width of the parameter in bits.
    pub width: u16,
    /// Role of the parameter.
    pub role: ParamRole,
}

impl Param {
    /// Returns the name in the P4Info and in the program.
    #[must_use]
    pub fn name(&self) -> String {
        match self.role {
            ParamRole::Value(field) => field.name.to_owned(),
            ParamRole::Mask(field) => format!("{}_mask", field.name),
            ParamRole::Tag => "tag".to_owned(),
            ParamRole::Port => "port".to_owned(),
        }
    }
}

/// An action that entries of an LTM table can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionSpec {
    /// Id of the action in the P4Info.
    pub id: u32,
    /// Name in the P4Info and in the program.
    pub name: &'static str,
    /// Positions of the written fields in the key.
    writes: &'static [usize],
    /// The next step of the packet.
    pub disposition: Disposition,
}

impl ActionSpec {
    /// Returns the fields that the action writes.
    pub fn writes(&self) -> impl Iterator<Item = &'static KeyField> {
        self.writes.iter().filter_map(|index| KEY.get(*index))
    }

    /// Returns the parameters by id: value and mask per field, then tag or port.
    pub fn params(&self) -> impl Iterator<Item = Param> {
        let written = self.writes().flat_map(|field| {
            [(ParamRole::Value(field), field.width), (ParamRole::Mask(field), field.width)]
        });
        let disposition = match self.disposition {
            Disposition::Next => Some((ParamRole::Tag, TAG_WIDTH)),
            Disposition::Forward => Some((ParamRole::Port, PORT_WIDTH)),
            Disposition::Drop | Disposition::Punt | Disposition::Miss => None,
        };
        (1..).zip(written.chain(disposition)).map(|(id, (role, width))| Param { id, width, role })
    }
}

/// Returns the description of an action.
const fn action(
    number: u32,
    name: &'static str,
    writes: &'static [usize],
    disposition: Disposition,
) -> ActionSpec {
    ActionSpec { id: ACTION_PREFIX + number, name, writes, disposition }
}

/// Returns the actions of entries, with the narrowest suitable action first.
#[must_use]
pub const fn actions() -> &'static [ActionSpec] {
    ACTIONS
}

/// Positions of Ethernet fields in the key.
const ETHERNET: &[usize] = &[2, 3, 5];
/// Positions of IP fields in the key.
const IP: &[usize] = &[6, 7, 9, 10];
/// Positions of transport fields in the key.
const TRANSPORT: &[usize] = &[12, 13];
/// Positions of all fields in the key that an action can write.
const ALL: &[usize] = &[2, 3, 5, 6, 7, 9, 10, 12, 13, 15, 16];

/// The actions of every table, by id.
const ACTIONS: &[ActionSpec] = &[
    action(1, "next", &[], Disposition::Next),
    action(2, "forward", &[], Disposition::Forward),
    action(3, "drop", &[], Disposition::Drop),
    PUNT_ACTION,
    action(5, "set_ethernet", ETHERNET, Disposition::Next),
    action(6, "set_ethernet_forward", ETHERNET, Disposition::Forward),
    action(7, "set_ip", IP, Disposition::Next),
    action(8, "set_ip_forward", IP, Disposition::Forward),
    action(9, "set_transport", TRANSPORT, Disposition::Next),
    action(10, "set_transport_forward", TRANSPORT, Disposition::Forward),
    action(11, "rewrite", ALL, Disposition::Next),
    action(12, "rewrite_forward", ALL, Disposition::Forward),
];

/// Punts the packet, unmodified.
pub const PUNT_ACTION: ActionSpec = action(4, "punt", &[], Disposition::Punt);

/// The default action of every LTM table; entries may not use this action.
pub const MISS_ACTION: ActionSpec = action(13, "miss", &[], Disposition::Miss);

/// The action of the start table: it sets the first tag of a packet.
pub const START_ACTION: ActionSpec = action(14, "start", &[], Disposition::Next);

/// The table before the stages.
///
/// The start table has no key: its default action sets the first tag.
pub const START_TABLE: u32 = TABLE_PREFIX + 0x100;

/// The first tag until the controller sets another.
pub const TAG_FIRST: u16 = 0;

/// Width of a tag in bits.
pub const TAG_WIDTH: u16 = 16;

/// Width of a port in bits.
const PORT_WIDTH: u16 = 16;

/// The port of the controller, on a switch without another path to it.
pub const CPU_PORT: u16 = 510;

/// The metadata header of a packet to or from the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Id that P4 compilers assign.
    pub id: u32,
    /// The name of the header: `packet_in` or `packet_out`.
    pub name: &'static str,
    /// Fields by id, from 1.
    pub fields: &'static [PacketField],
}

/// A field of a packet metadata header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketField {
    /// Id of the field.
    pub id: u32,
    /// Name in the P4Info and in the program.
    pub name: &'static str,
    /// Width of the field in bits.
    pub width: u16,
}

/// Metadata of a punted packet.
///
/// `reason` is 0 if no entry matched, 1 if the parser refused the packet, and 2 if an entry punts
/// it. `miss_tag` is the tag without a matching entry, and `last_stage` the last stage with a
/// matching entry.
pub const PACKET_IN: PacketHeader = PacketHeader {
    id: 81_826_293,
    name: "packet_in",
    fields: &[
        PacketField { id: 1, name: "ingress_port", width: PORT_WIDTH },
        PacketField { id: 2, name: "reason", width: 8 },
        PacketField { id: 3, name: "miss_tag", width: TAG_WIDTH },
        PacketField { id: 4, name: "last_stage", width: 8 },
    ],
};

/// Metadata of a packet from the controller.
///
/// If `resubmit` is zero, the packet leaves by `egress_port`. Otherwise the packet goes through the
/// tables as if it had arrived on `ingress_port`.
pub const PACKET_OUT: PacketHeader = PacketHeader {
    id: 76_689_799,
    name: "packet_out",
    fields: &[
        PacketField { id: 1, name: "egress_port", width: PORT_WIDTH },
        PacketField { id: 2, name: "ingress_port", width: PORT_WIDTH },
        PacketField { id: 3, name: "resubmit", width: 8 },
    ],
};

/// The top byte of an id is the kind of its object.
const ACTION_PREFIX: u32 = 0x0100_0000;
/// The first byte of the id of a table.
const TABLE_PREFIX: u32 = 0x0200_0000;
/// The first byte of the id of a direct counter.
const DIRECT_COUNTER_PREFIX: u32 = 0x1300_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_the_p4_program_count_from_one() {
        for (id, field) in (1..).zip(key_fields()) {
            assert_eq!(field.id, id, "{}", field.name);
        }
        for (id, action) in (ACTION_PREFIX + 1..).zip(actions()) {
            assert_eq!(action.id, id, "{}", action.name);
        }
    }

    #[test]
    fn field_widths_equal_flow_key() {
        for field in key_fields() {
            if let FieldSource::Header(id) = field.source {
                assert_eq!(u16::from(id.info().slot.width), field.width, "{}", field.name);
            }
        }
    }

    #[test]
    fn every_table_has_an_id_of_its_own() {
        let program = Program::default();
        for stage in 0..program.stages() {
            assert_eq!(program.stage(program.table_id(stage)), Some(stage));
        }
        assert_eq!(program.stage(program.table_id(program.stages())), None);
        assert_eq!(program.stage(START_TABLE), None);
        assert_eq!(program.stage(0), None);
        assert_eq!(Program::new(0, 1), Err(UnknownStages(0)));
        assert_eq!(Program::new(17, 1), Err(UnknownStages(17)));
    }
}

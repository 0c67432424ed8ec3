//! Tables, fields and actions of the LTM cache, with their numbers and widths.
//!
//! ```text
//!          start            ltm_1                  ltm_2 .. ltm_K
//! packet ──────► tag 1 ──► tag, fields ──► tag ──► tag, fields ──► forward | drop
//!                             │ a stage without an entry for the tag lets the packet pass
//!                             └──► behind the last stage: to the controller, as it came
//! ```
//!
//! An entry has exactly one action, so each action that writes headers also says how the packet goes
//! on. Every write is masked, as a rule of an LTM stage is. Fields are those of a flow key, by the
//! places where it has them: what ARP has for an operation lies with the protocol of IP, what ICMP has
//! for type and code with the ports.
//!
//! Tags are 16 bits; ports, too. `vlan_tci` has bit 12 set exactly if the packet has a tag (the
//! present bit of Open vSwitch). A packet that the program cannot take apart (two tags, options of
//! IPv4, extensions of IPv6, SCTP, IGMP, NSH, neighbour discovery, ICMP in the other version of IP, ARP
//! of other addresses, headers cut short, lengths that disagree with the frame or with each other) never
//! enters the tables.

use shunt_flow::FieldId;

/// The cache as a program: how many stages, and how large each is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    stages: u8,
    size: u32,
}

/// A number of stages that the program does not come with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a program of {0} stages: there are 1 to {max}", max = Program::STAGES_MAX)]
pub struct UnknownStages(pub u8);

impl Program {
    /// Most stages of a program.
    pub const STAGES_MAX: u8 = 16;

    /// A program of `stages` tables of `size` entries.
    ///
    /// # Errors
    ///
    /// There are no programs of so many stages.
    pub const fn new(stages: u8, size: u32) -> Result<Self, UnknownStages> {
        if stages == 0 || stages > Self::STAGES_MAX {
            return Err(UnknownStages(stages));
        }
        Ok(Self { stages, size })
    }

    /// Number of stages.
    #[must_use]
    pub const fn stages(&self) -> u8 {
        self.stages
    }

    /// Entries of each stage.
    #[must_use]
    pub const fn size(&self) -> u32 {
        self.size
    }

    /// The id of a stage's table; stages count from 0, names from 1.
    #[must_use]
    pub fn table_id(&self, stage: u8) -> u32 {
        TABLE_PREFIX + 1 + u32::from(stage)
    }

    /// The stage of a table.
    #[must_use]
    pub fn stage(&self, table_id: u32) -> Option<u8> {
        let stage = u8::try_from(table_id.checked_sub(TABLE_PREFIX + 1)?).ok()?;
        (stage < self.stages).then_some(stage)
    }

    /// The id of the counter of a stage's table.
    #[must_use]
    pub fn counter_id(&self, stage: u8) -> u32 {
        DIRECT_COUNTER_PREFIX + 1 + u32::from(stage)
    }
}

impl Default for Program {
    /// Four stages of 8192 entries: what `p4/gigaflow.p4` is written for.
    fn default() -> Self {
        Self { stages: 4, size: 8192 }
    }
}

/// How a field of a key is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// All bits.
    Exact,
    /// The bits of a mask.
    Ternary,
}

/// Where the value of a field of a key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The tag that the packet arrives with.
    Tag,
    /// The port that it came in by.
    InPort,
    /// A field of its flow key.
    Header(FieldId),
}

/// One field of the key of every LTM table. Its id is its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyField {
    /// Its number in matches.
    pub id: u32,
    /// As P4Info and the program call it.
    pub name: &'static str,
    /// In bits.
    pub width: u16,
    /// How it is matched.
    pub kind: MatchKind,
    /// What it is of a packet.
    pub place: Place,
}

const fn key(
    id: u32,
    name: &'static str,
    width: u16,
    (kind, place): (MatchKind, Place),
) -> KeyField {
    KeyField { id, name, width, kind, place }
}

const fn header(field: FieldId) -> (MatchKind, Place) {
    (MatchKind::Ternary, Place::Header(field))
}

/// The key of every LTM table, by id.
#[must_use]
pub const fn key_fields() -> &'static [KeyField] {
    KEY
}

const KEY: &[KeyField] = &[
    key(1, "tag", TAG_WIDTH, (MatchKind::Exact, Place::Tag)),
    key(2, "in_port", 16, (MatchKind::Ternary, Place::InPort)),
    key(3, "eth_dst", 48, header(FieldId::EthDst)),
    key(4, "eth_src", 48, header(FieldId::EthSrc)),
    key(5, "eth_type", 16, header(FieldId::EthType)),
    key(6, "vlan_tci", 16, header(FieldId::VlanTci)),
    key(7, "ip_src", 32, header(FieldId::Ipv4Src)),
    key(8, "ip_dst", 32, header(FieldId::Ipv4Dst)),
    key(9, "nw_proto", 16, header(FieldId::ArpOp)),
    key(10, "nw_tos", 8, header(FieldId::NwTos)),
    key(11, "nw_ttl", 8, header(FieldId::NwTtl)),
    key(12, "ip_frag", 2, header(FieldId::NwFrag)),
    key(13, "tp_src", 16, header(FieldId::TcpSrc)),
    key(14, "tp_dst", 16, header(FieldId::TcpDst)),
    key(15, "tcp_flags", 12, header(FieldId::TcpFlags)),
    key(16, "ipv6_src", 128, header(FieldId::Ipv6Src)),
    key(17, "ipv6_dst", 128, header(FieldId::Ipv6Dst)),
];

/// How a packet goes on behind an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// In a later stage, with the tag of the last parameter.
    Next,
    /// Out by the port of the last parameter; nowhere if that is where it came from.
    Forward,
    /// Nowhere.
    Drop,
    /// To the controller, as it came.
    Punt,
    /// As if the table had not been there.
    Miss,
}

/// What a parameter of an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParamRole {
    /// Bits that a field takes.
    Value(&'static KeyField),
    /// Which of its bits.
    Mask(&'static KeyField),
    /// The tag to go on with.
    Tag,
    /// The port to leave by.
    Port,
}

/// One parameter of an action. Its id is its position, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Param {
    /// Its number in actions.
    pub id: u32,
    /// In bits.
    pub width: u16,
    /// What it is.
    pub role: ParamRole,
}

impl Param {
    /// As P4Info and the program call it.
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

/// An action that an entry of an LTM table can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionSpec {
    /// Its number.
    pub id: u32,
    /// As P4Info and the program call it.
    pub name: &'static str,
    /// Positions, in the key, of the fields that it writes.
    writes: &'static [usize],
    /// How the packet goes on.
    pub end: End,
}

impl ActionSpec {
    /// The fields that it writes.
    pub fn writes(&self) -> impl Iterator<Item = &'static KeyField> {
        self.writes.iter().filter_map(|index| KEY.get(*index))
    }

    /// Its parameters, by id: a value and a mask for each field, and how the packet goes on.
    pub fn params(&self) -> impl Iterator<Item = Param> {
        let written = self.writes().flat_map(|field| {
            [(ParamRole::Value(field), field.width), (ParamRole::Mask(field), field.width)]
        });
        let end = match self.end {
            End::Next => Some((ParamRole::Tag, TAG_WIDTH)),
            End::Forward => Some((ParamRole::Port, PORT_WIDTH)),
            End::Drop | End::Punt | End::Miss => None,
        };
        (1..).zip(written.chain(end)).map(|(id, (role, width))| Param { id, width, role })
    }
}

const fn action(number: u32, name: &'static str, writes: &'static [usize], end: End) -> ActionSpec {
    ActionSpec { id: ACTION_PREFIX + number, name, writes, end }
}

/// The actions that an entry can have, the narrowest that does a thing first.
#[must_use]
pub const fn actions() -> &'static [ActionSpec] {
    ACTIONS
}

/// Positions in the key.
const ETHERNET: &[usize] = &[2, 3, 5];
const IP: &[usize] = &[6, 7, 9, 10];
const TRANSPORT: &[usize] = &[12, 13];
const ALL: &[usize] = &[2, 3, 5, 6, 7, 9, 10, 12, 13, 15, 16];

const ACTIONS: &[ActionSpec] = &[
    action(1, "next", &[], End::Next),
    action(2, "forward", &[], End::Forward),
    action(3, "drop", &[], End::Drop),
    PUNT_ACTION,
    action(5, "set_ethernet", ETHERNET, End::Next),
    action(6, "set_ethernet_forward", ETHERNET, End::Forward),
    action(7, "set_ip", IP, End::Next),
    action(8, "set_ip_forward", IP, End::Forward),
    action(9, "set_transport", TRANSPORT, End::Next),
    action(10, "set_transport_forward", TRANSPORT, End::Forward),
    action(11, "rewrite", ALL, End::Next),
    action(12, "rewrite_forward", ALL, End::Forward),
];

/// Sends the packet to the controller as it came.
pub const PUNT_ACTION: ActionSpec = action(4, "punt", &[], End::Punt);

/// What an LTM table does with a packet that has no entry there; nothing else can have this action.
pub const MISS_ACTION: ActionSpec = action(13, "miss", &[], End::Miss);

/// What the table before the stages does: it gives a packet its first tag.
pub const START_ACTION: ActionSpec = action(14, "start", &[], End::Next);

/// The table before the stages. It has no key: its default action is the first tag.
pub const START_TABLE: u32 = TABLE_PREFIX + 0x100;

/// The first tag, until the controller says another.
pub const TAG_FIRST: u16 = 0;

/// Bits of a tag.
pub const TAG_WIDTH: u16 = 16;

/// Bits of a port.
const PORT_WIDTH: u16 = 16;

/// The port behind which the controller is, of a switch that has no other way to it.
pub const CPU_PORT: u16 = 510;

/// What comes with a packet from or to the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHeader {
    /// Its number, as P4 compilers give it.
    pub id: u32,
    /// `packet_in` or `packet_out`.
    pub name: &'static str,
    /// Its fields, by id from 1.
    pub fields: &'static [Meta],
}

/// A field of what comes with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Its number.
    pub id: u32,
    /// As P4Info and the program call it.
    pub name: &'static str,
    /// In bits.
    pub width: u16,
}

/// With a packet to the controller: where it came in; why it is sent (0 no entry, 1 it cannot be
/// taken apart, 2 an entry says so); the tag that no entry was found for, and the last stage that had
/// one.
pub const PACKET_IN: PacketHeader = PacketHeader {
    id: 81_826_293,
    name: "packet_in",
    fields: &[
        Meta { id: 1, name: "ingress_port", width: PORT_WIDTH },
        Meta { id: 2, name: "reason", width: 8 },
        Meta { id: 3, name: "miss_tag", width: TAG_WIDTH },
        Meta { id: 4, name: "last_stage", width: 8 },
    ],
};

/// With a packet from the controller: where it leaves; or, if `resubmit` is not zero, where it came
/// in, to go through the tables.
pub const PACKET_OUT: PacketHeader = PacketHeader {
    id: 76_689_799,
    name: "packet_out",
    fields: &[
        Meta { id: 1, name: "egress_port", width: PORT_WIDTH },
        Meta { id: 2, name: "ingress_port", width: PORT_WIDTH },
        Meta { id: 3, name: "resubmit", width: 8 },
    ],
};

/// The top byte of an id says of what kind its object is.
const ACTION_PREFIX: u32 = 0x0100_0000;
const TABLE_PREFIX: u32 = 0x0200_0000;
const DIRECT_COUNTER_PREFIX: u32 = 0x1300_0000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_positions_from_one() {
        for (id, field) in (1..).zip(key_fields()) {
            assert_eq!(field.id, id, "{}", field.name);
        }
        for (id, action) in (ACTION_PREFIX + 1..).zip(actions()) {
            assert_eq!(action.id, id, "{}", action.name);
        }
    }

    #[test]
    fn a_field_is_as_wide_as_in_a_flow_key() {
        for field in key_fields() {
            if let Place::Header(id) = field.place {
                assert_eq!(u16::from(id.info().slot.width), field.width, "{}", field.name);
            }
        }
    }

    #[test]
    fn a_table_has_an_id_and_an_id_a_table() {
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

//! Encoding of LTM rules as table entries, and decoding.
//!
//! A rule can match bits of a flow key for which the program has no field. [`encode`] refuses a
//! rule that the program cannot express, and never encodes a wider rule. Some matched bits are
//! implied, because every packet that the program parses has them. No packet has a second VLAN tag,
//! the first tag has type 0x8100, and all packets are Ethernet.
//!
//! A port has two numbers. Rules match the OpenFlow port number, which the program also uses. Rules
//! send to the datapath port number, which [`Ports`] maps to the port of the program.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, layout::FLOW_WORDS};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, PlainRule, Tag},
    offload::{Effects, OffloadCapabilities, Refusal},
    partition::StageId,
};
use shunt_pipeline::{DatapathAction, DatapathPort, QueueId};

mod sink;

pub(crate) use sink::EntrySink;

use crate::{
    entry::action_of,
    program::{
        ActionSpec, Disposition, FieldSource, KeyField, MatchKind, ParamRole, Program, TAG_WIDTH,
        actions, key_fields,
    },
    value,
    wire::p4::v1::{self, FieldMatch, TableEntry, field_match::FieldMatchType},
};

/// Maps each datapath port to its port in the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(pub BTreeMap<DatapathPort, u16>);

/// Features that only some devices support.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceFeatures {
    /// True if the device can modify entries.
    pub modifies: bool,
    /// True if the device counts the hits of each entry.
    pub counts: bool,
    /// True if the device reports idle entries.
    pub reports_idle: bool,
    /// Maximum number of different masks per stage; `None` means unlimited.
    pub masks_max: Option<usize>,
    /// Maximum number of bits that one entry may match; `None` means unlimited.
    pub key_bits_max: Option<u32>,
    /// Highest egress port. Ports of bmv2 have 9 bits, and the last ports are reserved.
    pub port_max: u16,
}

impl Default for DeviceFeatures {
    /// Returns the features of the embedded NIC.
    fn default() -> Self {
        Self {
            modifies: true,
            counts: true,
            reports_idle: true,
            masks_max: None,
            key_bits_max: None,
            port_max: u16::MAX,
        }
    }
}

/// Returns the capacity and features of the stages of a program.
///
/// The capabilities describe the rules that [`encode`] accepts, except for conditions on single
/// values.
#[must_use]
pub fn capabilities(program: &Program, features: &DeviceFeatures) -> OffloadCapabilities {
    let mut matches = FlowMask::EMPTY;
    let mut writes = FlowMask::EMPTY;
    let all = |mask: &mut FlowMask, field| add(mask, field, u128::MAX);
    key_fields().iter().filter_map(flow_field).for_each(|field| all(&mut matches, field));
    IMPLIED_FIELDS.iter().for_each(|field| matches.add_field(*field));
    for spec in actions() {
        spec.writes().filter_map(flow_field).for_each(|field| all(&mut writes, field));
    }
    TAG_FIELDS.iter().for_each(|field| writes.add_field(*field));
    OffloadCapabilities {
        stage_entries: (0..program.stages()).map(|_| program.size() as usize).collect(),
        matches,
        writes,
        masks_max: features.masks_max,
        key_bits_max: features.key_bits_max,
        tag_bits: TAG_BITS,
        // No chain may use more lookups than a translation.
        length_max: LOOKUPS_MAX / u16::from(program.stages().max(1)),
        effects: Effects::Plain,
        outputs: None,
        counts: features.counts,
        reports_idle: features.reports_idle,
        modifies: features.modifies,
    }
}

/// Maximum number of lookups of a translation.
const LOOKUPS_MAX: u16 = 4096;

/// Width of the tag field in the program.
const TAG_BITS: u8 = 16;
const _: () = assert!(TAG_BITS as u16 == TAG_WIDTH, "the widths of tags are equal");

/// Fields without a key in the program, with values that other fields imply.
///
/// A rule may match these values; see [`drop_implied`].
const IMPLIED_FIELDS: &[FieldId] =
    &[FieldId::PacketType, FieldId::VlanTpid, FieldId::VlanTpid1, FieldId::VlanTci1];

/// Tag fields that the program writes implicitly when it adds or removes a tag.
const TAG_FIELDS: &[FieldId] = &[FieldId::VlanTpid, FieldId::VlanTpid1, FieldId::VlanTci1];

/// The type of every tag, and the bit of `vlan_tci` that marks its presence.
const TPID: u128 = 0x8100;
/// The bit of a TCI that is set if the packet has the tag.
const TCI_PRESENT: u128 = 0x1000;

/// Returns all bits at the position of a field.
///
/// Some fields have fewer bits in rule text.
fn bits(words: &[u64; FLOW_WORDS], field: FieldId) -> u128 {
    field.info().slot.read(words)
}

/// Adds bits at the position of a field.
fn add(mask: &mut FlowMask, field: FieldId, bits: u128) {
    field.info().slot.write(mask.words_mut(), u128::MAX, bits);
}

/// Clears bits at the position of a field.
fn clear(mask: &mut FlowMask, field: FieldId, bits: u128) {
    field.info().slot.write(mask.words_mut(), 0, bits);
}

/// Returns the flow field of a key field; `None` for the tag.
fn flow_field(field: &KeyField) -> Option<FieldId> {
    match field.source {
        FieldSource::Tag => None,
        FieldSource::InPort => Some(FieldId::InPort),
        FieldSource::Header(id) => Some(id),
    }
}

/// Encodes a rule as an entry of the table of a stage.
///
/// # Errors
///
/// The program cannot express the rule.
pub fn encode(
    program: &Program,
    ports: &Ports,
    stage: StageId,
    rule: &LtmRule,
) -> Result<TableEntry, Refusal> {
    let mut entry = TableEntry::default();
    put(&mut entry, program, ports, stage, rule)?;
    Ok(entry)
}

/// Encodes the key of a rule, which selects its entry in reads and deletes.
///
/// # Errors
///
/// The program cannot express the rule.
pub fn encode_key(
    program: &Program,
    stage: StageId,
    rule: &LtmRule,
) -> Result<TableEntry, Refusal> {
    let mut entry = TableEntry::default();
    put_key(&mut entry, program, stage, rule)?;
    Ok(entry)
}

/// Writes a rule as an entry of the table of a stage.
pub(crate) fn put(
    sink: &mut impl EntrySink,
    program: &Program,
    ports: &Ports,
    stage: StageId,
    rule: &LtmRule,
) -> Result<(), Refusal> {
    let plain = rule.plain().ok_or(Refusal::Actions)?;
    sink.table(program.table_id(stage.number()));
    put_match(sink, rule)?;
    put_action(sink, ports, rule, &plain)?;
    sink.priority(priority(rule));
    Ok(())
}

/// Writes the key of a rule in the table of a stage.
pub(crate) fn put_key(
    sink: &mut impl EntrySink,
    program: &Program,
    stage: StageId,
    rule: &LtmRule,
) -> Result<(), Refusal> {
    sink.table(program.table_id(stage.number()));
    put_match(sink, rule)?;
    sink.priority(priority(rule));
    Ok(())
}

/// Returns the priority of the table entry of a rule.
fn priority(rule: &LtmRule) -> i32 {
    i32::from(rule.length.max(1))
}

/// Returns a tag as the table key has it.
fn wire_tag(tag: Tag) -> Result<u128, Refusal> {
    u16::try_from(tag.number()).map(u128::from).map_err(|_| Refusal::Tag(TAG_BITS))
}

/// Writes the match of a rule.
fn put_match(sink: &mut impl EntrySink, rule: &LtmRule) -> Result<(), Refusal> {
    let (key, mut left) = (rule.matching.key(), FlowMask::from(rule.matching.mask()));
    drop_implied(&key, &mut left)?;
    for field in key_fields() {
        match (field.kind, flow_field(field)) {
            (MatchKind::Exact, _) => sink.exact(field.id, wire_tag(rule.tag)?),
            (MatchKind::Ternary, Some(id)) => {
                let (mask, value) = (bits(left.words(), id), bits(key.words(), id));
                if mask == 0 {
                    continue;
                }
                clear(&mut left, id, u128::MAX);
                let narrowed = narrow(field, value, mask).map_err(|()| Refusal::Match(id))?;
                narrowed.into_iter().for_each(|(value, mask)| sink.ternary(field.id, value, mask));
            }
            (MatchKind::Ternary, None) => {}
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(first_field(&left).map_or(Refusal::MatchUnnamed, Refusal::Match))
}

/// Narrows a ternary match to the field width; `None` if the mask is empty.
///
/// The excess bits must be zero, as they are in every packet.
fn narrow(field: &KeyField, value: u128, mask: u128) -> Result<Option<(u128, u128)>, ()> {
    let ones = ones(field.width);
    if value & mask & !ones != 0 {
        return Err(());
    }
    let (value, mask) = (value & mask, mask & ones);
    Ok((mask != 0).then_some((value, mask)))
}

/// Removes implied bits from a mask, and adds the tag-present bit that they imply.
fn drop_implied(key: &FlowKey, left: &mut FlowMask) -> Result<(), Refusal> {
    for field in [FieldId::PacketType, FieldId::VlanTpid1, FieldId::VlanTci1] {
        if key.field(field) & left.field(field) != 0 {
            return Err(Refusal::Match(field));
        }
        left.remove_bits(field, u128::MAX);
    }
    let (mask, value) = (left.field(FieldId::VlanTpid), key.field(FieldId::VlanTpid));
    left.remove_bits(FieldId::VlanTpid, u128::MAX);
    let agrees = |tpid: u128| (tpid ^ value) & mask == 0;
    let present = key.field(FieldId::VlanTci) & TCI_PRESENT != 0;
    match (agrees(TPID), agrees(0)) {
        (true, true) => Ok(()),
        (with_tag, without) if with_tag && present || without && !present => {
            // The key of a rule is zero outside its mask: only masked bits count.
            let is_looked_at = left.field(FieldId::VlanTci) & TCI_PRESENT != 0;
            if !is_looked_at && with_tag {
                return Err(Refusal::Match(FieldId::VlanTpid));
            }
            left.add_bits(FieldId::VlanTci, TCI_PRESENT);
            Ok(())
        }
        _ => Err(Refusal::Match(FieldId::VlanTpid)),
    }
}

/// Removes written bits that follow from the presence of a tag after the write.
fn drop_implied_writes(key: &FlowKey, left: &mut FlowMask) -> Result<(), Refusal> {
    let is_written = left.field(FieldId::VlanTci) & TCI_PRESENT != 0;
    let is_there = key.field(FieldId::VlanTci) & TCI_PRESENT != 0;
    let tpid = if is_there { TPID } else { 0 };
    for (field, value) in
        [(FieldId::VlanTpid, tpid), (FieldId::VlanTpid1, 0), (FieldId::VlanTci1, 0)]
    {
        let mask = left.field(field);
        if mask != 0 && !is_written || (key.field(field) ^ value) & mask != 0 {
            return Err(Refusal::Write(field));
        }
        left.remove_bits(field, u128::MAX);
    }
    Ok(())
}

/// Writes the action of a rule.
fn put_action(
    sink: &mut impl EntrySink,
    ports: &Ports,
    rule: &LtmRule,
    plain: &PlainRule,
) -> Result<(), Refusal> {
    let (key, mut left) = (plain.rewrite.key(), FlowMask::from(plain.rewrite.mask()));
    drop_implied_writes(&key, &mut left)?;
    let mut written = WrittenFields::default();
    for field in key_fields().iter().filter(|field| field.source != FieldSource::InPort) {
        let Some(id) = flow_field(field) else { continue };
        let mask = bits(left.words(), id) & ones(field.width);
        if mask != 0 {
            clear(&mut left, id, mask);
            written.add(field, mask);
        }
    }
    if !left.is_empty() {
        return Err(first_field(&left).map_or(Refusal::WriteUnnamed, Refusal::Write));
    }
    let (disposition, last) = match (rule.next, plain.output) {
        (Next::Tag(tag), None) => (Disposition::Next, wire_tag(tag)?),
        (Next::Tag(_), Some(_)) => return Err(Refusal::Actions),
        (Next::End, None) => (Disposition::Drop, 0),
        (Next::End, Some(port)) => {
            (Disposition::Forward, output_port(ports, rule, port, plain)?.into())
        }
    };
    // A dropped packet needs no rewrite.
    let written = if disposition == Disposition::Drop { WrittenFields::default() } else { written };
    let fits = |spec: &&ActionSpec| spec.disposition == disposition && written.is_within(spec);
    let spec = actions().iter().find(fits).ok_or(Refusal::WriteUnnamed)?;
    let params = spec.params().map(|param| {
        let number = match param.role {
            ParamRole::Value(field) => {
                let value = flow_field(field).map_or(0, |id| bits(key.words(), id));
                value & written.mask(field)
            }
            ParamRole::Mask(field) => written.mask(field),
            ParamRole::Tag | ParamRole::Port => last,
        };
        (param.id, number)
    });
    sink.action(spec.id, params);
    Ok(())
}

/// The written bits of each key field, by its position.
#[derive(Default)]
struct WrittenFields {
    /// One bit per written field.
    fields: u32,
    masks: [u128; FIELDS_MAX],
}

/// Maximum number of key fields.
const FIELDS_MAX: usize = 20;
const _: () = assert!(key_fields().len() <= FIELDS_MAX, "every key field has a position");

impl WrittenFields {
    /// Returns the bit of a field in the set of written fields.
    const fn bit(field: &KeyField) -> u32 {
        1 << field.id
    }

    /// Adds the bits that an action writes to a field.
    fn add(&mut self, field: &KeyField, mask: u128) {
        if let Some(own) = self.masks.get_mut(field.id as usize - 1) {
            (*own, self.fields) = (mask, self.fields | Self::bit(field));
        }
    }

    /// Returns the mask of the written bits of a field.
    fn mask(&self, field: &KeyField) -> u128 {
        self.masks.get(field.id as usize - 1).copied().unwrap_or(0)
    }

    /// Returns whether an action writes all of these fields.
    fn is_within(&self, spec: &ActionSpec) -> bool {
        self.fields & !spec.writes().fold(0, |bits, field| bits | Self::bit(field)) == 0
    }
}

/// Returns the egress port of a rule.
///
/// The program never sends a packet back to its ingress port. A rule that may send to the ingress
/// port is refused.
fn output_port(
    ports: &Ports,
    rule: &LtmRule,
    port: DatapathPort,
    plain: &PlainRule,
) -> Result<u16, Refusal> {
    let number = *ports.0.get(&port).ok_or(Refusal::Actions)?;
    let mask = FlowMask::from(rule.matching.mask()).field(FieldId::InPort);
    let differs = (rule.matching.key().field(FieldId::InPort) ^ u128::from(number)) & mask != 0;
    if plain.unless_ingress || differs { Ok(number) } else { Err(Refusal::Actions) }
}

/// Returns a mask of `width` ones.
const fn ones(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

/// Returns the first field that a mask has bits of.
fn first_field(mask: &FlowMask) -> Option<FieldId> {
    FieldId::all().find(|field| mask.field(*field) != 0)
}

/// The reason why an entry cannot be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The entry is in a table that is not a stage.
    #[error("the table of the entry is not a stage of the P4 program")]
    Table,
    /// The match has a field or value that no table of the program has.
    #[error("the match of the entry has a field or value that the P4 program does not have")]
    Match,
    /// The action or a parameter is not in the program.
    #[error("the action of the entry, or a parameter, is not one of the P4 program")]
    Action,
}

/// The effect of a stage entry: it applies a rule, or punts packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// Packets that match are processed by the rule.
    Rule(LtmRule),
    /// Packets that match the rule are punted; only the match of the rule is used.
    Punt(LtmRule),
}

/// A decoded stage entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// The stage of the entry.
    pub stage: StageId,
    /// Priority of the entry; the matching entry of highest priority wins.
    ///
    /// The length of the rule is this value, limited to the largest length.
    pub priority: u32,
    /// The effect of the entry.
    pub meaning: Meaning,
}

/// Decodes an entry; the datapath ports of the rule are ports of the program.
///
/// # Errors
///
/// The entry does not belong to this program.
pub fn decode(program: &Program, entry: &TableEntry) -> Result<Decoded, DecodeError> {
    let stage = program.stage(entry.table_id).and_then(StageId::new).ok_or(DecodeError::Table)?;
    let priority = u32::try_from(entry.priority).map_err(|_| DecodeError::Match)?;
    let (tag, matching) = decode_match(&entry.r#match)?;
    let action = action_of(entry).ok_or(DecodeError::Action)?;
    let spec = actions().iter().find(|spec| spec.id == action.action_id);
    let spec = spec.ok_or(DecodeError::Action)?;
    let (rewrite, last) = decode_params(spec, action)?;
    let is_written = !rewrite.mask().is_empty();
    let set = is_written.then(|| DatapathAction::SetHeader(rewrite.clone()));
    let output = (spec.disposition == Disposition::Forward).then(|| DatapathAction::Output {
        port: DatapathPort::new(last),
        queue: QueueId::DEFAULT,
        unless_ingress: true,
        max_len: None,
    });
    let rule = LtmRule {
        tag,
        matching,
        // See `Decoded::priority`: the length is limited.
        length: u16::try_from(priority).unwrap_or(u16::MAX),
        actions: set.into_iter().chain(output).collect(),
        rewrite,
        next: if spec.disposition == Disposition::Next {
            Next::Tag(Tag::new(last))
        } else {
            Next::End
        },
    };
    let is_punt = spec.disposition == Disposition::Punt;
    let meaning = if is_punt { Meaning::Punt(rule) } else { Meaning::Rule(rule) };
    Ok(Decoded { stage, priority, meaning })
}

/// Decodes the tag and the match of a table entry.
fn decode_match(list: &[FieldMatch]) -> Result<(Tag, Match), DecodeError> {
    let (mut key, mut mask, mut tag) = (FlowKey::ZERO, FlowMask::EMPTY, None);
    for given in list {
        let field = key_fields().iter().find(|field| field.id == given.field_id);
        let field = field.ok_or(DecodeError::Match)?;
        match (&given.field_match_type, flow_field(field)) {
            (Some(FieldMatchType::Exact(exact)), None) => {
                let number = value::decode(&exact.value).ok_or(DecodeError::Match)?;
                tag = Some(Tag::new(u32::try_from(number).map_err(|_| DecodeError::Match)?));
            }
            (Some(FieldMatchType::Ternary(ternary)), Some(id)) => {
                let bits = value::decode(&ternary.mask).ok_or(DecodeError::Match)?;
                let value = value::decode(&ternary.value).ok_or(DecodeError::Match)?;
                add(&mut mask, id, bits & ones(field.width));
                id.info().slot.write(key.words_mut(), value, bits & ones(field.width));
            }
            _ => return Err(DecodeError::Match),
        }
    }
    Ok((tag.ok_or(DecodeError::Match)?, Match::new(&key, &mask)))
}

/// Returns the rewrite of an action, and its last parameter: the tag or the port.
fn decode_params(spec: &ActionSpec, action: &v1::Action) -> Result<(Match, u32), DecodeError> {
    let (mut key, mut mask, mut last) = (FlowKey::ZERO, FlowMask::EMPTY, 0);
    for param in spec.params() {
        let given = action.params.iter().find(|given| given.param_id == param.id);
        let bytes = given.map(|given| &given.value[..]).ok_or(DecodeError::Action)?;
        let number = value::decode(bytes).ok_or(DecodeError::Action)?;
        match param.role {
            ParamRole::Value(field) => {
                if let Some(id) = flow_field(field) {
                    id.info().slot.write(key.words_mut(), number, ones(field.width));
                }
            }
            ParamRole::Mask(field) => {
                if let Some(id) = flow_field(field) {
                    add(&mut mask, id, number & ones(field.width));
                }
            }
            ParamRole::Tag | ParamRole::Port => {
                last = u32::try_from(number).map_err(|_| DecodeError::Action)?;
            }
        }
    }
    Ok((Match::new(&key, &mask), last))
}

//! LTM rules as table entries, and back.
//!
//! A rule says more than the program has fields for: whole words of a flow key, of which the program
//! matches a part. [`encode`] refuses what it cannot say; it never says something wider. Some bits need
//! not be said, since every packet that the program takes apart has them anyway: there is no second
//! VLAN tag, the first has the type 0x8100, and all packets are Ethernet.
//!
//! Ports have two numbers: rules match that of OpenFlow, which is the port's number in the program as
//! well, and send to that of the datapath, which [`Ports`] translates.

use std::collections::BTreeMap;

use shunt_flow::{FieldId, FlowKey, FlowMask, Match, layout::FLOW_WORDS};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, PlainRule, Tag},
    offload::{Effects, OffloadCapabilities, Refusal},
    partition::StageId,
};
use shunt_pipeline::{DatapathAction, DatapathPort};

mod sink;

pub(crate) use sink::Sink;

use crate::{
    entry::action_of,
    program::{
        ActionSpec, End, KeyField, MatchKind, ParamRole, Place, Program, TAG_WIDTH, actions,
        key_fields,
    },
    value,
    wire::p4::v1::{self, FieldMatch, TableEntry, field_match::FieldMatchType},
};

/// The port of the program that each port of the datapath is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ports(pub BTreeMap<DatapathPort, u16>);

/// What some devices do and others do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skills {
    /// It replaces what an entry does.
    pub modifies: bool,
    /// It counts the hits of each entry.
    pub counts: bool,
    /// It tells of idle entries.
    pub reports_idle: bool,
    /// Different masks that one stage may hold; `None`: as many as there are.
    pub masks_max: Option<usize>,
    /// Bits that one entry may match; `None`: all that there are.
    pub key_bits_max: Option<u32>,
    /// The highest port that it sends to: bmv2 has ports of 9 bits, and other uses for the last ones.
    pub port_max: u16,
}

impl Default for Skills {
    /// Those of the embedded NIC.
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

/// What a stage of a program can hold: what [`encode`] does not refuse, as far as it does not depend
/// on values.
#[must_use]
pub fn capabilities(program: &Program, skills: &Skills) -> OffloadCapabilities {
    let mut matches = FlowMask::EMPTY;
    let mut writes = FlowMask::EMPTY;
    let all = |mask: &mut FlowMask, field| add(mask, field, u128::MAX);
    key_fields().iter().filter_map(flow_field).for_each(|field| all(&mut matches, field));
    IMPLIED.iter().for_each(|field| matches.add_field(*field));
    for spec in actions() {
        spec.writes().filter_map(flow_field).for_each(|field| all(&mut writes, field));
    }
    TAG_FIELDS.iter().for_each(|field| writes.add_field(*field));
    OffloadCapabilities {
        stage_entries: (0..program.stages()).map(|_| program.size() as usize).collect(),
        matches,
        writes,
        masks_max: skills.masks_max,
        key_bits_max: skills.key_bits_max,
        tag_bits: TAG_BITS,
        // So that no chain makes more lookups than a translation may.
        length_max: LOOKUPS_MAX / u16::from(program.stages().max(1)),
        effects: Effects::Plain,
        outputs: None,
        counts: skills.counts,
        reports_idle: skills.reports_idle,
        modifies: skills.modifies,
    }
}

/// Lookups of a translation.
const LOOKUPS_MAX: u16 = 4096;

const TAG_BITS: u8 = 16;
const _: () = assert!(TAG_BITS as u16 == TAG_WIDTH, "one width of tags");

/// Fields that a rule may match although the program does not.
const IMPLIED: &[FieldId] =
    &[FieldId::PacketType, FieldId::VlanTpid, FieldId::VlanTpid1, FieldId::VlanTci1];

/// Fields of tags that the program writes by writing whether there is a tag.
const TAG_FIELDS: &[FieldId] = &[FieldId::VlanTpid, FieldId::VlanTpid1, FieldId::VlanTci1];

/// The type of every tag, and the bit of `vlan_tci` that says that there is one.
const TPID: u128 = 0x8100;
const TCI_PRESENT: u128 = 0x1000;

/// All bits of a key or mask at the place of a field: of some, rules in text have fewer.
fn bits(words: &[u64; FLOW_WORDS], field: FieldId) -> u128 {
    field.info().slot.read(words)
}

/// Adds bits at the place of a field.
fn add(mask: &mut FlowMask, field: FieldId, bits: u128) {
    field.info().slot.write(mask.words_mut(), u128::MAX, bits);
}

/// Takes bits out at the place of a field.
fn take(mask: &mut FlowMask, field: FieldId, bits: u128) {
    field.info().slot.write(mask.words_mut(), 0, bits);
}

fn flow_field(field: &KeyField) -> Option<FieldId> {
    match field.place {
        Place::Tag => None,
        Place::InPort => Some(FieldId::InPort),
        Place::Header(id) => Some(id),
    }
}

/// A rule as an entry of a stage's table.
///
/// # Errors
///
/// The program cannot say it.
pub fn encode(
    program: &Program,
    ports: &Ports,
    (stage, rule): (StageId, &LtmRule),
) -> Result<TableEntry, Refusal> {
    let mut entry = TableEntry::default();
    put(&mut entry, (program, ports), (stage, rule))?;
    Ok(entry)
}

/// A rule's place in a stage's table, by which its entry is read and deleted.
///
/// # Errors
///
/// The program cannot say it.
pub fn encode_place(
    program: &Program,
    (stage, rule): (StageId, &LtmRule),
) -> Result<TableEntry, Refusal> {
    let mut entry = TableEntry::default();
    put_place(&mut entry, program, (stage, rule))?;
    Ok(entry)
}

/// Puts a rule, as an entry of a stage's table, where it belongs.
pub(crate) fn put(
    sink: &mut impl Sink,
    (program, ports): (&Program, &Ports),
    (stage, rule): (StageId, &LtmRule),
) -> Result<(), Refusal> {
    let plain = rule.plain().ok_or(Refusal::Actions)?;
    sink.table(program.table_id(stage.number()));
    put_match(sink, rule)?;
    put_action(sink, ports, (rule, &plain))?;
    sink.priority(priority(rule));
    Ok(())
}

/// Puts a rule's place in a stage's table where it belongs.
pub(crate) fn put_place(
    sink: &mut impl Sink,
    program: &Program,
    (stage, rule): (StageId, &LtmRule),
) -> Result<(), Refusal> {
    sink.table(program.table_id(stage.number()));
    put_match(sink, rule)?;
    sink.priority(priority(rule));
    Ok(())
}

fn priority(rule: &LtmRule) -> i32 {
    i32::from(rule.length.max(1))
}

fn wire_tag(tag: Tag) -> Result<u128, Refusal> {
    u16::try_from(tag.number()).map(u128::from).map_err(|_| Refusal::Tag(TAG_BITS))
}

fn put_match(sink: &mut impl Sink, rule: &LtmRule) -> Result<(), Refusal> {
    let (key, mut left) = (rule.matching.key(), FlowMask::from(rule.matching.mask()));
    imply(&key, &mut left)?;
    for field in key_fields() {
        match (field.kind, flow_field(field)) {
            (MatchKind::Exact, _) => sink.exact(field.id, wire_tag(rule.tag)?),
            (MatchKind::Ternary, Some(id)) => {
                let (mask, value) = (bits(left.words(), id), bits(key.words(), id));
                if mask == 0 {
                    continue;
                }
                take(&mut left, id, u128::MAX);
                let narrowed = narrow(field, (value, mask)).map_err(|()| Refusal::Match(id))?;
                narrowed.into_iter().for_each(|masked| sink.ternary(field.id, masked));
            }
            (MatchKind::Ternary, None) => {}
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(first(&left).map_or(Refusal::MatchUnnamed, Refusal::Match))
}

/// A ternary match of so many bits as the program has; bits beyond must be zero, as they are in every
/// packet. `None`: nothing is matched.
fn narrow(field: &KeyField, (value, mask): (u128, u128)) -> Result<Option<(u128, u128)>, ()> {
    let ones = ones(field.width);
    if value & mask & !ones != 0 {
        return Err(());
    }
    let (value, mask) = (value & mask, mask & ones);
    Ok((mask != 0).then_some((value, mask)))
}

/// Takes out of a mask the bits that follow from others; those that decide whether there is a tag go
/// in for them.
fn imply(key: &FlowKey, left: &mut FlowMask) -> Result<(), Refusal> {
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
            // The key of a rule holds zeros where it does not look: only what is looked at decides.
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

/// Takes out of what is written the bits that follow from whether there is a tag then.
fn imply_written(key: &FlowKey, left: &mut FlowMask) -> Result<(), Refusal> {
    let is_told = left.field(FieldId::VlanTci) & TCI_PRESENT != 0;
    let is_there = key.field(FieldId::VlanTci) & TCI_PRESENT != 0;
    let tpid = if is_there { TPID } else { 0 };
    for (field, value) in
        [(FieldId::VlanTpid, tpid), (FieldId::VlanTpid1, 0), (FieldId::VlanTci1, 0)]
    {
        let mask = left.field(field);
        if mask != 0 && !is_told || (key.field(field) ^ value) & mask != 0 {
            return Err(Refusal::Write(field));
        }
        left.remove_bits(field, u128::MAX);
    }
    Ok(())
}

fn put_action(
    sink: &mut impl Sink,
    ports: &Ports,
    (rule, plain): (&LtmRule, &PlainRule),
) -> Result<(), Refusal> {
    let (key, mut left) = (plain.rewrite.key(), FlowMask::from(plain.rewrite.mask()));
    imply_written(&key, &mut left)?;
    let mut written = Written::default();
    for field in key_fields().iter().filter(|field| field.place != Place::InPort) {
        let Some(id) = flow_field(field) else { continue };
        let mask = bits(left.words(), id) & ones(field.width);
        if mask != 0 {
            take(&mut left, id, mask);
            written.add(field, mask);
        }
    }
    if !left.is_empty() {
        return Err(first(&left).map_or(Refusal::WriteUnnamed, Refusal::Write));
    }
    let (end, last) = match (rule.next, plain.output) {
        (Next::Tag(tag), None) => (End::Next, wire_tag(tag)?),
        (Next::Tag(_), Some(_)) => return Err(Refusal::Actions),
        (Next::End, None) => (End::Drop, 0),
        (Next::End, Some(port)) => (End::Forward, leave(ports, rule, (port, plain))?.into()),
    };
    // What is dropped needs no rewriting.
    let written = if end == End::Drop { Written::default() } else { written };
    let fits = |spec: &&ActionSpec| spec.end == end && written.is_within(spec);
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

/// The bits that are written of each field of the key, by its position.
#[derive(Default)]
struct Written {
    /// A bit for each field that is written.
    fields: u32,
    masks: [u128; FIELDS_MAX],
}

/// Fields of the key at most.
const FIELDS_MAX: usize = 20;
const _: () = assert!(key_fields().len() <= FIELDS_MAX, "each field has its place");

impl Written {
    const fn bit(field: &KeyField) -> u32 {
        1 << field.id
    }

    fn add(&mut self, field: &KeyField, mask: u128) {
        if let Some(own) = self.masks.get_mut(field.id as usize - 1) {
            (*own, self.fields) = (mask, self.fields | Self::bit(field));
        }
    }

    fn mask(&self, field: &KeyField) -> u128 {
        self.masks.get(field.id as usize - 1).copied().unwrap_or(0)
    }

    /// Whether an action writes all of these fields.
    fn is_within(&self, spec: &ActionSpec) -> bool {
        self.fields & !spec.writes().fold(0, |bits, field| bits | Self::bit(field)) == 0
    }
}

/// The port that a packet leaves by. The program sends nothing back to where it came from, so a rule
/// that would is refused, unless no packet of it comes from there.
fn leave(
    ports: &Ports,
    rule: &LtmRule,
    (port, plain): (DatapathPort, &PlainRule),
) -> Result<u16, Refusal> {
    let number = *ports.0.get(&port).ok_or(Refusal::Actions)?;
    let mask = FlowMask::from(rule.matching.mask()).field(FieldId::InPort);
    let differs = (rule.matching.key().field(FieldId::InPort) ^ u128::from(number)) & mask != 0;
    if plain.unless_ingress || differs { Ok(number) } else { Err(Refusal::Actions) }
}

const fn ones(width: u16) -> u128 {
    if width >= 128 { u128::MAX } else { (1 << width) - 1 }
}

fn first(mask: &FlowMask) -> Option<FieldId> {
    FieldId::all().find(|field| mask.field(*field) != 0)
}

/// Why an entry is no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is in a table that is no stage.
    #[error("a table that is no stage")]
    Table,
    /// Its match is not of the program.
    #[error("a match that is not of the program")]
    Match,
    /// Its action is not of the program.
    #[error("an action that is not of the program")]
    Action,
}

/// What an entry of a stage says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// A rule.
    Rule(LtmRule),
    /// The match of a rule whose packets go to the controller; its end is as good as any.
    Punt(LtmRule),
}

/// An entry of a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Where it is.
    pub stage: StageId,
    /// Of several that match, the one with the greatest wins. The length of the rule is no more than a
    /// length can be; this is what was said.
    pub priority: u32,
    /// What it says.
    pub meaning: Meaning,
}

/// What an entry says, and in which stage; ports of the datapath have the numbers of the program.
///
/// # Errors
///
/// It was not made for this program.
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
    let output = (spec.end == End::Forward).then(|| DatapathAction::Output {
        port: DatapathPort::new(last),
        unless_ingress: true,
        max_len: None,
    });
    let rule = LtmRule {
        tag,
        matching,
        length: u16::try_from(priority).unwrap_or(u16::MAX),
        actions: set.into_iter().chain(output).collect(),
        rewrite,
        next: if spec.end == End::Next { Next::Tag(Tag::new(last)) } else { Next::End },
    };
    let is_punt = spec.end == End::Punt;
    let meaning = if is_punt { Meaning::Punt(rule) } else { Meaning::Rule(rule) };
    Ok(Decoded { stage, priority, meaning })
}

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

/// What the action writes, and its last parameter: the tag or the port.
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

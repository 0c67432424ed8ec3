//! Generates table entries that match a frame and write any fields.

use proptest::{collection::vec, option, prelude::*, sample};
use shunt_flow::{
    FlowKey, PortNo,
    extract::{VlanLimit, extract},
};
use shunt_p4runtime::{
    program::{ActionSpec, FieldSource, KeyField, ParamRole, Program, actions, key_fields},
    value,
    wire::p4::v1::{
        Action, FieldMatch, TableAction, TableEntry,
        action::Param,
        field_match::{Exact, FieldMatchType, Ternary},
        table_action,
    },
};

/// Number of tags and of ports, which is small so that entries lead to each other.
pub(crate) const TAGS: u16 = 3;
pub(crate) const PORTS: u16 = 4;

/// An entry without the values of the frame that it will match.
#[derive(Clone, Debug)]
pub(crate) struct MatchlessEntry {
    stage: u8,
    tag: u16,
    /// The fields that the entry matches, with their masks.
    fields: Vec<(sample::Index, u128)>,
    /// The frame to match, and the number of a bit in which the entry differs from it.
    /// A number beyond all fields means that no bit differs.
    frame: sample::Index,
    wrong_bit: u32,
    action: sample::Index,
    /// The values and masks that the action writes.
    values: Vec<(u128, u128)>,
    /// The presence of the VLAN tag, if the entry writes only this bit of the tag.
    presence: Option<bool>,
    last: u16,
}

pub(crate) fn matchless_entry() -> impl Strategy<Value = MatchlessEntry> {
    let masks = || prop_oneof![2 => Just(u128::MAX), 1 => Just(0), 2 => any::<u128>()];
    let fields = vec((any::<sample::Index>(), masks()), 0..4);
    let position = (0..Program::default().stages(), 0..TAGS, fields, any::<sample::Index>());
    let values = vec((any::<u128>(), masks()), WRITES_MAX);
    let wrong_bit = prop_oneof![3 => Just(u32::MAX), 1 => 0..8_u32];
    let written = (values, option::of(any::<bool>()));
    (position, wrong_bit, any::<sample::Index>(), written, 0..PORTS).prop_map(
        |((stage, tag, fields, frame), wrong_bit, action, (values, presence), last)| {
            MatchlessEntry { stage, tag, fields, frame, wrong_bit, action, values, presence, last }
        },
    )
}

/// Maximum number of fields that an action writes.
const WRITES_MAX: usize = 11;

/// An ingress port and a frame that arrives on it.
pub(crate) type Arrival = (u16, Vec<u8>);

impl MatchlessEntry {
    /// Returns the entry with this priority.
    pub(crate) fn entry(&self, arrivals: &[Arrival], priority: i32) -> TableEntry {
        let (port, frame) = self.frame.get(arrivals);
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo::new((*port).into()));
        extract(frame, VlanLimit::Two, &mut key);
        let tag = FieldMatchType::Exact(Exact { value: bytes(self.tag.into()) });
        let mut list = vec![FieldMatch { field_id: 1, field_match_type: Some(tag) }];
        for (index, mask) in &self.fields {
            let field = index.get(&key_fields()[1..]);
            let mask = mask & field.ones();
            if mask != 0 && list.iter().all(|given| given.field_id != field.id) {
                let differs = 1_u128.checked_shl(self.wrong_bit).unwrap_or(0);
                let value = bytes((field.of(&key) ^ differs) & mask);
                let kind = FieldMatchType::Ternary(Ternary { value, mask: bytes(mask) });
                list.push(FieldMatch { field_id: field.id, field_match_type: Some(kind) });
            }
        }
        let action = Some(table_action::Type::Action(self.action(self.action.get(actions()))));
        TableEntry {
            table_id: Program::default().table_id(self.stage),
            r#match: list,
            action: Some(TableAction { r#type: action }),
            priority,
            ..TableEntry::default()
        }
    }

    fn action(&self, spec: &ActionSpec) -> Action {
        let writes: Vec<u32> = spec.writes().map(|field| field.id).collect();
        let matchless_entry = |field: &KeyField| {
            let position = writes.iter().position(|id| *id == field.id).unwrap();
            let (value, mask) = match self.presence.filter(|_| field.name == "vlan_tci") {
                Some(is_there) => (u128::from(is_there) << 12, 1 << 12),
                None => self.values[position],
            };
            (value & field.ones(), mask & field.ones())
        };
        let params = spec.params().map(|param| {
            let number = match param.role {
                ParamRole::Value(field) => matchless_entry(field).0,
                ParamRole::Mask(field) => matchless_entry(field).1,
                ParamRole::Tag => (self.last % TAGS).into(),
                ParamRole::Port => self.last.into(),
            };
            Param { param_id: param.id, value: bytes(number) }
        });
        Action { action_id: spec.id, params: params.collect() }
    }
}

/// Returns an entry that matches every frame, and writes these values and masks.
pub(crate) fn for_all(
    stage: u8,
    action: &str,
    last: u16,
    mut written: impl FnMut(&KeyField) -> (u128, u128),
) -> TableEntry {
    let spec = actions().iter().find(|spec| spec.name == action).unwrap();
    let params = spec.params().map(|param| {
        let number = match param.role {
            ParamRole::Value(field) => written(field).0 & field.ones(),
            ParamRole::Mask(field) => written(field).1 & field.ones(),
            ParamRole::Tag | ParamRole::Port => last.into(),
        };
        Param { param_id: param.id, value: bytes(number) }
    });
    let action = Action { action_id: spec.id, params: params.collect() };
    let tag = FieldMatchType::Exact(Exact { value: bytes(0) });
    TableEntry {
        table_id: Program::default().table_id(stage),
        r#match: vec![FieldMatch { field_id: 1, field_match_type: Some(tag) }],
        action: Some(TableAction { r#type: Some(table_action::Type::Action(action)) }),
        priority: 1,
        ..TableEntry::default()
    }
}

fn bytes<B: From<Vec<u8>>>(number: u128) -> B {
    value::encode(number).into()
}

/// The properties of a field that the generator needs.
trait Bits {
    fn ones(&self) -> u128;
    fn of(&self, key: &FlowKey) -> u128;
}

impl Bits for KeyField {
    fn ones(&self) -> u128 {
        crate::fields::ones(self.width.into())
    }

    fn of(&self, key: &FlowKey) -> u128 {
        match self.source {
            FieldSource::Tag => 0,
            FieldSource::InPort => key.in_port().number().into(),
            FieldSource::Header(id) => id.info().slot.read(key.words()),
        }
    }
}

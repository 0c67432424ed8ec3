//! P4Info as data: what entries of each table must look like.
//!
//! A [`Schema`] is what is left of a P4Info once it has been checked: tables, the fields of their keys,
//! the actions that an entry or the default may have, and what comes with packets, all by number.
//! Source: P4Runtime, "P4Info Message".

use std::collections::BTreeMap;

use crate::wire::p4::{
    config::v1::{P4Info, Preamble, Table, action_ref, match_field, p4_ids, table},
    v1::{Action, action},
};

/// Most objects of one kind; a P4Info with more is not for a switch of this kind.
const OBJECTS_MAX: usize = 4096;

/// Widest field or parameter, in bits.
const WIDTH_MAX: i32 = 2048;

/// Why a P4Info says nothing that could be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// It is none.
    #[error("the P4Info cannot be decoded")]
    Undecodable,
    /// An object without a number, or with one of another kind.
    #[error("{id:#010x} is no id of {kind}")]
    Id {
        /// The number.
        id: u32,
        /// What it should be.
        kind: &'static str,
    },
    /// Two objects have the same number.
    #[error("{0:#010x} is the id of two objects")]
    Twice(u32),
    /// There are too many of a kind.
    #[error("more than {OBJECTS_MAX} objects of a kind")]
    TooMany,
    /// A field or parameter has no sensible width.
    #[error("a width of {0} bits: 1 to {WIDTH_MAX}")]
    Width(i32),
    /// A field is matched in a way that is not served.
    #[error("field {field} of table {table:#010x} is matched in an unknown way")]
    MatchKind {
        /// The table.
        table: u32,
        /// The field.
        field: u32,
    },
    /// Something refers to what is not there.
    #[error("{from:#010x} refers to {to:#010x}, which is not there")]
    Dangling {
        /// What refers.
        from: u32,
        /// To what.
        to: u32,
    },
    /// The default action of a table lacks parameters, or has others.
    #[error("the default action of table {0:#010x} has other parameters than its action")]
    Default(u32),
}

/// What the schema of a P4Info has that of a device does not have so: the first such thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Difference {
    /// There are more tables, or fewer.
    #[error("it has {given} tables, and the device has {own}")]
    Tables {
        /// In the P4Info.
        given: usize,
        /// In that of the device.
        own: usize,
    },
    /// A table is not there.
    #[error("it has a table {0:#010x}, and the device has none")]
    NoTable(u32),
    /// A table is larger, or smaller.
    #[error("table {table:#010x} holds {given} entries in it, and {own} in the device")]
    Size {
        /// The table.
        table: u32,
        /// In the P4Info.
        given: u64,
        /// In that of the device.
        own: u64,
    },
    /// A table has other fields, actions or properties.
    #[error("table {0:#010x} is another in the device, by its fields, actions or properties")]
    Table(u32),
    /// Actions have other parameters.
    #[error("actions have other parameters in the device")]
    Actions,
    /// Other metadata comes with packets.
    #[error("packets from a controller have other metadata in the device")]
    PacketOut,
}

/// What a pipeline offers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// Its tables.
    pub tables: BTreeMap<u32, TableSchema>,
    /// The parameters of its actions, with their widths.
    pub actions: BTreeMap<u32, BTreeMap<u32, usize>>,
    /// What comes with a packet from the controller, with widths.
    pub packet_out: BTreeMap<u32, usize>,
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// The fields of its key.
    pub fields: BTreeMap<u32, FieldSchema>,
    /// Those of them that every entry has, by id.
    pub exact_fields: Vec<u32>,
    /// Which actions it has, and where.
    pub actions: BTreeMap<u32, Scope>,
    /// What it does with a packet that hits nothing, as the program says.
    pub default: Option<Action>,
    /// That cannot be changed.
    pub is_default_const: bool,
    /// Entries that it promises to hold.
    pub size: u64,
    /// It tells of entries that are not hit.
    pub has_timeouts: bool,
    /// It counts the hits of each entry.
    pub has_counters: bool,
    /// Its entries cannot be changed.
    pub is_const: bool,
    /// Several entries can match a packet, and their priorities decide.
    pub has_priorities: bool,
}

/// A field of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// In bits.
    pub width: usize,
    /// How it is matched.
    pub kind: FieldKind,
}

/// How a field is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// All bits.
    Exact,
    /// The first bits.
    Lpm,
    /// The bits of a mask.
    Ternary,
    /// From one value to another.
    Range,
    /// All bits, or none.
    Optional,
}

/// Where an action may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// In entries, and as the default.
    Anywhere,
    /// In entries.
    Entries,
    /// As the default.
    Default,
}

impl Schema {
    /// Checks a P4Info.
    ///
    /// # Errors
    ///
    /// What it says makes no sense.
    pub fn read(info: &P4Info) -> Result<Self, SchemaError> {
        let lengths = [info.tables.len(), info.actions.len(), info.direct_counters.len()];
        if lengths.iter().any(|length| *length > OBJECTS_MAX) {
            return Err(SchemaError::TooMany);
        }
        let mut schema = Self::default();
        for action in &info.actions {
            let id = id_of(action.preamble.as_ref(), p4_ids::Prefix::Action, "an action")?;
            let widths = action.params.iter().map(|param| (param.id, param.bitwidth));
            if schema.actions.insert(id, widths_of(widths)?).is_some() {
                return Err(SchemaError::Twice(id));
            }
        }
        for table in &info.tables {
            let id = id_of(table.preamble.as_ref(), p4_ids::Prefix::Table, "a table")?;
            let read = schema.table(id, table)?;
            if schema.tables.insert(id, read).is_some() {
                return Err(SchemaError::Twice(id));
            }
        }
        for counter in &info.direct_counters {
            let prefix = p4_ids::Prefix::DirectCounter;
            let id = id_of(counter.preamble.as_ref(), prefix, "a direct counter")?;
            let to = counter.direct_table_id;
            let table = schema.tables.get_mut(&to).ok_or(SchemaError::Dangling { from: id, to })?;
            table.has_counters = true;
        }
        for header in &info.controller_packet_metadata {
            let name = header.preamble.as_ref().map_or("", |preamble| preamble.name.as_str());
            let widths = header.metadata.iter().map(|field| (field.id, field.bitwidth));
            let widths = widths_of(widths)?;
            if name == "packet_out" {
                schema.packet_out = widths;
            }
        }
        Ok(schema)
    }

    /// In what it is not the schema of a device.
    #[must_use]
    pub fn difference(&self, own: &Self) -> Option<Difference> {
        let Self { tables, actions, packet_out } = self;
        let (given, own_count) = (tables.len(), own.tables.len());
        if given != own_count {
            return Some(Difference::Tables { given, own: own_count });
        }
        let of_table = |(id, table): (&u32, &TableSchema)| match own.tables.get(id) {
            None => Some(Difference::NoTable(*id)),
            Some(own) if own.size != table.size => {
                Some(Difference::Size { table: *id, given: table.size, own: own.size })
            }
            Some(own) => (own != table).then_some(Difference::Table(*id)),
        };
        let of_actions = || (*actions != own.actions).then_some(Difference::Actions);
        let of_packets = || (*packet_out != own.packet_out).then_some(Difference::PacketOut);
        tables.iter().find_map(of_table).or_else(of_actions).or_else(of_packets)
    }

    fn table(&self, id: u32, table: &Table) -> Result<TableSchema, SchemaError> {
        let mut fields = BTreeMap::new();
        for field in &table.match_fields {
            let kind = kind_of(field.r#match.as_ref())
                .ok_or(SchemaError::MatchKind { table: id, field: field.id })?;
            let read = FieldSchema { width: width(field.bitwidth)?, kind };
            if field.id == 0 || fields.insert(field.id, read).is_some() {
                return Err(SchemaError::Twice(field.id));
            }
        }
        let mut actions = BTreeMap::new();
        for action in &table.action_refs {
            if !self.actions.contains_key(&action.id) {
                return Err(SchemaError::Dangling { from: id, to: action.id });
            }
            let scope = match action.scope() {
                action_ref::Scope::TableAndDefault | action_ref::Scope::GroupAction => {
                    Scope::Anywhere
                }
                action_ref::Scope::TableOnly => Scope::Entries,
                action_ref::Scope::DefaultOnly => Scope::Default,
            };
            actions.insert(action.id, scope);
        }
        let has_priorities = fields.values().any(|field| {
            matches!(field.kind, FieldKind::Ternary | FieldKind::Range | FieldKind::Optional)
        });
        let exact_fields = fields
            .iter()
            .filter(|(_, field)| field.kind == FieldKind::Exact)
            .map(|(id, _)| *id)
            .collect();
        Ok(TableSchema {
            default: self.default_of(id, table)?,
            fields,
            exact_fields,
            actions,
            is_default_const: table.const_default_action_id != 0,
            size: u64::try_from(table.size).unwrap_or(0),
            has_timeouts: table.idle_timeout_behavior()
                == table::IdleTimeoutBehavior::NotifyControl,
            has_counters: false,
            is_const: table.is_const_table,
            has_priorities,
        })
    }

    fn default_of(&self, id: u32, table: &Table) -> Result<Option<Action>, SchemaError> {
        let (action_id, arguments) = match &table.initial_default_action {
            Some(call) => (call.action_id, call.arguments.as_slice()),
            None => (table.const_default_action_id, &[][..]),
        };
        if action_id == 0 {
            return Ok(None);
        }
        let params = self
            .actions
            .get(&action_id)
            .ok_or(SchemaError::Dangling { from: id, to: action_id })?;
        let given: BTreeMap<u32, &[u8]> =
            arguments.iter().map(|argument| (argument.param_id, &argument.value[..])).collect();
        if !given.keys().eq(params.keys()) {
            return Err(SchemaError::Default(id));
        }
        let params = given
            .into_iter()
            .map(|(param_id, value)| action::Param { param_id, value: value.to_vec().into() })
            .collect();
        Ok(Some(Action { action_id, params }))
    }
}

fn id_of(
    preamble: Option<&Preamble>,
    prefix: p4_ids::Prefix,
    kind: &'static str,
) -> Result<u32, SchemaError> {
    let id = preamble.map_or(0, |preamble| preamble.id);
    let is_right = i64::from(id >> 24) == i64::from(prefix as i32);
    if is_right && id & 0x00ff_ffff != 0 { Ok(id) } else { Err(SchemaError::Id { id, kind }) }
}

fn width(bits: i32) -> Result<usize, SchemaError> {
    let fits = (1..=WIDTH_MAX).contains(&bits);
    usize::try_from(bits).ok().filter(|_| fits).ok_or(SchemaError::Width(bits))
}

fn widths_of(list: impl Iterator<Item = (u32, i32)>) -> Result<BTreeMap<u32, usize>, SchemaError> {
    let mut widths = BTreeMap::new();
    for (id, bits) in list {
        if id == 0 || widths.insert(id, width(bits)?).is_some() {
            return Err(SchemaError::Twice(id));
        }
    }
    Ok(widths)
}

fn kind_of(kind: Option<&match_field::Match>) -> Option<FieldKind> {
    use match_field::MatchType;
    let Some(match_field::Match::MatchType(number)) = kind else { return None };
    match MatchType::try_from(*number).ok()? {
        MatchType::Unspecified => None,
        MatchType::Exact => Some(FieldKind::Exact),
        MatchType::Lpm => Some(FieldKind::Lpm),
        MatchType::Ternary => Some(FieldKind::Ternary),
        MatchType::Range => Some(FieldKind::Range),
        MatchType::Optional => Some(FieldKind::Optional),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::Program;

    fn schema(stages: u8, size: u32) -> Schema {
        let program = Program::new(stages, size).unwrap();
        Schema::read(&program.p4info()).unwrap()
    }

    /// Makes a schema another one.
    type Change = fn(&mut Schema);

    #[test]
    fn in_what_a_program_is_another_is_said() {
        let own = schema(4, 64);
        let told = |given: &Schema| given.difference(&own).map(|difference| difference.to_string());
        assert_eq!(told(&own), None);
        let tables = own.tables.len();
        let expected = format!("it has {} tables, and the device has {tables}", tables + 2);
        assert_eq!(told(&schema(6, 64)), Some(expected));
        let larger = told(&schema(4, 65)).unwrap();
        assert!(larger.ends_with("holds 65 entries in it, and 64 in the device"), "{larger}");
        // Whatever else is another.
        let first = *own.tables.keys().next().unwrap();
        let changes: [(Change, Difference); 4] = [
            (|own| own.actions.values_mut().next().unwrap().clear(), Difference::Actions),
            (|own| own.packet_out.clear(), Difference::PacketOut),
            (
                |own| own.tables.values_mut().next().unwrap().fields.clear(),
                Difference::Table(first),
            ),
            (
                |own| {
                    let table = own.tables.pop_first().unwrap().1;
                    own.tables.insert(1, table);
                },
                Difference::NoTable(1),
            ),
        ];
        for (change, expected) in changes {
            let mut given = own.clone();
            change(&mut given);
            assert_ne!(given, own);
            assert_eq!(given.difference(&own), Some(expected));
        }
    }
}

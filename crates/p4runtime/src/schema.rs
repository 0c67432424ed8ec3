//! The schema of a P4Info: the tables, and the form of their entries.
//!
//! A [`Schema`] is a checked P4Info. A schema has the tables with their key fields, the actions
//! that entries and defaults may use, and the packet metadata, all by id. Compilers list more
//! actions, and pad the arguments of default actions with zero bytes; the schema ignores both.
//! Source: P4Runtime, "P4Info Message".

use std::collections::BTreeMap;

use crate::{
    value,
    wire::p4::{
        config::v1::{P4Info, Preamble, Table, action_ref, match_field, p4_ids, table},
        v1::{Action, action},
    },
};

/// Maximum number of objects of one kind.
///
/// A larger P4Info is not for this kind of switch.
const OBJECTS_MAX: usize = 4096;

/// Maximum width of a field or parameter in bits.
const WIDTH_MAX: i32 = 2048;

/// The reason why a P4Info is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The bytes are not a P4Info.
    #[error("the P4Info cannot be decoded: send a message of the type p4.config.v1.P4Info")]
    Undecodable,
    /// The id of an object is missing or has the prefix of another kind.
    #[error("{id:#010x} is not the id of {kind}")]
    Id {
        /// The id that was refused.
        id: u32,
        /// The kind of object that was expected.
        kind: &'static str,
    },
    /// Two objects have the same id.
    #[error("the P4Info has two objects with the id {0:#010x}: give each its own")]
    Twice(u32),
    /// The P4Info has too many objects of one kind.
    #[error("the P4Info has too many objects of one kind: the limit is {OBJECTS_MAX}")]
    TooMany,
    /// The width of a field or parameter is out of range.
    #[error("the P4Info has a field of {0} bits: use 1 to {WIDTH_MAX}")]
    Width(i32),
    /// The match kind of a field is not supported.
    #[error("field {field} of table {table:#010x} has an unsupported match kind")]
    MatchKind {
        /// Id of the table.
        table: u32,
        /// Id of the match field.
        field: u32,
    },
    /// An object refers to an object that does not exist.
    #[error("object {from:#010x} refers to object {to:#010x}, which does not exist")]
    Dangling {
        /// The id of the object that refers to another one.
        from: u32,
        /// The object that does not exist.
        to: u32,
    },
    /// The default action of a table has wrong parameters.
    #[error("the default action of table {0:#010x} has parameters that its action does not have")]
    Default(u32),
}

/// The first difference between a given schema and that of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SchemaDifference {
    /// The number of tables differs.
    #[error(
        "the P4Info has {given} tables, but that of the device has {own}: use the P4Info of the \
         device"
    )]
    Tables {
        /// Number of tables in the P4Info.
        given: usize,
        /// Number of tables in the device.
        own: usize,
    },
    /// The device does not have a table.
    #[error(
        "the P4Info has table {0:#010x}, which the device does not have: use the P4Info of the \
         device"
    )]
    NoTable(u32),
    /// The size of a table differs.
    #[error("table {table:#010x} of the P4Info has {given} entries, and that of the device {own}")]
    Size {
        /// Id of the table.
        table: u32,
        /// Size of the table in the P4Info.
        given: u64,
        /// Size of the table in the device.
        own: u64,
    },
    /// The fields, actions or properties of a table differ.
    #[error(
        "table {0:#010x} of the P4Info differs from that of the device in fields, actions or \
         properties"
    )]
    Table(u32),
    /// The parameters of actions differ.
    #[error("the actions of the P4Info have other parameters than those of the device")]
    Actions,
    /// The packet-out metadata differs.
    #[error("the packet_out metadata of the P4Info differs from that of the device")]
    PacketOut,
}

/// The tables, actions and packet metadata of a pipeline.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// The tables of the program by id.
    pub tables: BTreeMap<u32, TableSchema>,
    /// Parameter widths of each action by id.
    pub actions: BTreeMap<u32, BTreeMap<u32, usize>>,
    /// Widths of the packet-out metadata by id.
    pub packet_out: BTreeMap<u32, usize>,
}

/// The fields and actions that entries of a table may have, from the `P4Info`.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSchema {
    /// Key fields by id.
    pub fields: BTreeMap<u32, FieldSchema>,
    /// Ids of the exact fields, which every entry must have.
    pub exact_fields: Vec<u32>,
    /// Actions of the table, and where each may be used.
    pub actions: BTreeMap<u32, ActionScope>,
    /// The default action in the program.
    pub default: Option<Action>,
    /// True if the default action cannot be changed.
    pub is_default_const: bool,
    /// Guaranteed number of entries.
    pub size: u64,
    /// True if the table supports idle timeouts.
    pub has_timeouts: bool,
    /// True if the table counts the hits of each entry.
    pub has_counters: bool,
    /// True if the entries cannot be changed.
    pub is_const: bool,
    /// True if several entries can match a packet, so that priorities decide.
    pub has_priorities: bool,
}

/// Width and match kind of a key field of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSchema {
    /// Width of the field in bits.
    pub width: usize,
    /// Match kind of the field.
    pub kind: FieldKind,
}

/// The match kind of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// The field is matched in all bits.
    Exact,
    /// The field is matched by a prefix.
    Lpm,
    /// Matches the bits of a mask.
    Ternary,
    /// Matches a range of values.
    Range,
    /// Matches all bits, or any value.
    Optional,
}

/// The uses of an action that the program allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionScope {
    /// The action is allowed in entries and as the default action.
    Anywhere,
    /// The action is allowed in entries only.
    Entries,
    /// The action is allowed as the default action only.
    Default,
}

impl Schema {
    /// Reads the tables, actions and counters of a P4Info, and checks them.
    ///
    /// # Errors
    ///
    /// The P4Info is inconsistent.
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
        // Compilers also list actions that the program itself calls.
        let is_of_table = |id: &u32| {
            let has = |table: &TableSchema| {
                table.actions.contains_key(id)
                    || table.default.as_ref().is_some_and(|action| action.action_id == *id)
            };
            schema.tables.values().any(has)
        };
        schema.actions.retain(|id, _| is_of_table(id));
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

    /// Returns the first difference to the schema of a device.
    #[must_use]
    pub fn difference(&self, own: &Self) -> Option<SchemaDifference> {
        let Self { tables, actions, packet_out } = self;
        let (given, own_count) = (tables.len(), own.tables.len());
        if given != own_count {
            return Some(SchemaDifference::Tables { given, own: own_count });
        }
        let of_table = |(id, table): (&u32, &TableSchema)| match own.tables.get(id) {
            None => Some(SchemaDifference::NoTable(*id)),
            Some(own) if own.size != table.size => {
                Some(SchemaDifference::Size { table: *id, given: table.size, own: own.size })
            }
            Some(own) => (own != table).then_some(SchemaDifference::Table(*id)),
        };
        let of_actions = || (*actions != own.actions).then_some(SchemaDifference::Actions);
        let of_packets = || (*packet_out != own.packet_out).then_some(SchemaDifference::PacketOut);
        tables.iter().find_map(of_table).or_else(of_actions).or_else(of_packets)
    }

    /// Reads a table of the P4Info.
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
                    ActionScope::Anywhere
                }
                action_ref::Scope::TableOnly => ActionScope::Entries,
                action_ref::Scope::DefaultOnly => ActionScope::Default,
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

    /// Returns the default action of a table in P4Info, if it has one.
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
            .map(|(param_id, value)| {
                let value = value::canonical(value).to_vec().into();
                action::Param { param_id, value }
            })
            .collect();
        Ok(Some(Action { action_id, params }))
    }
}

/// Returns the id of an object in P4Info; the first byte must be `prefix`.
fn id_of(
    preamble: Option<&Preamble>,
    prefix: p4_ids::Prefix,
    kind: &'static str,
) -> Result<u32, SchemaError> {
    let id = preamble.map_or(0, |preamble| preamble.id);
    let is_right = i64::from(id >> 24) == i64::from(prefix as i32);
    if is_right && id & 0x00ff_ffff != 0 { Ok(id) } else { Err(SchemaError::Id { id, kind }) }
}

/// Returns the number of bytes of a field of `bits` bits.
fn width(bits: i32) -> Result<usize, SchemaError> {
    let fits = (1..=WIDTH_MAX).contains(&bits);
    usize::try_from(bits).ok().filter(|_| fits).ok_or(SchemaError::Width(bits))
}

/// Returns the widths by id; refuses id zero and repeated ids.
fn widths_of(list: impl Iterator<Item = (u32, i32)>) -> Result<BTreeMap<u32, usize>, SchemaError> {
    let mut widths = BTreeMap::new();
    for (id, bits) in list {
        if id == 0 || widths.insert(id, width(bits)?).is_some() {
            return Err(SchemaError::Twice(id));
        }
    }
    Ok(widths)
}

/// Returns the kind of a match field; `None` if it is not a standard kind.
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

    /// Returns the schema of a program.
    fn schema(stages: u8, size: u32) -> Schema {
        let program = Program::new(stages, size).unwrap();
        Schema::read(&program.p4info()).unwrap()
    }

    /// A function that makes a schema wrong in one place.
    type SchemaEdit = fn(&mut Schema);

    #[test]
    fn hidden_actions_and_padding_make_no_difference() {
        let own = Program::default().p4info();
        let mut compiled = own.clone();
        let mut called = compiled.actions[0].clone();
        called.preamble.as_mut().unwrap().id |= 0x0080_0000;
        compiled.actions.push(called);
        let defaults =
            compiled.tables.iter_mut().filter_map(|table| table.initial_default_action.as_mut());
        let arguments = defaults.flat_map(|call| &mut call.arguments);
        let padded = arguments.map(|argument| argument.value.insert(0, 0)).count();
        assert!(padded > 0);
        let [own, compiled] = [&own, &compiled].map(|info| Schema::read(info).unwrap());
        assert_eq!(compiled.difference(&own), None);
        assert_eq!(compiled, own);
    }

    #[test]
    fn the_first_difference_of_a_program_is_reported() {
        let own = schema(4, 64);
        let difference_text =
            |given: &Schema| given.difference(&own).map(|difference| difference.to_string());
        assert_eq!(difference_text(&own), None);
        let tables = own.tables.len();
        let expected = format!(
            "the P4Info has {} tables, but that of the device has {tables}: \
             use the P4Info of the device",
            tables + 2
        );
        assert_eq!(difference_text(&schema(6, 64)), Some(expected));
        let larger = difference_text(&schema(4, 65)).unwrap();
        assert!(larger.ends_with("has 65 entries, and that of the device 64"), "{larger}");
        // All other kinds of difference.
        let first = *own.tables.keys().next().unwrap();
        let changes: [(SchemaEdit, SchemaDifference); 4] = [
            (|own| own.actions.values_mut().next().unwrap().clear(), SchemaDifference::Actions),
            (|own| own.packet_out.clear(), SchemaDifference::PacketOut),
            (
                |own| own.tables.values_mut().next().unwrap().fields.clear(),
                SchemaDifference::Table(first),
            ),
            (
                |own| {
                    let table = own.tables.pop_first().unwrap().1;
                    own.tables.insert(1, table);
                },
                SchemaDifference::NoTable(1),
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

//! Validation of table entries against the schema, and their canonical form.
//!
//! In canonical form, matches are sorted by field, values have no leading zeros, and parameters
//! have the order of the action. Source: P4Runtime, "TableEntry".

use std::collections::BTreeMap;

use prost::bytes::Bytes;

use crate::{
    error::EntityError,
    schema::{ActionScope, FieldKind, FieldSchema, Schema, TableSchema},
    value,
    wire::p4::v1::{
        Action, FieldMatch, TableAction, TableEntry, action,
        field_match::{FieldMatchType, Range, Ternary},
        table_action,
    },
};

/// The id prefix of tables.
const TABLE_PREFIX: u32 = 2;

/// The identity of an entry: its match and its priority, as bytes.
pub type EntryKey = Vec<u8>;

/// Returns the table with this id.
///
/// # Errors
///
/// The schema has no table with this id.
pub fn table_of(schema: &Schema, id: u32) -> Result<&TableSchema, EntityError> {
    if id >> 24 != TABLE_PREFIX {
        return Err(EntityError::NotATable(id));
    }
    schema.tables.get(&id).ok_or(EntityError::NoTable(id))
}

/// Returns the canonical form of a match.
///
/// # Errors
///
/// The match is invalid for this table.
pub fn checked_match(
    table: &TableSchema,
    mut list: Vec<FieldMatch>,
) -> Result<Vec<FieldMatch>, EntityError> {
    for field in &mut list {
        let schema =
            table.fields.get(&field.field_id).ok_or(EntityError::NoField(field.field_id))?;
        check_field(*schema, field)?;
    }
    list.sort_by_key(|field| field.field_id);
    if let Some(pair) = list.windows(2).find(|pair| pair[0].field_id == pair[1].field_id) {
        return Err(EntityError::FieldTwice(pair[0].field_id));
    }
    let is_there = |id: &u32| list.binary_search_by_key(id, |field| field.field_id).is_ok();
    match table.exact_fields.iter().find(|id| !is_there(id)) {
        Some(id) => Err(EntityError::FieldMissing(*id)),
        None => Ok(list),
    }
}

/// Checks a match field, and puts its bytes into the canonical form.
fn check_field(schema: FieldSchema, field: &mut FieldMatch) -> Result<(), EntityError> {
    let (id, width) = (field.field_id, schema.width);
    let canonical_value = |bytes: &mut Bytes| {
        let error = |error| EntityError::Value { what: "match field", id, error };
        value::make_canonical(bytes, width).map_err(error)
    };
    let given = field.field_match_type.as_mut().ok_or(EntityError::FieldKind(id))?;
    match (schema.kind, given) {
        (FieldKind::Exact, FieldMatchType::Exact(exact)) => canonical_value(&mut exact.value),
        (FieldKind::Optional, FieldMatchType::Optional(optional)) => {
            canonical_value(&mut optional.value)
        }
        (FieldKind::Ternary, FieldMatchType::Ternary(Ternary { value, mask })) => {
            canonical_value(value)?;
            canonical_value(mask)?;
            if value::is_zero(mask) {
                return Err(EntityError::FieldAny(id));
            }
            if !value::is_within(value, mask) {
                return Err(EntityError::FieldBits(id));
            }
            Ok(())
        }
        (FieldKind::Lpm, FieldMatchType::Lpm(lpm)) => {
            canonical_value(&mut lpm.value)?;
            let prefix = usize::try_from(lpm.prefix_len).unwrap_or(0);
            if prefix == 0 {
                return Err(EntityError::FieldAny(id));
            }
            if prefix > width || !value::is_prefix(&lpm.value, prefix, width) {
                return Err(EntityError::FieldBits(id));
            }
            Ok(())
        }
        (FieldKind::Range, FieldMatchType::Range(Range { low, high })) => {
            canonical_value(low)?;
            canonical_value(high)?;
            if (low.len(), &low) > (high.len(), &high) {
                return Err(EntityError::FieldRange(id));
            }
            if value::is_zero(low) && value::is_all_ones(high, width) {
                return Err(EntityError::FieldAny(id));
            }
            Ok(())
        }
        _ => Err(EntityError::FieldKind(id)),
    }
}

/// Returns the priority if it is valid for the table.
///
/// # Errors
///
/// The table requires a positive priority, or requires zero.
pub fn checked_priority(table: &TableSchema, priority: i32) -> Result<i32, EntityError> {
    let is_right = if table.has_priorities { priority > 0 } else { priority == 0 };
    if is_right { Ok(priority) } else { Err(EntityError::Priority(priority)) }
}

/// The place of an action: in an entry, or as the default of its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionUse {
    /// The action of an entry.
    Entry,
    /// The default action of a table.
    Default,
}

/// Returns the canonical form of an action; `None` if the entry has no action.
///
/// # Errors
///
/// The table does not have the action or does not allow it for this use, or its parameters are
/// wrong.
pub fn checked_action(
    schema: &Schema,
    table: &TableSchema,
    action: Option<TableAction>,
    usage: ActionUse,
) -> Result<Option<TableAction>, EntityError> {
    let Some(action) = action else { return Ok(None) };
    let Some(table_action::Type::Action(action)) = action.r#type else {
        return Err(EntityError::ActionKind);
    };
    let id = action.action_id;
    let scope = table.actions.get(&id).ok_or(EntityError::UnknownAction(id))?;
    match (scope, usage) {
        (ActionScope::Anywhere, _)
        | (ActionScope::Entries, ActionUse::Entry)
        | (ActionScope::Default, ActionUse::Default) => {}
        (ActionScope::Entries, ActionUse::Default) | (ActionScope::Default, ActionUse::Entry) => {
            return Err(EntityError::ActionScope(id));
        }
    }
    let widths = schema.actions.get(&id).ok_or(EntityError::UnknownAction(id))?;
    let params = checked_params(id, widths, action.params)?;
    let action = Action { action_id: id, params };
    Ok(Some(TableAction { r#type: Some(table_action::Type::Action(action)) }))
}

/// Checks the parameters of an action, and sorts them.
fn checked_params(
    action: u32,
    widths: &BTreeMap<u32, usize>,
    mut params: Vec<action::Param>,
) -> Result<Vec<action::Param>, EntityError> {
    for param in &mut params {
        let id = param.param_id;
        let width = widths.get(&id).ok_or(EntityError::Params { action, param: id })?;
        let error = |error| EntityError::Value { what: "parameter", id, error };
        value::make_canonical(&mut param.value, *width).map_err(error)?;
    }
    params.sort_by_key(|param| param.param_id);
    let mut expected = widths.keys();
    for param in &params {
        let id = param.param_id;
        if expected.next() != Some(&id) {
            return Err(EntityError::Params { action, param: id });
        }
    }
    match expected.next() {
        Some(missing) => Err(EntityError::Params { action, param: *missing }),
        None => Ok(params),
    }
}

/// Returns the key of an entry with a canonical match.
#[must_use]
pub fn key_of(list: &[FieldMatch], priority: i32) -> EntryKey {
    let mut key = Vec::with_capacity(64);
    key.extend(priority.to_be_bytes());
    let put = |key: &mut Vec<u8>, bytes: &[u8]| {
        // Values have at most `WIDTH_MAX` bits, so their length fits into two bytes.
        key.extend(u16::try_from(bytes.len()).unwrap_or(u16::MAX).to_be_bytes());
        key.extend(bytes);
    };
    for field in list {
        key.extend(field.field_id.to_be_bytes());
        match &field.field_match_type {
            Some(FieldMatchType::Exact(exact)) => put(&mut key, &exact.value),
            Some(FieldMatchType::Optional(optional)) => put(&mut key, &optional.value),
            Some(FieldMatchType::Ternary(ternary)) => {
                put(&mut key, &ternary.value);
                put(&mut key, &ternary.mask);
            }
            Some(FieldMatchType::Lpm(lpm)) => {
                put(&mut key, &lpm.value);
                key.extend(lpm.prefix_len.to_be_bytes());
            }
            Some(FieldMatchType::Range(range)) => {
                put(&mut key, &range.low);
                put(&mut key, &range.high);
            }
            Some(FieldMatchType::Other(_)) | None => {}
        }
    }
    key
}

/// Returns the action of an entry, if it is a direct action.
#[must_use]
pub fn action_of(entry: &TableEntry) -> Option<&Action> {
    match entry.action.as_ref()?.r#type.as_ref()? {
        table_action::Type::Action(action) => Some(action),
        _ => None,
    }
}

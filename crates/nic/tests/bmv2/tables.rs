//! The table entries of a program, as a P4Runtime server installs them.
//!
//! The P4Runtime messages have numeric ids, the P4Info maps ids to names, and the program has only
//! names.

use std::collections::BTreeMap;

use serde_json::Value;
use shunt_p4runtime::{
    value,
    wire::p4::{
        config::v1::{P4Info, Preamble},
        v1::{TableEntry, field_match::FieldMatchType, table_action},
    },
};

use crate::{
    expression::hex,
    fields::{Fields, list, name, ones, text},
};

/// A call of an action: the name and the parameters of the action.
pub(crate) type Call = (String, Vec<u128>);

/// A table entry: the match of each key field, the priority and the action.
#[derive(Clone, Debug)]
struct Entry {
    masked: Vec<(u128, u128)>,
    priority: i32,
    call: Call,
}

/// All entries by the names of their tables.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables(BTreeMap<String, Vec<Entry>>);

impl Tables {
    pub(crate) fn insert(&mut self, program: &Value, info: &P4Info, entry: &TableEntry) {
        let described = info.tables.iter().find(|table| id(&table.preamble) == entry.table_id);
        let described = described.unwrap();
        let table = table(program, &name_in_program(&described.preamble));
        let mut masked = Vec::new();
        for part in list(&table["key"]) {
            let field = described.match_fields.iter().find(|field| part["name"] == *field.name);
            let field = field.unwrap();
            let given = entry.r#match.iter().find(|given| given.field_id == field.id);
            let given = given.and_then(|given| given.field_match_type.as_ref());
            let width = u32::try_from(field.bitwidth).unwrap();
            masked.push(match (part["match_type"].as_str().unwrap(), given) {
                ("exact", Some(FieldMatchType::Exact(exact))) => {
                    (value::decode(&exact.value).unwrap(), ones(width))
                }
                ("ternary", Some(FieldMatchType::Ternary(ternary))) => {
                    (value::decode(&ternary.value).unwrap(), value::decode(&ternary.mask).unwrap())
                }
                ("ternary", None) => (0, 0),
                (kind, given) => panic!("{kind} by {given:?}"),
            });
        }
        let call = call(program, info, entry);
        let entry = Entry { masked, priority: entry.priority, call };
        self.0.entry(text(&table["name"])).or_default().push(entry);
    }

    /// Returns the action of the matching entry with the highest priority.
    pub(crate) fn find(&self, table: &Value, fields: &Fields<'_>) -> Option<&Call> {
        let parts = list(&table["key"]).iter();
        let key: Vec<u128> = parts.map(|part| fields.read(&name(&part["target"]))).collect();
        let entries = self.0.get(table["name"].as_str()?)?.iter();
        let fits = |entry: &&Entry| {
            key.iter().zip(&entry.masked).all(|(key, (value, mask))| key & mask == *value)
        };
        entries.filter(fits).max_by_key(|entry| entry.priority).map(|entry| &entry.call)
    }
}

/// Returns the default action of a table.
pub(crate) fn default_call(program: &Value, table: &Value) -> Call {
    let default = &table["default_entry"];
    let id = default["action_id"].as_u64().unwrap() as usize;
    let data = list(&default["action_data"]).iter().map(hex).collect();
    (text(&program["actions"][id]["name"]), data)
}

/// Returns the table with this name.
pub(crate) fn table<'a>(program: &'a Value, name: &str) -> &'a Value {
    let found =
        list(&program["pipelines"][0]["tables"]).iter().find(|table| table["name"] == *name);
    found.unwrap_or_else(|| panic!("no table {name}"))
}

/// Returns the action with this name.
pub(crate) fn action<'a>(program: &'a Value, name: &str) -> &'a Value {
    let found = list(&program["actions"]).iter().find(|action| action["name"] == *name);
    found.unwrap_or_else(|| panic!("no action {name}"))
}

fn call(program: &Value, info: &P4Info, entry: &TableEntry) -> Call {
    let given = entry.action.as_ref().and_then(|action| action.r#type.as_ref());
    let Some(table_action::Type::Action(given)) = given else { panic!("{given:?}") };
    let described = info.actions.iter().find(|action| id(&action.preamble) == given.action_id);
    let described = described.unwrap();
    let action = action(program, &name_in_program(&described.preamble));
    let data = list(&action["runtime_data"]).iter().map(|parameter| {
        let param = described.params.iter().find(|param| parameter["name"] == *param.name);
        let id = param.unwrap().id;
        let param = given.params.iter().find(|param| param.param_id == id).unwrap();
        value::decode(&param.value).unwrap()
    });
    (text(&action["name"]), data.collect())
}

fn id(preamble: &Option<Preamble>) -> u32 {
    preamble.as_ref().unwrap().id
}

/// Returns the name that an object of the P4Info has in the program.
fn name_in_program(preamble: &Option<Preamble>) -> String {
    preamble.as_ref().unwrap().name.clone()
}

//! The control flow of a bmv2 program: tables and conditions that name their successors.
//!
//! A P4 statement becomes a table without a key, with a single constant action.

use serde_json::{Value, json};

/// A control flow under construction: its tables, conditions and actions.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) tables: Vec<Value>,
    pub(super) conditions: Vec<Value>,
    pub(super) actions: Vec<Value>,
}

/// A table that is visible to controllers.
pub(super) struct MatchTable<'a> {
    pub(super) name: &'a str,
    pub(super) key: Vec<Value>,
    /// Indices and names of the actions; the last one is the default.
    pub(super) actions: &'a [(usize, String)],
    pub(super) default_data: Vec<String>,
    pub(super) is_default_const: bool,
    pub(super) size: u32,
    /// The next table after a hit.
    pub(super) on_hit: &'a str,
    /// The next table after a miss.
    pub(super) on_miss: &'a str,
}

impl Graph {
    /// Adds an action and returns its index.
    pub(super) fn action(&mut self, name: &str, data: &[Value], primitives: &[Value]) -> usize {
        let id = self.actions.len();
        self.actions.push(json!({
            "name": name, "id": id, "runtime_data": data, "primitives": primitives,
        }));
        id
    }

    /// Adds a statement: primitives and a successor.
    pub(super) fn step(&mut self, name: &str, primitives: &[Value], next: Option<&str>) {
        let action_name = format!("do_{name}");
        let action = self.action(&action_name, &[], primitives);
        let table = json!({
            "name": name, "id": self.tables.len(), "key": [], "match_type": "exact",
            "type": "simple", "max_size": 1, "with_counters": false, "support_timeout": false,
            "direct_meters": null, "action_ids": [action], "actions": [action_name],
            "base_default_next": next, "next_tables": { (action_name.as_str()): next },
            "default_entry": {
                "action_id": action, "action_const": true,
                "action_data": [], "action_entry_const": true,
            },
        });
        self.tables.push(table);
    }

    /// Adds a condition with a successor for each outcome.
    pub(super) fn branch(
        &mut self,
        name: &str,
        condition: &Value,
        on_true: &str,
        on_false: Option<&str>,
    ) {
        self.conditions.push(json!({
            "name": name, "id": self.conditions.len(), "expression": condition,
            "true_next": on_true, "false_next": on_false,
        }));
    }

    /// Adds a table that is visible to controllers.
    pub(super) fn table(&mut self, table: &MatchTable<'_>) {
        let is_keyed = !table.key.is_empty();
        let ids: Vec<usize> = table.actions.iter().map(|(id, _)| *id).collect();
        let names: Vec<&str> = table.actions.iter().map(|(_, name)| name.as_str()).collect();
        let (hit, miss) = (table.on_hit, table.on_miss);
        let value = json!({
            "name": table.name, "id": self.tables.len(), "key": table.key,
            "match_type": if is_keyed { "ternary" } else { "exact" },
            "type": "simple", "max_size": table.size, "with_counters": is_keyed,
            "support_timeout": is_keyed, "direct_meters": null,
            "action_ids": ids, "actions": names, "base_default_next": miss,
            "next_tables": { "__HIT__": hit, "__MISS__": miss },
            "default_entry": {
                "action_id": ids.last(), "action_const": table.is_default_const,
                "action_data": table.default_data, "action_entry_const": table.is_default_const,
            },
        });
        self.tables.push(value);
    }
}

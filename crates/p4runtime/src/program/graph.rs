//! The control flow of a bmv2 program: tables and conditions that name what comes next.
//!
//! What a P4 program writes as a statement is a table without a key whose only action cannot change.

use serde_json::{Value, json};

/// Tables, conditions and actions so far.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) tables: Vec<Value>,
    pub(super) conditions: Vec<Value>,
    pub(super) actions: Vec<Value>,
}

/// A table that controllers see.
pub(super) struct MatchTable<'a> {
    pub(super) name: &'a str,
    pub(super) key: Vec<Value>,
    /// Positions of its actions, and their names; the last is what it does by default.
    pub(super) actions: &'a [(usize, String)],
    pub(super) default_data: Vec<String>,
    pub(super) is_default_const: bool,
    pub(super) size: u32,
    /// What comes next: after a hit, after a miss.
    pub(super) next: (&'a str, &'a str),
}

impl Graph {
    /// Adds an action, and says what its number is.
    pub(super) fn action(&mut self, name: &str, data: &[Value], primitives: &[Value]) -> usize {
        let id = self.actions.len();
        self.actions.push(json!({
            "name": name, "id": id, "runtime_data": data, "primitives": primitives,
        }));
        id
    }

    /// Adds a statement: primitives, and what comes next.
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

    /// Adds a condition, and what comes next.
    pub(super) fn branch(&mut self, name: &str, condition: &Value, next: (&str, Option<&str>)) {
        self.conditions.push(json!({
            "name": name, "id": self.conditions.len(), "expression": condition,
            "true_next": next.0, "false_next": next.1,
        }));
    }

    /// Adds a table that controllers see.
    pub(super) fn table(&mut self, table: &MatchTable<'_>) {
        let is_keyed = !table.key.is_empty();
        let ids: Vec<usize> = table.actions.iter().map(|(id, _)| *id).collect();
        let names: Vec<&str> = table.actions.iter().map(|(_, name)| name.as_str()).collect();
        let (hit, miss) = table.next;
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

//! The keys that have different values in two configurations.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Returns the changed keys: first the keys in `keys`, then all others.
///
/// The keys in `keys` are returned with their new values.
pub(super) fn keys_that_differ<T: Serialize>(
    before: &T,
    after: &T,
    keys: &[&'static str],
) -> (Vec<(&'static str, String)>, Vec<String>) {
    let before = leaves(before);
    let (mut settings, mut others) = (Vec::new(), Vec::new());
    for (key, value) in leaves(after) {
        if before.get(&key) == Some(&value) {
            continue;
        }
        match keys.iter().find(|known| **known == key) {
            Some(key) => settings.push((*key, value)),
            None => others.push(key),
        }
    }
    (settings, others)
}

/// Returns the keys of a configuration with their values, as `set` writes them.
fn leaves(options: &impl Serialize) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    // The options are plain values with text keys, so the conversion to JSON never fails.
    let value = serde_json::to_value(options).unwrap_or_default();
    collect_leaves(&value, String::new(), &mut found);
    found
}

fn collect_leaves(value: &Value, path: String, found: &mut BTreeMap<String, String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                collect_leaves(field, path, found);
            }
        }
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(text).collect();
            found.insert(path, items.join(","));
        }
        value => drop(found.insert(path, text(value))),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

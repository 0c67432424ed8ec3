//! The memory that a JSON value occupies.

use serde_json::Value;

/// Returns the bytes of a JSON value, without unused capacity of its lists.
pub(super) fn json_bytes(value: &Value) -> usize {
    let mut bytes = 0_usize;
    // The function uses a list instead of recursion, because a client chooses the nesting depth.
    let mut rest = vec![value];
    while let Some(value) = rest.pop() {
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => {
                rest.extend(items);
                0
            }
            Value::Object(fields) => {
                rest.extend(fields.values());
                fields.keys().map(|key| key.len().saturating_add(size_of::<String>())).sum()
            }
        };
        bytes = bytes.saturating_add(own).saturating_add(size_of::<Value>());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_memory_of_nested_json_is_counted() {
        let (value, string) = (size_of::<Value>(), size_of::<String>());
        assert_eq!(json_bytes(&json!([1, [], "abc"])), 4 * value + 3);
        assert_eq!(json_bytes(&json!({"ab": {"c": null}})), 3 * value + 2 * string + 3);
    }
}

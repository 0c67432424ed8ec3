//! Expressions, primitives and parser operations in the JSON format of bmv2.
//!
//! Source: "BMv2 JSON input format", version 2.23. The arithmetic of bmv2 has no width: values are
//! truncated only when a field is written. Complements are therefore written as differences from
//! all ones.

use serde_json::{Value, json};

/// A field of a header or of metadata.
pub(super) fn field(header: &str, name: &str) -> Value {
    json!({ "type": "field", "value": [header, name] })
}

/// A constant in an expression of bmv2.
pub(super) fn hex(value: u128) -> Value {
    json!({ "type": "hexstr", "value": format!("{value:#x}") })
}

/// An action parameter in an expression, by its position from 0.
pub(super) fn local(position: usize) -> Value {
    json!({ "type": "local", "value": position })
}

/// A binary operation in an expression of bmv2, such as `==`.
pub(super) fn op(name: &str, left: &Value, right: &Value) -> Value {
    json!({ "type": "expression", "value": { "op": name, "left": left, "right": right } })
}

/// Tests whether a header is valid.
pub(super) fn valid(header: &str) -> Value {
    op("d2b", &Value::Null, &field(header, "$valid$"))
}

/// Primitive: assigns a value to a field.
pub(super) fn assign(target: &Value, value: &Value) -> Value {
    json!({ "op": "assign", "parameters": [target, argument(value)] })
}

/// Parser operation: assigns a value to a field.
pub(super) fn set(target: &Value, value: &Value) -> Value {
    json!({ "op": "set", "parameters": [target, argument(value)] })
}

/// Parser operation: extracts a header.
pub(super) fn extract(header: &str) -> Value {
    json!({ "op": "extract", "parameters": [{ "type": "regular", "value": header }] })
}

/// Primitive with a header as its only argument.
pub(super) fn on_header(name: &str, header: &str) -> Value {
    json!({ "op": name, "parameters": [{ "type": "header", "value": header }] })
}

/// Returns a value in argument form, which differs for some value types.
fn argument(value: &Value) -> Value {
    match value["type"].as_str() {
        Some("expression") => json!({ "type": "expression", "value": value }),
        Some("local") => json!({ "type": "runtime_data", "value": value["value"] }),
        _ => value.clone(),
    }
}

/// Returns `(old & ~mask) | (value & mask)`; no operand has bits above `width`.
pub(super) fn masked(old: &Value, value: &Value, mask: &Value, width: u16) -> Value {
    let ones = hex(if width == 128 { u128::MAX } else { (1 << width) - 1 });
    let kept = op("&", old, &op("-", &ones, mask));
    op("|", &kept, &op("&", value, mask))
}

/// Returns the checksum delta of a 16-bit change (RFC 1624): `~old + new`.
fn checksum_delta(old: &Value, new: &Value) -> Value {
    op("+", &op("-", &hex(0xffff), old), new)
}

/// Returns the checksum delta of a change of `width` bits, a multiple of 16.
pub(super) fn checksum_deltas(old: &Value, new: &Value, width: u16) -> Value {
    let word =
        |value: &Value, shift: u16| op("&", &op(">>", value, &hex(shift.into())), &hex(0xffff));
    let words =
        (0..width).step_by(16).map(|shift| checksum_delta(&word(old, shift), &word(new, shift)));
    sum_of(words)
}

/// Returns the sum of values; zero if there are none.
pub(super) fn sum_of(values: impl IntoIterator<Item = Value>) -> Value {
    values.into_iter().reduce(|sum, value| op("+", &sum, &value)).unwrap_or_else(|| hex(0))
}

/// Returns primitives that add `sum` to a checksum.
///
/// The primitives overwrite `sum`, a field of 32 bits.
pub(super) fn update_checksum(checksum: &Value, sum: &Value) -> Vec<Value> {
    let start = op("+", sum, &op("-", &hex(0xffff), checksum));
    let fold = op("+", &op("&", sum, &hex(0xffff)), &op(">>", sum, &hex(16)));
    vec![
        assign(sum, &start),
        assign(sum, &fold),
        assign(sum, &fold),
        assign(checksum, &op("-", &hex(0xffff), sum)),
    ]
}

//! Expressions, assignments and conditions of a bmv2 program, as the JSON that bmv2 reads.
//!
//! Source: "BMv2 JSON input format", version 2.23. Arithmetic there has no width: nothing is cut off
//! before a field is written. So there is no complement here, only differences from all ones.

use serde_json::{Value, json};

/// A field of a header or of metadata.
pub(super) fn field(header: &str, name: &str) -> Value {
    json!({ "type": "field", "value": [header, name] })
}

/// A constant.
pub(super) fn hex(value: u128) -> Value {
    json!({ "type": "hexstr", "value": format!("{value:#x}") })
}

/// A parameter of the action, by its position from 0, inside of an expression.
pub(super) fn local(position: usize) -> Value {
    json!({ "type": "local", "value": position })
}

/// An operation on two values.
pub(super) fn op(name: &str, left: &Value, right: &Value) -> Value {
    json!({ "type": "expression", "value": { "op": name, "left": left, "right": right } })
}

/// Whether a header is there.
pub(super) fn valid(header: &str) -> Value {
    op("d2b", &Value::Null, &field(header, "$valid$"))
}

/// Primitive: a field takes a value.
pub(super) fn assign(target: &Value, value: &Value) -> Value {
    json!({ "op": "assign", "parameters": [target, argument(value)] })
}

/// Operation of a parser: a field takes a value.
pub(super) fn set(target: &Value, value: &Value) -> Value {
    json!({ "op": "set", "parameters": [target, argument(value)] })
}

/// Operation of a parser: the next bytes are this header.
pub(super) fn extract(header: &str) -> Value {
    json!({ "op": "extract", "parameters": [{ "type": "regular", "value": header }] })
}

/// Primitive with a header as its only argument.
pub(super) fn on_header(name: &str, header: &str) -> Value {
    json!({ "op": name, "parameters": [{ "type": "header", "value": header }] })
}

/// A value as an argument: parameters and expressions have a form of their own there.
fn argument(value: &Value) -> Value {
    match value["type"].as_str() {
        Some("expression") => json!({ "type": "expression", "value": value }),
        Some("local") => json!({ "type": "runtime_data", "value": value["value"] }),
        _ => value.clone(),
    }
}

/// `(old & ~mask) | (value & mask)`, where nothing has bits above `width`.
pub(super) fn masked(old: &Value, value: &Value, mask: &Value, width: u16) -> Value {
    let ones = hex(if width == 128 { u128::MAX } else { (1 << width) - 1 });
    let kept = op("&", old, &op("-", &ones, mask));
    op("|", &kept, &op("&", value, mask))
}

/// What a checksum gains when 16 bits change (RFC 1624): the complement of the old, and the new.
fn gain(old: &Value, new: &Value) -> Value {
    op("+", &op("-", &hex(0xffff), old), new)
}

/// What a checksum gains when a field of `width` bits changes; `width` is a multiple of 16.
pub(super) fn gains(old: &Value, new: &Value, width: u16) -> Value {
    let word =
        |value: &Value, shift: u16| op("&", &op(">>", value, &hex(shift.into())), &hex(0xffff));
    let words = (0..width).step_by(16).map(|shift| gain(&word(old, shift), &word(new, shift)));
    total(words)
}

/// The sum of values; zero for none.
pub(super) fn total(values: impl IntoIterator<Item = Value>) -> Value {
    values.into_iter().reduce(|sum, value| op("+", &sum, &value)).unwrap_or_else(|| hex(0))
}

/// Primitives that let a checksum follow what was gained in `sum`, a field of 32 bits that is used up.
pub(super) fn follow(checksum: &Value, sum: &Value) -> Vec<Value> {
    let start = op("+", sum, &op("-", &hex(0xffff), checksum));
    let fold = op("+", &op("&", sum, &hex(0xffff)), &op(">>", sum, &hex(16)));
    vec![
        assign(sum, &start),
        assign(sum, &fold),
        assign(sum, &fold),
        assign(checksum, &op("-", &hex(0xffff), sum)),
    ]
}

//! Evaluates expressions, conditions and action primitives of a bmv2 program.
//!
//! Arithmetic has unlimited width; only a write to a field truncates the value. The program has no
//! negative values.

use serde_json::Value;

use crate::fields::{Fields, list, name, text};

/// Evaluates a numeric expression; `data` has the parameters of the action.
pub(crate) fn evaluate(value: &Value, fields: &Fields<'_>, data: &[u128]) -> u128 {
    let inner = &value["value"];
    match value["type"].as_str().unwrap() {
        "field" => fields.read(&name(inner)),
        "hexstr" => hex(inner),
        "local" | "runtime_data" => data[inner.as_u64().unwrap() as usize],
        "expression" if inner["type"] == "expression" => evaluate(inner, fields, data),
        "expression" => {
            let side = |side: &str| evaluate(&inner[side], fields, data);
            let (left, right) = (side("left"), side("right"));
            let result = match inner["op"].as_str().unwrap() {
                "+" => left.checked_add(right),
                "-" => left.checked_sub(right),
                "&" => Some(left & right),
                "|" => Some(left | right),
                "<<" => Some(left << right).filter(|shifted| shifted >> right == left),
                ">>" => Some(left >> right),
                other => panic!("unknown operation: {other}"),
            };
            result.unwrap_or_else(|| panic!("{left} and {right} in {value}"))
        }
        other => panic!("unknown value: {other}"),
    }
}

/// Evaluates a condition of the bmv2 program for the fields of a packet.
pub(crate) fn is_true(value: &Value, fields: &Fields<'_>) -> bool {
    assert_eq!(value["type"], "expression");
    let inner = &value["value"];
    let side = |side: &str| evaluate(&inner[side], fields, &[]);
    match inner["op"].as_str().unwrap() {
        "==" => side("left") == side("right"),
        "!=" => side("left") != side("right"),
        ">=" => side("left") >= side("right"),
        "d2b" => side("right") != 0,
        other => panic!("unknown condition: {other}"),
    }
}

/// The egress port of dropped packets.
pub(crate) const DROP_PORT: u128 = 511;

/// Executes an action of the bmv2 program, which changes the fields of a packet.
pub(crate) fn run(action: &Value, data: &[u128], fields: &mut Fields<'_>) {
    assert_eq!(list(&action["runtime_data"]).len(), data.len(), "{}", action["name"]);
    for primitive in list(&action["primitives"]) {
        let [target, rest @ ..] = list(&primitive["parameters"]) else { panic!("{primitive}") };
        match (primitive["op"].as_str().unwrap(), rest) {
            ("assign", [value]) => {
                let value = evaluate(value, fields, data);
                fields.write(&name(&target["value"]), value);
            }
            ("add_header", []) => fields.add(&text(&target["value"])),
            ("remove_header", []) => fields.remove(&text(&target["value"])),
            ("mark_to_drop", []) => {
                fields.write(&("standard_metadata".into(), "egress_spec".into()), DROP_PORT);
            }
            (other, _) => panic!("unknown primitive: {other}"),
        }
    }
}

pub(crate) fn hex(value: &Value) -> u128 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    u128::from_str_radix(digits.unwrap_or_else(|| panic!("no number: {value}")), 16).unwrap()
}

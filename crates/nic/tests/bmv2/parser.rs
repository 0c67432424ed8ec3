//! The parser of a bmv2 program: states that extract headers and select the next state.

use serde_json::Value;

use crate::{
    expression::evaluate,
    fields::{Fields, list, name, text},
};

/// The parser error for a frame that ends within a header.
const TOO_SHORT: u128 = 1;

/// Maximum number of states of a frame.
const STATES_MAX: usize = 32;

/// Parses a frame, and returns the bytes after the last extracted header.
pub(crate) fn parse<'b>(program: &Value, fields: &mut Fields<'_>, mut bytes: &'b [u8]) -> &'b [u8] {
    let parser = &program["parsers"][0];
    let mut next = Some(text(&parser["init_state"]));
    for _ in 0..STATES_MAX {
        let Some(current) = next else { return bytes };
        let state = list(&parser["parse_states"]).iter().find(|state| state["name"] == *current);
        let state = state.unwrap_or_else(|| panic!("no state {current}"));
        for operation in list(&state["parser_ops"]) {
            match (operation["op"].as_str().unwrap(), list(&operation["parameters"])) {
                ("extract", [header]) => match fields.extract(&text(&header["value"]), bytes) {
                    Some(rest) => bytes = rest,
                    None => {
                        let error = ("standard_metadata".into(), "parser_error".into());
                        fields.write(&error, TOO_SHORT);
                        return bytes;
                    }
                },
                ("set", [target, value]) => {
                    let value = evaluate(value, fields, &[]);
                    fields.write(&name(&target["value"]), value);
                }
                (other, _) => panic!("unknown operation: {other}"),
            }
        }
        next = follow(state, fields);
    }
    panic!("a frame passes more than {STATES_MAX} states")
}

/// Returns the next state of the parser.
fn follow(state: &Value, fields: &Fields<'_>) -> Option<String> {
    let looked_at = list(&state["transition_key"]).iter();
    let key: Vec<u8> =
        looked_at.flat_map(|part| pad_to_bytes(&name(&part["value"]), fields)).collect();
    let chosen = list(&state["transitions"]).iter().find(|transition| {
        assert!(transition["mask"].is_null(), "masks are not supported");
        match transition["type"].as_str().unwrap() {
            "default" => true,
            "hexstr" => bytes_of(&transition["value"], key.len()) == key,
            other => panic!("unknown transition: {other}"),
        }
    });
    let next =
        &chosen.unwrap_or_else(|| panic!("no transition from {}", state["name"]))["next_state"];
    next.as_str().map(str::to_owned)
}

/// Returns the value of a field as whole bytes, padded with leading zeros.
fn pad_to_bytes(name: &(String, String), fields: &Fields<'_>) -> Vec<u8> {
    let length = fields.layout.width(name).div_ceil(8) as usize;
    fields.read(name).to_be_bytes()[16 - length..].to_vec()
}

/// Returns the value of a hexadecimal text as `length` bytes.
fn bytes_of(value: &Value, length: usize) -> Vec<u8> {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x")).unwrap();
    assert_eq!(digits.len(), length * 2, "{value} is not as wide as what is looked at");
    let byte = |start: usize| u8::from_str_radix(&digits[start..start + 2], 16).unwrap();
    (0..digits.len()).step_by(2).map(byte).collect()
}

//! Tests that the hand-written program, the generated files and the description agree.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a difference fails the test"
)]

use std::{collections::BTreeMap, fs, path::Path};

use serde_json::Value;
use shunt_p4runtime::{
    program::{
        Disposition, MISS_ACTION, MatchKind, PACKET_IN, PACKET_OUT, Program, START_ACTION,
        START_TABLE, actions, key_fields, p4info_text,
    },
    schema::{FieldKind, Schema},
};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../p4");
    fs::read_to_string(folder.join(name)).unwrap()
}

/// Returns the program without comments and with joined lines.
fn source() -> String {
    let joined = file("gigaflow.p4").replace("\\\n", " ");
    let lines = joined.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the text from the first mark up to the second mark.
fn text_between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let (_, rest) = text.split_once(from).unwrap_or_else(|| panic!("no `{from}`"));
    rest.split_once(to).unwrap_or_else(|| panic!("no `{to}` after `{from}`")).0
}

/// Parses `bit<16> tag` into name and width.
fn parse_field(text: &str) -> (String, u16) {
    let width = text_between(text, "bit<", ">").parse().unwrap();
    let name = text.split_whitespace().last().unwrap().to_owned();
    (name, width)
}

#[test]
fn the_committed_files_are_what_the_description_makes() {
    let program = Program::default();
    assert!(file("gigaflow.p4info.txtpb") == p4info_text(&program.p4info()), "cargo xtask p4");
    let json = serde_json::to_string_pretty(&program.bmv2_json()).unwrap() + "\n";
    assert!(file("gigaflow.json") == json, "cargo xtask p4");
}

#[test]
fn the_program_has_the_stages_of_the_description() {
    let (source, program) = (source(), Program::default());
    for stage in 0..program.stages() {
        let number = u16::from(stage) + 1;
        let (table, counter) = (program.table_id(stage), program.counter_id(stage));
        assert!(source.contains(&format!("STAGE({number}, {table:#010x}, {counter:#010x})")));
        assert!(source.contains(&format!("PASS({number})")));
    }
    assert_eq!(source.matches("\n    STAGE(").count(), usize::from(program.stages()));
    assert_eq!(source.matches("\n        PASS(").count(), usize::from(program.stages()));
    assert!(source.contains(&format!("@id({START_TABLE:#010x}) table start_table")));
    let stage = text_between(&source, "#define STAGE", "\n");
    assert_eq!(text_between(stage, "size = ", ";").parse(), Ok(program.size()));
    assert!(stage.contains("support_timeout = true;"));
}

#[test]
fn the_program_matches_the_fields_of_the_description() {
    let source = source();
    let stage = text_between(&source, "#define STAGE", "\n");
    let keys: Vec<&str> = text_between(stage, "key = {", "}").split(';').map(str::trim).collect();
    let expected = key_fields().iter().map(|field| {
        let kind = match field.kind {
            MatchKind::Exact => "exact",
            MatchKind::Ternary => "ternary",
        };
        format!("meta.flow.{0} : {kind} @name(\"{0}\")", field.name)
    });
    assert_eq!(keys[..keys.len() - 1], expected.collect::<Vec<_>>());
    let fields = text_between(&source, "struct flow_t {", "}").split(';').map(str::trim);
    let widths: Vec<_> = fields.filter(|field| !field.is_empty()).map(parse_field).collect();
    let expected: Vec<_> =
        key_fields().iter().map(|field| (field.name.to_owned(), field.width)).collect();
    assert_eq!(widths, expected);
}

#[test]
fn the_program_has_the_actions_of_the_description() {
    let source = source();
    let stage = text_between(&source, "#define STAGE", "\n");
    let listed = text_between(stage, "actions = {", "}").split(';').map(str::trim);
    let expected: Vec<_> =
        actions().iter().map(|action| format!("@tableonly {}", action.name)).collect();
    let listed: Vec<_> = listed.filter(|action| action.starts_with("@tableonly")).collect();
    assert_eq!(listed, expected);
    assert!(stage.contains(&format!("const default_action = {}();", MISS_ACTION.name)));
    for action in actions().iter().chain([&MISS_ACTION, &START_ACTION]) {
        let declaration = format!("@id({:#010x}) action {}(", action.id, action.name);
        let params = text_between(&source, &declaration, ")").split(',').map(str::trim);
        let params: Vec<_> = params.filter(|param| !param.is_empty()).map(parse_field).collect();
        let expected: Vec<_> = action.params().map(|param| (param.name(), param.width)).collect();
        assert_eq!(params, expected, "{}", action.name);
        let body = text_between(text_between(&source, &declaration, "\n    @id"), "{", "}");
        assert_eq!(
            body.contains("SET_NEXT_TAG"),
            action.disposition == Disposition::Next,
            "{}",
            action.name
        );
        assert_eq!(
            body.contains("SET_EGRESS"),
            action.disposition == Disposition::Forward,
            "{}",
            action.name
        );
    }
}

/// Transitions of a parser state by value; the default has no value.
type Transitions = BTreeMap<Option<u128>, String>;

/// Returns the transitions of each parser state of the source.
///
/// Transitions with masks or several fields are left out, together with their defaults.
fn source_transitions() -> BTreeMap<String, Transitions> {
    let source = source();
    let states = text_between(&source, "parser parse(", "\ncontrol ").split("    state ").skip(1);
    let transitions = states.map(|state| {
        let name = state.split(' ').next().unwrap().trim_end_matches("_state").to_owned();
        let transition = text_between(state, "transition ", "\n    }");
        let Some((_, cases)) = transition.split_once('{') else {
            let next = transition.trim().trim_end_matches(';').trim_end_matches("_state");
            return (name, Transitions::from([(None, next.to_owned())]));
        };
        let cases =
            text_between(cases, "", "}").split(';').filter_map(|case| case.split_once(": "));
        let cases: Vec<_> = cases.map(|(value, next)| (value.trim(), next.trim())).collect();
        let has_masks = cases.iter().any(|(value, _)| value.contains("&&&") || value.contains('('));
        let plain = cases.iter().filter_map(|(value, next)| {
            let number = match value.strip_prefix("0x") {
                Some(digits) => u128::from_str_radix(digits, 16).ok().map(Some),
                None if *value == "default" => (!has_masks).then_some(None),
                None => value.parse().ok().map(Some),
            };
            Some((number?, (*next).to_owned()))
        });
        (name, plain.collect())
    });
    transitions.collect()
}

#[test]
fn the_parser_agrees_with_that_for_bmv2() {
    let json = Program::default().bmv2_json();
    let states = json["parsers"][0]["parse_states"].as_array().unwrap();
    let written = source_transitions();
    for state in states {
        let name = state["name"].as_str().unwrap();
        let Some(written) = written.get(name) else { continue };
        let transitions: Transitions = state["transitions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|transition| {
                let digits =
                    transition["value"].as_str().map(|value| value.trim_start_matches("0x"));
                let number = digits.map(|digits| u128::from_str_radix(digits, 16).unwrap());
                (number, transition["next_state"].as_str().unwrap_or("accept").to_owned())
            })
            .collect();
        for (value, next) in written {
            assert_eq!(transitions.get(value), Some(next), "{name}: {value:x?}");
        }
        if written.contains_key(&None) && name != "start" {
            assert_eq!(&transitions, written, "{name}");
        }
    }
    assert_eq!(written.len(), 19, "{:?}", written.keys());
    // The parser for bmv2 has additional states for the length checks.
    let others = ["is_length", "arp_operation"];
    assert_eq!(states.len(), written.len() + others.len());
}

#[test]
fn program_has_packet_headers_of_description() {
    let source = source();
    for header in [PACKET_IN, PACKET_OUT] {
        let fields = text_between(&source, &format!("header {}_t {{", header.name), "}").split(';');
        let fields: Vec<_> =
            fields.map(str::trim).filter(|field| !field.is_empty()).map(str::to_owned).collect();
        for (field, text) in header.fields.iter().zip(&fields) {
            assert!(text.starts_with(&format!("@id({})", field.id)), "{text}");
            assert_eq!(parse_field(text), (field.name.to_owned(), field.width));
        }
        assert_eq!(fields.len(), header.fields.len());
    }
}

#[test]
fn the_p4info_agrees_with_the_description() {
    let program = Program::default();
    let schema = Schema::read(&program.p4info()).unwrap();
    for stage in 0..program.stages() {
        let table = &schema.tables[&program.table_id(stage)];
        assert_eq!(table.size, u64::from(program.size()));
        assert!(table.has_counters && table.has_timeouts && table.has_priorities);
        let fields: Vec<_> =
            table.fields.iter().map(|(id, field)| (*id, field.width, field.kind)).collect();
        let expected = key_fields().iter().map(|field| {
            let kind = match field.kind {
                MatchKind::Exact => FieldKind::Exact,
                MatchKind::Ternary => FieldKind::Ternary,
            };
            (field.id, usize::from(field.width), kind)
        });
        assert_eq!(fields, expected.collect::<Vec<_>>());
    }
    for action in actions() {
        let widths: BTreeMap<u32, usize> =
            action.params().map(|param| (param.id, param.width.into())).collect();
        assert_eq!(schema.actions[&action.id], widths, "{}", action.name);
    }
}

/// Returns all names in the JSON to which other objects refer.
fn names(json: &Value) -> Vec<&str> {
    let ingress = &json["pipelines"][0];
    let nodes = ["tables", "conditionals"].map(|kind| ingress[kind].as_array().unwrap());
    nodes.into_iter().flatten().map(|node| node["name"].as_str().unwrap()).collect()
}

#[test]
fn every_bmv2_successor_exists() {
    let json = Program::default().bmv2_json();
    let names = names(&json);
    let ingress = &json["pipelines"][0];
    let is_there = |next: &Value| next.is_null() || names.contains(&next.as_str().unwrap());
    assert!(is_there(&ingress["init_table"]));
    let mut reached = std::collections::BTreeSet::from([ingress["init_table"].as_str().unwrap()]);
    for table in ingress["tables"].as_array().unwrap() {
        for next in table["next_tables"].as_object().unwrap().values() {
            assert!(is_there(next), "{} -> {next}", table["name"]);
            reached.extend(next.as_str());
        }
        for action in table["action_ids"].as_array().unwrap() {
            assert!(json["actions"][action.as_u64().unwrap() as usize].is_object());
        }
    }
    for condition in ingress["conditionals"].as_array().unwrap() {
        for next in [&condition["true_next"], &condition["false_next"]] {
            assert!(is_there(next), "{} -> {next}", condition["name"]);
            reached.extend(next.as_str());
        }
    }
    let all: std::collections::BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(all.len(), names.len(), "names are unique");
    assert_eq!(reached, all, "every step is reachable");
}

#[test]
fn the_bmv2_program_uses_only_its_headers() {
    fn check(value: &Value, fields: &BTreeMap<&str, Vec<&str>>) {
        if value["type"] == "field" {
            let (header, name) = (value["value"][0].as_str(), value["value"][1].as_str());
            let known = &fields[header.unwrap()];
            assert!(name == Some("$valid$") || known.contains(&name.unwrap()), "{value}");
        }
        match value {
            Value::Array(list) => list.iter().for_each(|inner| check(inner, fields)),
            Value::Object(map) => map.values().for_each(|inner| check(inner, fields)),
            _ => {}
        }
    }
    let json = Program::default().bmv2_json();
    let types = json["header_types"].as_array().unwrap();
    let mut fields = BTreeMap::new();
    for header in json["headers"].as_array().unwrap() {
        let kind = types.iter().find(|kind| kind["name"] == header["header_type"]).unwrap();
        let list = kind["fields"].as_array().unwrap();
        let bits: u64 = list.iter().map(|field| field[1].as_u64().unwrap()).sum();
        assert_eq!(bits % 8, 0, "{header}");
        let names = list.iter().map(|field| field[0].as_str().unwrap()).collect();
        fields.insert(header["name"].as_str().unwrap(), names);
    }
    check(&json, &fields);
    let states = json["parsers"][0]["parse_states"].as_array().unwrap();
    let names: Vec<_> = states.iter().map(|state| &state["name"]).collect();
    for state in states {
        for transition in state["transitions"].as_array().unwrap() {
            let next = &transition["next_state"];
            assert!(next.is_null() || names.contains(&next), "{next}");
        }
    }
}

//! A switch that interprets the bmv2 program for single frames.

use std::{fs, sync::LazyLock};

use serde_json::Value;
use shunt_nic::testing::NicOutcome;
use shunt_p4runtime::{
    program::{CPU_PORT, Program},
    wire::p4::{config::v1::P4Info, v1::TableEntry},
};

use crate::{
    expression::{DROP_PORT, is_true, run},
    fields::{Fields, Layout, list, text},
    parser::parse,
    tables::{Call, Tables, action, default_call, table},
};

/// Maximum number of tables and conditions that a packet passes.
const STEPS_MAX: usize = 128;

/// The program of the repository, and its P4Info.
#[derive(Debug)]
struct Source {
    program: Value,
    layout: Layout,
    info: P4Info,
}

/// The compiled program of the NIC with its tables.
static SOURCE: LazyLock<Source> = LazyLock::new(|| {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../p4/gigaflow.json");
    let program: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let layout = Layout::of(&program);
    Source { program, layout, info: Program::default().p4info() }
});

/// A switch with the bmv2 program and table entries.
#[derive(Clone, Debug)]
pub(crate) struct Switch {
    source: &'static Source,
    tables: Tables,
    /// The action of the table before the stages.
    start: Call,
}

impl Switch {
    pub(crate) fn new() -> Self {
        let source = &*SOURCE;
        let start = default_call(&source.program, table(&source.program, START));
        Self { source, tables: Tables::default(), start }
    }

    pub(crate) fn insert(&mut self, entry: &TableEntry) {
        self.tables.insert(&self.source.program, &self.source.info, entry);
    }

    pub(crate) fn set_start(&mut self, tag: u16) {
        self.start.1 = vec![tag.into()];
    }

    /// Returns the outcome of a frame that arrives on a port.
    pub(crate) fn outcome_of(&self, port: u16, bytes: &[u8]) -> NicOutcome {
        let mut fields = Fields::new(&self.source.layout);
        let standard = |field: &str| ("standard_metadata".to_owned(), field.to_owned());
        fields.write(&standard("ingress_port"), port.into());
        fields.write(&standard("packet_length"), bytes.len() as u128);
        let payload = parse(&self.source.program, &mut fields, bytes);
        self.ingress(&mut fields);
        let order = list(&self.source.program["deparsers"][0]["order"]).iter().map(text);
        let headers = order.filter(|header| fields.is_valid(header));
        let mut frame: Vec<u8> = headers.flat_map(|header| fields.emit(&header)).collect();
        frame.extend(payload);
        match fields.read(&standard("egress_spec")) {
            DROP_PORT => NicOutcome::Dropped,
            port if port == CPU_PORT.into() => packet_in(&frame),
            port => NicOutcome::Sent { port: port as u16, frame },
        }
    }

    fn ingress(&self, fields: &mut Fields<'_>) {
        let pipeline = &self.source.program["pipelines"][0];
        let mut next = &pipeline["init_table"];
        for _ in 0..STEPS_MAX {
            let Some(current) = next.as_str() else { return };
            let mut conditions = list(&pipeline["conditionals"]).iter();
            next = match conditions.find(|condition| condition["name"] == *current) {
                Some(condition) if is_true(&condition["expression"], fields) => {
                    &condition["true_next"]
                }
                Some(condition) => &condition["false_next"],
                None => self.apply(table(&self.source.program, current), fields),
            };
        }
        panic!("a packet takes more than {STEPS_MAX} steps")
    }

    /// Applies a table to a packet, and returns the next node of the program.
    fn apply<'a>(&self, table: &'a Value, fields: &mut Fields<'_>) -> &'a Value {
        let found = self.tables.find(table, fields);
        let default = default_call(&self.source.program, table);
        let default = if table["name"] == START { &self.start } else { &default };
        let (name, data) = found.unwrap_or(default);
        let action = action(&self.source.program, name);
        assert!(list(&table["actions"]).contains(&action["name"]), "{name} is not of the table");
        run(action, data, fields);
        let outcome = if found.is_some() { "__HIT__" } else { "__MISS__" };
        let next_nodes = &table["next_tables"];
        next_nodes
            .get(outcome)
            .or_else(|| next_nodes.get(name))
            .unwrap_or_else(|| panic!("no next node: {table}"))
    }
}

/// The name of the table before the stages.
const START: &str = "ingress.start_table";

/// Parses a packet-in: a header with fields of 2, 1, 2 and 1 bytes, then the frame.
fn packet_in(bytes: &[u8]) -> NicOutcome {
    let [port_high, port_low, reason, tag_high, tag_low, last_stage, frame @ ..] = bytes else {
        panic!("{bytes:02x?}")
    };
    NicOutcome::HandedOver {
        ingress_port: u16::from_be_bytes([*port_high, *port_low]),
        reason: *reason,
        miss_tag: u16::from_be_bytes([*tag_high, *tag_low]),
        last_stage: *last_stage,
        frame: frame.to_vec(),
    }
}

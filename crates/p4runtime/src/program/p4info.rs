//! The P4Info of a program.

use super::description::{
    ActionSpec, Disposition, KeyField, MISS_ACTION, MatchKind, PACKET_IN, PACKET_OUT, PacketField,
    PacketHeader, Program, START_ACTION, START_TABLE, TAG_FIRST, actions, key_fields,
};
use crate::{
    value,
    wire::p4::config::v1::{
        Action, ActionRef, ControllerPacketMetadata, CounterSpec, DirectCounter, MatchField,
        P4Info, PkgInfo, Preamble, Table, TableActionCall, action, action_ref,
        controller_packet_metadata, counter_spec, match_field, table, table_action_call,
    },
};

impl Program {
    /// Returns the P4Info of the program.
    #[must_use]
    pub fn p4info(&self) -> P4Info {
        let stages = 0..self.stages();
        let listed = actions().iter().chain([&MISS_ACTION, &START_ACTION]);
        P4Info {
            pkg_info: Some(PkgInfo {
                name: "gigaflow".to_owned(),
                arch: "v1model".to_owned(),
                ..PkgInfo::default()
            }),
            tables: stages.clone().map(|stage| self.stage_table(stage)).chain([start()]).collect(),
            actions: listed.map(action_info).collect(),
            direct_counters: stages.map(|stage| self.counter(stage)).collect(),
            controller_packet_metadata: [PACKET_IN, PACKET_OUT].iter().map(packet).collect(),
        }
    }

    /// Returns the description of the table of a stage.
    fn stage_table(&self, stage: u8) -> Table {
        let scoped = |spec: &ActionSpec| ActionRef {
            id: spec.id,
            scope: (if spec.disposition == Disposition::Miss {
                action_ref::Scope::DefaultOnly
            } else {
                action_ref::Scope::TableOnly
            })
            .into(),
            ..ActionRef::default()
        };
        Table {
            preamble: preamble(self.table_id(stage), &format!("ltm_{}", u16::from(stage) + 1)),
            match_fields: key_fields().iter().map(match_info).collect(),
            action_refs: actions().iter().chain([&MISS_ACTION]).map(scoped).collect(),
            const_default_action_id: MISS_ACTION.id,
            initial_default_action: Some(TableActionCall {
                action_id: MISS_ACTION.id,
                arguments: Vec::new(),
            }),
            direct_resource_ids: vec![self.counter_id(stage)],
            size: self.size().into(),
            idle_timeout_behavior: table::IdleTimeoutBehavior::NotifyControl.into(),
            ..Table::default()
        }
    }

    /// Returns the counter of the table of a stage.
    fn counter(&self, stage: u8) -> DirectCounter {
        let name = format!("ltm_{}_hits", u16::from(stage) + 1);
        DirectCounter {
            preamble: preamble(self.counter_id(stage), &name),
            spec: Some(CounterSpec { unit: counter_spec::Unit::Both.into() }),
            direct_table_id: self.table_id(stage),
        }
    }
}

/// Returns the table that sets the tag of every packet at the start.
fn start() -> Table {
    let argument = table_action_call::Argument {
        param_id: 1,
        value: value::canonical(&TAG_FIRST.to_be_bytes()).to_vec(),
    };
    Table {
        preamble: preamble(START_TABLE, "start_table"),
        action_refs: vec![ActionRef { id: START_ACTION.id, ..ActionRef::default() }],
        initial_default_action: Some(TableActionCall {
            action_id: START_ACTION.id,
            arguments: vec![argument],
        }),
        size: 1,
        ..Table::default()
    }
}

/// Returns the preamble of an object, with its full and short name.
fn preamble(id: u32, alias: &str) -> Option<Preamble> {
    let name = format!("ingress.{alias}");
    Some(Preamble { id, name, alias: alias.to_owned(), annotations: Vec::new() })
}

/// Returns the description of a key field.
fn match_info(field: &KeyField) -> MatchField {
    let kind = match field.kind {
        MatchKind::Exact => match_field::MatchType::Exact,
        MatchKind::Ternary => match_field::MatchType::Ternary,
    };
    MatchField {
        id: field.id,
        name: field.name.to_owned(),
        bitwidth: field.width.into(),
        r#match: Some(match_field::Match::MatchType(kind.into())),
        ..MatchField::default()
    }
}

/// Returns the description of an action.
fn action_info(spec: &ActionSpec) -> Action {
    let params = spec.params().map(|param| action::Param {
        id: param.id,
        name: param.name(),
        bitwidth: param.width.into(),
        ..action::Param::default()
    });
    Action { preamble: preamble(spec.id, spec.name), params: params.collect() }
}

/// Returns the description of a packet-in or packet-out header.
fn packet(header: &PacketHeader) -> ControllerPacketMetadata {
    let field = |meta: &PacketField| controller_packet_metadata::Metadata {
        id: meta.id,
        name: meta.name.to_owned(),
        bitwidth: meta.width.into(),
        ..controller_packet_metadata::Metadata::default()
    };
    ControllerPacketMetadata {
        preamble: Some(Preamble {
            id: header.id,
            name: header.name.to_owned(),
            alias: header.name.to_owned(),
            annotations: vec![format!("@controller_header(\"{}\")", header.name)],
        }),
        metadata: header.fields.iter().map(field).collect(),
    }
}

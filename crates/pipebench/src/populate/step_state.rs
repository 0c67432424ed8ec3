//! The state of packets between tables in the real form: registers, marks, and rewritten headers.
//!
//! A written value is derived from the match of its rule, so a rule always writes the same value.
//! Rules of real switches do the same: a rule for a destination loads the port of that destination.

use std::collections::BTreeMap;

use super::base::BaseRule;
use crate::{
    classbench::AddressPrefix,
    pipeline_file::{Field, PipelineFile, TraversalStep},
    seed::number_of,
};

/// Number of registers of OpenFlow switches.
const REGISTERS: usize = 16;
/// Number of distinct values of a register, of a mark and of a rewritten address.
const DISTINCT_VALUES: u64 = 64;
/// The base of the Ethernet addresses that rules write.
const ETHERNET: u64 = 0x0200_5e20_0000;
/// The base of the IP addresses that rules write: 198.18.0.0/15, for benchmarks.
const ADDRESS: u32 = 0xc612_0000;

/// The registers of a pipeline, by their roles.
#[derive(Clone, Debug, Default)]
pub(super) struct Registers(BTreeMap<String, usize>);

impl Registers {
    /// Assigns registers to the roles of a pipeline.
    ///
    /// Roles beyond the last register get no register.
    pub(super) fn of(pipeline: &PipelineFile) -> Self {
        let steps = pipeline.traversals.iter().flat_map(|traversal| &traversal.steps);
        let fields = steps.flat_map(|step| step.matches.iter().chain(&step.set));
        let roles: std::collections::BTreeSet<&str> =
            fields.map(Field::name).filter(|name| name.starts_with("reg:")).collect();
        Self(roles.into_iter().map(str::to_owned).zip(0..REGISTERS).collect())
    }

    /// Returns the OpenFlow name of the register or mark of a field.
    fn name(&self, field: &Field) -> Option<String> {
        match field.name() {
            "pkt_mark" => Some("pkt_mark".to_owned()),
            role => self.0.get(role).map(|number| format!("reg{number}")),
        }
    }
}

/// The state of a base rule's packets between two steps of a traversal.
#[derive(Clone, Debug)]
pub(super) struct StepState {
    /// The current headers of the packets.
    pub(super) rule: BaseRule,
    /// The values of written registers and marks, by OpenFlow name.
    values: BTreeMap<String, u64>,
}

impl StepState {
    /// Returns the state of the packets of `rule` before registers are written.
    pub(super) const fn new(rule: BaseRule) -> Self {
        Self { rule, values: BTreeMap::new() }
    }

    /// Returns the matches of a step on values that earlier steps wrote.
    pub(super) fn match_items(&self, step: &TraversalStep, registers: &Registers) -> Vec<String> {
        let names = step.matches.iter().filter_map(|field| registers.name(field));
        let items = names.filter_map(|name| {
            let value = self.values.get(&name)?;
            Some(format!("{name}={value:#x}"))
        });
        items.collect()
    }

    /// Applies the writes of a step; returns the actions that write.
    pub(super) fn write(
        &mut self,
        step: &TraversalStep,
        registers: &Registers,
        match_text: &str,
    ) -> String {
        let value = 1 + number_of(match_text) % DISTINCT_VALUES;
        let mut actions = String::new();
        for field in &step.set {
            if let Some(name) = registers.name(field) {
                actions.push_str(&format!("set_field:{value:#x}->{name},"));
                self.values.insert(name, value);
            } else {
                actions.push_str(&self.rewrite(field.name(), value));
            }
        }
        actions
    }

    /// Rewrites a supported header field; returns the action.
    fn rewrite(&mut self, field: &str, value: u64) -> String {
        match field {
            "eth_src" => {
                self.rule.eth_src = ETHERNET | value;
                format!("set_field:{}->eth_src,", super::matching::ethernet(ETHERNET | value))
            }
            "eth_dst" => {
                self.rule.eth_dst = ETHERNET | value;
                format!("set_field:{}->eth_dst,", super::matching::ethernet(ETHERNET | value))
            }
            "ip_dst" => {
                let address = ADDRESS | u32::try_from(value).unwrap_or(0);
                self.rule.filter.destination =
                    AddressPrefix::new(address, AddressPrefix::LENGTH_MAX);
                format!("set_field:{}->ip_dst,", std::net::Ipv4Addr::from(address))
            }
            "ip_ttl" => "dec_ttl,".to_owned(),
            "ip_dscp" => format!("set_field:{}->ip_dscp,", value % DISTINCT_VALUES),
            _ => String::new(),
        }
    }

    /// Returns whether a step has actions for IP packets only.
    pub(super) fn needs_ip(step: &TraversalStep) -> bool {
        step.set.iter().any(|field| ["ip_dst", "ip_ttl", "ip_dscp"].contains(&field.name()))
    }

    /// Returns whether a step changes a header field.
    pub(super) fn rewrites(step: &TraversalStep, field: &Field) -> bool {
        ["eth_src", "eth_dst", "ip_dst"].contains(&field.name()) && step.set.contains(field)
    }
}

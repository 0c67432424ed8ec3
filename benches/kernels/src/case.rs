//! Rules that kernels and experiments share: chains of tables.

use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, GroupCommand, MeterCommand, Modification, Pipeline,
    PortInfo, Time,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

/// A case that is measured: a bridge's groups, meters and rules as `ovs-ofctl` reads them.
#[derive(Clone, Debug)]
pub struct Case {
    /// Its name in tables and plots.
    pub name: String,
    /// Whether it is one of the chains of tables; else it is an action.
    pub is_chain: bool,
    /// Groups, which come before the rules.
    pub groups: &'static [&'static str],
    /// Meters, which come before the rules.
    pub meters: &'static [&'static str],
    /// Rules.
    pub rules: Vec<String>,
}

/// Reads the destination, so that each address is a flow of its own, for every switch.
pub const READ: &str = "move:NXM_OF_IP_DST[]->NXM_NX_REG1[]";

/// The source of all packets, which rule 7 of each table of a chain matches.
pub const SOURCE: [u8; 4] = [192, 168, 7, 1];

/// What a packet of [`SOURCE`] meets: `tables` tables of 100 rules by source network, in which the
/// same one matches.
#[must_use]
pub fn chain(tables: u8) -> Case {
    let mut rules = Vec::new();
    for table in 0..tables {
        for rule in 0..RULES_PER_TABLE {
            let then = match table + 1 {
                last if last == tables => format!("{READ},output:2"),
                next => format!("goto_table:{next}"),
            };
            rules.push(format!(
                "table={table},priority={rule},udp,nw_src=192.168.{rule}.0/24,actions={then}"
            ));
        }
    }
    let name = if tables == 1 { "1 table".to_owned() } else { format!("{tables} tables") };
    Case { name, is_chain: true, groups: &[], meters: &[], rules }
}

/// A bridge with two ports and the rules of a case.
///
/// # Panics
///
/// When the rules are not legal.
#[must_use]
pub fn pipeline(case: &Case) -> Pipeline {
    let (pipeline, bridge) = (Pipeline::new(1), BridgeId::new(1));
    pipeline.add_bridge(bridge, BridgeSettings::default());
    let _ = pipeline.set_ports(bridge, [1, 2].map(PortInfo::datapath).into());
    let groups = case.groups.iter().map(|text| {
        let group = parse_group_mod(GroupCommand::Add, text, &NoPortNames);
        Modification::from(group.unwrap_or_else(|error| panic!("{text}: {error}")))
    });
    let meters = case.meters.iter().map(|text| {
        let meter = parse_meter_mod(MeterCommand::Add, text);
        Modification::from(meter.unwrap_or_else(|error| panic!("{text}: {error}")))
    });
    let rules = case.rules.iter().map(|text| {
        let rule = parse_rule(FlowModCommand::Add, text, &NoPortNames);
        Modification::from(rule.unwrap_or_else(|error| panic!("{text}: {error}")))
    });
    let done = pipeline.modify(bridge, groups.chain(meters).chain(rules), Time::ZERO);
    done.unwrap_or_else(|error| panic!("{}: {error}", case.name));
    pipeline
}

/// Rules in each table of a chain.
const RULES_PER_TABLE: u32 = 100;

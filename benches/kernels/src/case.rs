//! Rules that kernels and experiments share: chains of tables.

use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    BridgeId, BridgeSettings, FlowModCommand, GroupCommand, MeterCommand, Modification, Pipeline,
    PortInfo, Time,
    text::{parse_group_mod, parse_meter_mod, parse_rule},
};

/// A measured case: groups, meters and rules in the syntax of `ovs-ofctl`.
#[derive(Clone, Debug)]
pub struct Case {
    /// Name of the case in tables and plots.
    pub name: String,
    /// True for a chain of tables; false for an action.
    pub is_chain: bool,
    /// Groups, which are added before the rules.
    pub groups: &'static [&'static str],
    /// Meters, which are added before the rules.
    pub meters: &'static [&'static str],
    /// Rules of the case, in the syntax of `ovs-ofctl`.
    pub rules: Vec<String>,
}

/// Reads the destination address, so that each address is a separate flow.
pub const READ: &str = "move:NXM_OF_IP_DST[]->NXM_NX_REG1[]";

/// The source address of all packets.
/// Rule 7 of each table of a chain matches the address.
pub const SOURCE: [u8; 4] = [192, 168, 7, 1];

/// Returns a chain of `tables` tables with 100 rules each by source network.
///
/// A packet from [`SOURCE`] matches the same rule in each table.
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

/// Returns a bridge with two ports and the rules of a case.
///
/// # Panics
///
/// If a rule is invalid.
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

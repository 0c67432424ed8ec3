//! A set of filters as one table of rules, and the flows that match them.

use shunt_flow::{FieldId, PortNo};

use super::{RuleLine, material::Material};
use crate::{
    classbench::{Filter, PortMask, PortRange, Prefix},
    traffic::{FieldGroup, FlowClass, FlowSource, Span, Tuple},
};

/// Priorities that filters are spread over, the first of them with the highest.
const PRIORITIES: usize = 60_000;
/// Ports that rules forward to, in turn.
const OUTPUTS: usize = 4;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;

impl Material {
    /// One table in which the first filter wins, and flows of any of its filters.
    pub(super) fn one_table(filters: &[Filter]) -> Self {
        let mut rules = Vec::new();
        for (index, filter) in filters.iter().enumerate() {
            let below = index.saturating_mul(PRIORITIES) / filters.len().max(PRIORITIES);
            let priority = PRIORITIES.saturating_sub(below);
            let output = 2 + index % OUTPUTS;
            rules.extend(matches(filter).into_iter().map(|matching| RuleLine {
                table: 0,
                text: format!("table=0,priority={priority},{matching},actions=output:{output}"),
            }));
        }
        let groups = vec![FieldGroup::new(filters.iter().map(tuple))];
        let class = FlowClass {
            name: "filters".to_owned(),
            in_port: PortNo::new(1),
            groups,
            rest: FieldGroup::default(),
        };
        Self { rules, flows: FlowSource { classes: vec![class] }, counts: None }
    }
}

/// What a filter asks of the headers.
pub(super) fn tuple(filter: &Filter) -> Tuple {
    let prefix = |field, prefix: Prefix| Span {
        field,
        low: prefix.address().into(),
        high: prefix.last().into(),
    };
    let ports = |field, range: PortRange| Span {
        field,
        low: range.low().into(),
        high: range.high().into(),
    };
    let (low, high) = filter.protocol.map_or((0, u8::MAX), |protocol| (protocol, protocol));
    vec![
        prefix(FieldId::Ipv4Src, filter.source),
        prefix(FieldId::Ipv4Dst, filter.destination),
        Span { field: FieldId::IpProto, low: low.into(), high: high.into() },
        ports(FieldId::TcpSrc, filter.source_ports),
        ports(FieldId::TcpDst, filter.destination_ports),
    ]
}

/// The matches that together are a filter: one for each pair of masks of its port ranges, and one for
/// each protocol that has ports if it asks for ports of any. Its TCP flags are left out.
fn matches(filter: &Filter) -> Vec<String> {
    let asks_ports =
        filter.source_ports != PortRange::ANY || filter.destination_ports != PortRange::ANY;
    let protocols: Vec<(String, bool)> = match filter.protocol {
        None if asks_ports => vec![("tcp".to_owned(), true), ("udp".to_owned(), true)],
        None => vec![("ip".to_owned(), false)],
        Some(TCP) => vec![("tcp".to_owned(), true)],
        Some(UDP) => vec![("udp".to_owned(), true)],
        Some(SCTP) => vec![("sctp".to_owned(), true)],
        Some(other) => vec![(format!("ip,nw_proto={other}"), false)],
    };
    let mut matches = Vec::new();
    for (protocol, has_ports) in protocols {
        let addresses = format!(
            "{protocol}{}{}",
            address("nw_src", filter.source),
            address("nw_dst", filter.destination)
        );
        if !has_ports {
            matches.push(addresses);
            continue;
        }
        for source in filter.source_ports.masks() {
            for destination in filter.destination_ports.masks() {
                let ports = port("tp_src", source) + &port("tp_dst", destination);
                matches.push(addresses.clone() + &ports);
            }
        }
    }
    matches
}

fn address(name: &str, prefix: Prefix) -> String {
    if prefix.length() == 0 { String::new() } else { format!(",{name}={prefix}") }
}

fn port(name: &str, port: PortMask) -> String {
    if port.mask == 0 { String::new() } else { format!(",{name}={port}") }
}

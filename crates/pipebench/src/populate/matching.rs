//! What a table asks of packets for a base rule, as OpenFlow text.

use std::net::Ipv4Addr;

use super::base::BaseRule;
use crate::{
    classbench::{PortRange, Prefix},
    pipeline_file::Field,
};

/// A match and how much it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StepMatch {
    pub(super) text: String,
    /// How many bits of addresses and ports it asks for, and fields counted tenfold: never less than
    /// for a wider match of the same fields.
    pub(super) weight: u16,
}

/// What a step asks of packets beside its driven fields.
#[derive(Clone, Debug, Default)]
pub(super) struct Beside {
    /// The port that they came in by.
    pub(super) port: Option<u16>,
    /// Whether they must be of IP.
    pub(super) is_ip: bool,
    /// Registers and marks, as OpenFlow text.
    pub(super) values: Vec<String>,
}

/// The matches that together ask of a base rule's packets what a step's fields say.
///
/// A port range is as many matches as it has masks. What the base rule leaves open is not asked for,
/// and neither are ports of a protocol that has none.
pub(super) fn step_matches(fields: &[&Field], rule: &BaseRule, beside: &Beside) -> Vec<StepMatch> {
    let has = |name: &str| fields.iter().any(|field| field.name() == name);
    let filter = &rule.filter;
    let mut fixed = Asked::default();
    if let Some(port) = beside.port {
        fixed.add(format!("in_port={port}"), 0);
    }
    beside.values.iter().for_each(|value| fixed.add(value.clone(), FIELD));
    let ports = [("tp_src", filter.source_ports), ("tp_dst", filter.destination_ports)];
    let protocol = filter.protocol.and_then(protocol_with_ports);
    let asks_ports = protocol.is_some()
        && ports.iter().any(|(name, range)| has(name) && *range != PortRange::ANY);
    let prefixes = [("ip_src", "nw_src", filter.source), ("ip_dst", "nw_dst", filter.destination)];
    let asks_addresses = prefixes.iter().any(|(name, _, prefix)| has(name) && prefix.length() > 0);
    let asks_protocol = has("ip_proto") && filter.protocol.is_some();
    match (protocol, filter.protocol) {
        (Some(name), _) if asks_ports || asks_protocol => fixed.add(name.to_owned(), FIELD),
        (_, Some(number)) if asks_protocol => fixed.add(format!("ip,nw_proto={number}"), FIELD),
        _ if asks_addresses || beside.is_ip || has("eth_type") => fixed.add("ip".to_owned(), 0),
        _ => {}
    }
    for (name, key, address) in
        [("eth_src", "dl_src", rule.eth_src), ("eth_dst", "dl_dst", rule.eth_dst)]
    {
        if has(name) {
            fixed.add(format!("{key}={}", ethernet(address)), FIELD);
        }
    }
    for (name, key, prefix) in prefixes {
        if has(name) && prefix.length() > 0 {
            fixed.add(format!("{key}={}", network(prefix)), FIELD + u16::from(prefix.length()));
        }
    }
    let mut all = vec![fixed];
    for (name, range) in ports {
        if asks_ports && has(name) && range != PortRange::ANY {
            let masks =
                || range.masks().map(|mask| (format!("{name}={mask}"), mask.mask.count_ones()));
            let with_masks = all.iter().flat_map(|asked| {
                masks().map(|(text, bits)| {
                    let mut asked = asked.clone();
                    asked.add(text, FIELD.saturating_add(u16::try_from(bits).unwrap_or(0)));
                    asked
                })
            });
            all = with_masks.collect();
        }
    }
    all.into_iter().map(Asked::finish).collect()
}

/// What one more field is worth.
const FIELD: u16 = 10;

#[derive(Clone, Default)]
struct Asked {
    items: Vec<String>,
    weight: u16,
}

impl Asked {
    fn add(&mut self, item: String, weight: u16) {
        self.items.push(item);
        self.weight = self.weight.saturating_add(weight);
    }

    fn finish(self) -> StepMatch {
        StepMatch { text: self.items.join(","), weight: self.weight }
    }
}

const fn protocol_with_ports(number: u8) -> Option<&'static str> {
    match number {
        6 => Some("tcp"),
        17 => Some("udp"),
        132 => Some("sctp"),
        _ => None,
    }
}

fn network(prefix: Prefix) -> String {
    let address = Ipv4Addr::from(prefix.address());
    if prefix.length() == Prefix::LENGTH_MAX {
        address.to_string()
    } else {
        format!("{address}/{}", prefix.length())
    }
}

pub(super) fn ethernet(address: u64) -> String {
    let [_, _, a, b, c, d, e, f] = address.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classbench::read_filters;

    fn texts(line: &str, fields: &[&str]) -> Vec<String> {
        let filter = read_filters(line).unwrap()[0];
        let rule = BaseRule { filter, eth_src: 0x0200_0000_0001, eth_dst: 2 };
        let fields: Vec<Field> = fields.iter().map(|name| Field::new(name).unwrap()).collect();
        let fields: Vec<&Field> = fields.iter().collect();
        step_matches(&fields, &rule, &Beside::default())
            .into_iter()
            .map(|asked| asked.text)
            .collect()
    }

    #[test]
    fn a_step_asks_for_its_own_fields_alone() {
        let line = "@10.0.0.0/8\t10.1.2.3/32\t0 : 65535\t80 : 81\t0x06/0xFF";
        assert_eq!(texts(line, &["ip_dst"]), ["ip,nw_dst=10.1.2.3"]);
        assert_eq!(
            texts(line, &["eth_src", "ip_src"]),
            ["ip,dl_src=02:00:00:00:00:01,nw_src=10.0.0.0/8"]
        );
        assert_eq!(texts(line, &["tp_src", "tp_dst"]), ["tcp,tp_dst=0x0050/0xfffe"]);
        assert_eq!(texts(line, &["ip_proto"]), ["tcp"]);
        assert_eq!(texts(line, &[]), [""]);
    }

    #[test]
    fn ports_are_asked_of_protocols_that_have_them() {
        let line = "@0.0.0.0/0\t0.0.0.0/0\t1 : 2\t1 : 2\t0x01/0xFF";
        assert_eq!(texts(line, &["ip_src", "ip_proto", "tp_src", "tp_dst"]), ["ip,nw_proto=1"]);
        assert_eq!(texts(&line.replace("0x01", "0x11"), &["tp_src", "tp_dst"]).len(), 4);
    }
}

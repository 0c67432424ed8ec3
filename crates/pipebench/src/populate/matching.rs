//! The matches of a table for a base rule, as OpenFlow text.

use std::net::Ipv4Addr;

use super::base::BaseRule;
use crate::{
    classbench::{AddressPrefix, PortRange},
    pipeline_file::Field,
};

/// A match as text, with its specificity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StepMatch {
    pub(crate) text: String,
    /// Number of matched address and port bits, plus ten for each field.
    ///
    /// A match never weighs less than a wider match of the same fields.
    pub(crate) weight: u16,
}

/// The matches of a step on fields that traffic does not vary.
#[derive(Clone, Debug, Default)]
pub(crate) struct OtherMatches {
    /// The ingress port that the step matches.
    pub(crate) port: Option<u16>,
    /// True if the packets must be IP.
    pub(crate) is_ip: bool,
    /// Registers and marks, as OpenFlow text.
    pub(crate) values: Vec<String>,
}

/// Returns the matches of a step for a base rule.
///
/// A port range becomes one match for each mask. If the base rule matches any protocol, its ports
/// become matches for TCP and UDP. Wildcard fields of the base rule, and ports of a protocol
/// without ports, give no match.
pub(crate) fn step_matches(
    fields: &[&Field],
    rule: &BaseRule,
    beside: &OtherMatches,
) -> Vec<StepMatch> {
    let has = |name: &str| fields.iter().any(|field| field.name() == name);
    let filter = &rule.filter;
    let ports = [("tp_src", filter.source_ports), ("tp_dst", filter.destination_ports)];
    let ports = ports.into_iter().filter(|(name, range)| has(name) && *range != PortRange::ANY);
    let ports: Vec<(&str, PortRange)> = ports.collect();
    let addresses = [("ip_src", "nw_src", filter.source), ("ip_dst", "nw_dst", filter.destination)];
    let addresses =
        addresses.into_iter().filter(|(name, _, prefix)| has(name) && prefix.length() > 0);
    let addresses: Vec<(&str, &str, AddressPrefix)> = addresses.collect();
    let with_ports = names_with_ports(filter.protocol);
    let matches_ports = !ports.is_empty() && !with_ports.is_empty();
    let matches_protocol = has("ip_proto") && filter.protocol.is_some();
    let matches_type = !addresses.is_empty() || beside.is_ip || has("eth_type");
    let kinds: Vec<(String, u16)> = match filter.protocol {
        Some(number) if matches_protocol && with_ports.is_empty() => {
            vec![(format!("ip,nw_proto={number}"), FIELD)]
        }
        _ if matches_ports || matches_protocol => {
            with_ports.iter().map(|name| ((*name).to_owned(), FIELD)).collect()
        }
        // The EtherType weighs less than any other field.
        _ if matches_type => vec![("ip".to_owned(), 1)],
        _ => vec![(String::new(), 0)],
    };
    let mut all = Vec::new();
    for (kind, worth) in kinds {
        let mut fixed = MatchText::default();
        if let Some(port) = beside.port {
            fixed.add(format!("in_port={port}"), 0);
        }
        beside.values.iter().for_each(|value| fixed.add(value.clone(), FIELD));
        fixed.add(kind, worth);
        for (name, key, address) in
            [("eth_src", "dl_src", rule.eth_src), ("eth_dst", "dl_dst", rule.eth_dst)]
        {
            if has(name) {
                fixed.add(format!("{key}={}", ethernet(address)), FIELD);
            }
        }
        for (_, key, prefix) in &addresses {
            let worth = FIELD + u16::from(prefix.length());
            fixed.add(format!("{key}={}", network(*prefix)), worth);
        }
        all.extend(if matches_ports { fixed.with_ports(&ports) } else { vec![fixed] });
    }
    all.into_iter().map(MatchText::finish).collect()
}

/// Weight of one more field.
const FIELD: u16 = 10;

/// The items of a match as text, and the weight of the match.
#[derive(Clone, Default)]
struct MatchText {
    items: Vec<String>,
    weight: u16,
}

impl MatchText {
    /// Adds an item to the text, and its weight to the priority.
    fn add(&mut self, item: String, weight: u16) {
        if !item.is_empty() {
            self.items.push(item);
        }
        self.weight = self.weight.saturating_add(weight);
    }

    /// Returns a match for each combination of masks of the port ranges.
    fn with_ports(self, ports: &[(&str, PortRange)]) -> Vec<Self> {
        let mut all = vec![self];
        for (name, range) in ports {
            let with_masks = all.iter().flat_map(|text| {
                range.masks().map(|mask| {
                    let bits = u16::try_from(mask.mask.count_ones()).unwrap_or(0);
                    let mut text = text.clone();
                    text.add(format!("{name}={mask}"), FIELD.saturating_add(bits));
                    text
                })
            });
            all = with_masks.collect();
        }
        all
    }

    /// Returns the match with all its parts.
    fn finish(self) -> StepMatch {
        StepMatch { text: self.items.join(","), weight: self.weight }
    }
}

/// Returns the name of a protocol with ports.
///
/// For any protocol, returns the protocols of a workload's packets.
const fn names_with_ports(protocol: Option<u8>) -> &'static [&'static str] {
    match protocol {
        None => &["tcp", "udp"],
        Some(6) => &["tcp"],
        Some(17) => &["udp"],
        Some(132) => &["sctp"],
        Some(_) => &[],
    }
}

/// Writes an address prefix as `ovs-ofctl` does.
fn network(prefix: AddressPrefix) -> String {
    let address = Ipv4Addr::from(prefix.address());
    if prefix.length() == AddressPrefix::LENGTH_MAX {
        address.to_string()
    } else {
        format!("{address}/{}", prefix.length())
    }
}

/// Writes an Ethernet address.
pub(super) fn ethernet(address: u64) -> String {
    let [_, _, a, b, c, d, e, f] = address.to_be_bytes();
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classbench::read_filters;

    /// Returns the matches of a filter in some fields, as texts.
    fn texts(line: &str, fields: &[&str]) -> Vec<String> {
        let filter = read_filters(line).unwrap()[0];
        let rule = BaseRule { filter, eth_src: 0x0200_0000_0001, eth_dst: 2 };
        let fields: Vec<Field> = fields.iter().map(|name| Field::new(name).unwrap()).collect();
        let fields: Vec<&Field> = fields.iter().collect();
        step_matches(&fields, &rule, &OtherMatches::default())
            .into_iter()
            .map(|step_match| step_match.text)
            .collect()
    }

    #[test]
    fn a_step_matches_only_its_own_fields() {
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
    fn port_matches_need_a_protocol_with_ports() {
        let line = "@0.0.0.0/0\t0.0.0.0/0\t1 : 2\t1 : 2\t0x01/0xFF";
        assert_eq!(texts(line, &["ip_src", "ip_proto", "tp_src", "tp_dst"]), ["ip,nw_proto=1"]);
        assert_eq!(texts(&line.replace("0x01", "0x11"), &["tp_src", "tp_dst"]).len(), 4);
    }

    #[test]
    fn protocol_independent_ports_apply_to_tcp_and_udp() {
        let line = "@10.0.0.0/8\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x00/0x00";
        let expected = ["tcp,nw_src=10.0.0.0/8,tp_dst=80", "udp,nw_src=10.0.0.0/8,tp_dst=80"];
        assert_eq!(texts(line, &["ip_src", "ip_proto", "tp_dst"]), expected);
        assert_eq!(texts(line, &["ip_src"]), ["ip,nw_src=10.0.0.0/8"]);
    }
}

//! The recorded cases: rules, frames, and the results of Open vSwitch.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    GroupCommand, MeterCommand, Modification,
    text::{parse_group_mod, parse_meter_mod},
};
use shunt_switch::config::{MirrorOptions, PortOptions};
use shunt_tests::repository::{read, root};

use crate::client::DumpedRule;

/// All recorded cases with supported features.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Recording {
    /// Origin of the recording.
    pub(crate) provenance: String,
    /// The recorded packets with their results in Open vSwitch.
    pub(crate) cases: Vec<Case>,
}

/// Rules, and packets that match them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Case {
    /// Kind and number of the case.
    pub(crate) id: String,
    /// OpenFlow version of the client as `ovs-ofctl -O` names it, if not OpenFlow 1.3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) openflow: Option<String>,
    /// True if the packets can be sent again with the same result.
    pub(crate) stateless: bool,
    /// Arguments of `ovs-ofctl mod-port`: a port and a change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) port_mods: Vec<[String; 2]>,
    /// Ports with the link down from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) down: Vec<u32>,
    /// Ports with VLAN settings, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) vlans: Vec<PortOptions>,
    /// Mirrors, in the order of their addition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) mirrors: Vec<MirrorOptions>,
    /// Meters, in the syntax of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) meters: Vec<String>,
    /// Groups, in the syntax of the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// Rules, as in the file.
    pub(crate) flows: Vec<String>,
    /// Rules, as `ovs-ofctl dump-flows` prints them.
    #[serde(default)]
    pub(crate) dump: Vec<String>,
    /// Packets and bytes of the rule with a cookie, after all packets were sent once.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, [u64; 2]>,
    /// Number of packet-ins that no client requests, such as those of an expired TTL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unrequested_packet_ins: Option<u64>,
    /// Rules learned from packets by the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) flows_after: Vec<LearnedRule>,
    /// Correct alternatives. Each alternative has the output for each packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) alternatives: Vec<Vec<Frames>>,
    /// Packets of the case, in order.
    pub(crate) packets: Vec<RecordedPacket>,
}

/// A learned rule: cookie, table, packets, bytes, text.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct LearnedRule(String, u8, u64, u64, String);

/// A packet and its result.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct RecordedPacket {
    /// Arguments of `ovs-ofctl mod-port` calls before the packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) port_mods: Vec<[String; 2]>,
    /// VLAN settings of ports that change before the packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    /// Actions if the packet is a packet-out.
    pub(crate) vlans: Vec<PortOptions>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packet_out: Option<String>,
    /// Ingress port, or the port of the packet-out.
    pub(crate) in_port: u32,
    /// The frame in hexadecimal.
    pub(crate) frame: String,
    /// Result of the packet.
    #[serde(default)]
    pub(crate) expect: Expect,
}

/// The result of a packet.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Expect {
    /// Frames in hexadecimal by output port, in order.
    pub(crate) out: Frames,
    /// Packet-ins, as `ovs-ofctl monitor` prints them;
    /// ` | ` separates the lines of a packet-in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) packet_in: Vec<String>,
    /// Table lookups, if the case records them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<RecordedTrace>,
}

/// Table lookups of a packet.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RecordedTrace {
    /// Lookups of the packet, in order.
    pub(crate) path: Vec<String>,
    /// The megaflow that Open vSwitch recorded.
    pub(crate) megaflow: String,
}

/// Frames in hexadecimal, by port.
pub(crate) type Frames = BTreeMap<u32, Vec<String>>;

/// Cases with groups that only OpenFlow accepts.
///
/// A bucket contains `push` and `pop`, which an action set may not contain, so the text form of the
/// group is refused.
const WIRE_ONLY: &[&str] = &["group-092"];

impl Recording {
    /// Returns the cases that can be loaded without a client.
    pub(crate) fn with_text(self) -> impl Iterator<Item = Case> {
        self.cases.into_iter().filter(Case::has_text)
    }

    /// Reads the recording from its file.
    pub(crate) fn read() -> Self {
        Self::of("tests/data/trace-cases.json")
    }

    /// Reads the recording, and the handwritten cases that were recorded later.
    pub(crate) fn read_all() -> Self {
        let mut recording = Self::read();
        recording.cases.extend(Self::of("tests/data/odd-cases.json").cases);
        recording
    }

    fn of(path: &str) -> Self {
        serde_json::from_str(&read(path)).expect("a recording is JSON")
    }
}

/// Returns the cases that are not replayed, with the missing feature of each.
pub(crate) fn missing() -> BTreeMap<String, String> {
    let path = root().join("tests/data/trace-cases-missing.txt");
    let text = fs::read_to_string(path).expect("the list of missing cases exists");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entry =
        |line: &str| line.split_once(' ').map(|(id, reason)| (id.to_owned(), reason.to_owned()));
    lines.map(|line| entry(line).expect("a line is an id and a feature")).collect()
}

impl Case {
    /// Returns the first word of the id.
    pub(crate) fn kind(&self) -> &str {
        self.id.split('-').next().unwrap_or(&self.id)
    }

    /// Returns the case without its results.
    pub(crate) fn without_results(&self) -> Self {
        let (dump, counters, flows_after) = Default::default();
        let mut without_results = Self { dump, counters, flows_after, ..self.clone() };
        without_results.packets.iter_mut().for_each(|packet| packet.expect = Expect::default());
        without_results
    }

    /// Returns whether a port does not receive at some time.
    pub(crate) fn has_closed_ports(&self) -> bool {
        let of_packets = self.packets.iter().flat_map(|packet| &packet.port_mods);
        self.port_mods.iter().chain(of_packets).any(|[_, change]| change == "no-receive")
    }

    /// Returns whether the case can be loaded without a client.
    pub(crate) fn has_text(&self) -> bool {
        !WIRE_ONLY.contains(&&*self.id)
    }

    /// Returns requests for the meters and groups of the case,
    /// ordered by their references.
    pub(crate) fn objects(&self) -> Result<Vec<Modification>, String> {
        let meters = self
            .meters
            .iter()
            .map(|text| parse_meter_mod(MeterCommand::Add, text).map(Modification::Meter));
        let groups = self.groups.iter().map(|text| {
            parse_group_mod(GroupCommand::Add, text, &NoPortNames).map(Modification::Group)
        });
        let requests: Result<Vec<_>, _> = meters.chain(groups).collect();
        requests.map_err(|error| format!("{}: {error}", self.id))
    }

    /// Returns the correct outputs of the packet at index `place`.
    pub(crate) fn choices(&self, place: usize) -> Vec<&Frames> {
        if self.alternatives.is_empty() {
            return vec![&self.packets[place].expect.out];
        }
        self.alternatives.iter().map(|choice| &choice[place]).collect()
    }

    /// Returns the packet-ins of all packets in order.
    pub(crate) fn packet_ins(&self) -> Vec<String> {
        self.packets.iter().flat_map(|packet| &packet.expect.packet_in).cloned().collect()
    }
}

impl LearnedRule {
    /// Converts a rule of a dump.
    pub(crate) fn of(rule: DumpedRule) -> Self {
        let (table, text) = rule.text.split_once(' ').unwrap_or_default();
        let table = table.strip_prefix("table=").and_then(|table| table.parse().ok());
        let [packets, bytes] = rule.counts;
        Self(rule.cookie, table.unwrap_or_default(), packets, bytes, text.to_owned())
    }

    /// Returns cookie, packets and bytes, and text as in a dump.
    pub(crate) fn dumped(&self) -> (String, [u64; 2], String) {
        let Self(cookie, table, packets, bytes, text) = self;
        (cookie.clone(), [*packets, *bytes], format!("table={table} {text}"))
    }
}

impl RecordedPacket {
    /// Returns the packet in the syntax of `ovs-ofctl packet-out`,
    /// with the given actions.
    pub(crate) fn as_packet_out(&self, actions: &str) -> String {
        format!("in_port={} packet={} actions={actions}", self.in_port, self.frame)
    }

    /// Decodes the frame of the case from its hexadecimal text.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let octet = |at| u8::from_str_radix(&self.frame[at..at + 2], 16);
        (0..self.frame.len()).step_by(2).map(octet).collect::<Result<_, _>>().expect("hexadecimal")
    }
}

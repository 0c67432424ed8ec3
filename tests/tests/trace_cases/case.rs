//! The recorded cases: rules, frames, and what Open vSwitch did with them.

use std::{collections::BTreeMap, fs};

use serde::{Deserialize, Serialize};
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    GroupCommand, MeterCommand, Modification,
    text::{parse_group_mod, parse_meter_mod},
};
use shunt_switch::config::PortOptions;
use shunt_tests::repository::{read, root};

use crate::client::DumpedRule;

/// All recorded cases whose features exist.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Recording {
    /// Where they come from.
    pub(crate) provenance: String,
    /// The cases.
    pub(crate) cases: Vec<Case>,
}

/// Rules, and packets that meet them.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Case {
    /// Its kind and number.
    pub(crate) id: String,
    /// Whether the packets may be sent again, with the same result.
    pub(crate) stateless: bool,
    /// Arguments of `ovs-ofctl mod-port`: a port and what to change of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) port_mods: Vec<[String; 2]>,
    /// Ports whose link is down from the start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) down: Vec<u32>,
    /// Ports that carry certain VLANs, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) vlans: Vec<PortOptions>,
    /// Meters, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) meters: Vec<String>,
    /// Groups, as written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) groups: Vec<String>,
    /// Rules, as written.
    pub(crate) flows: Vec<String>,
    /// Rules, as `ovs-ofctl dump-flows` prints them.
    #[serde(default)]
    pub(crate) dump: Vec<String>,
    /// Packets and bytes of the rule with a cookie, after all packets were sent once.
    #[serde(default)]
    pub(crate) counters: BTreeMap<String, [u64; 2]>,
    /// Rules that packets have taught by the end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) flows_after: Vec<TaughtRule>,
    /// Where more than one choice is right: for each of them, what comes out for each packet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) alternatives: Vec<Vec<Frames>>,
    /// Packets, in order.
    pub(crate) packets: Vec<RecordedPacket>,
}

/// A rule that was taught: its cookie, table, packets, bytes, and its text.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct TaughtRule(String, u8, u64, u64, String);

/// A packet and its fate.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct RecordedPacket {
    /// Arguments of `ovs-ofctl mod-port` that change ports before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) port_mods: Vec<[String; 2]>,
    /// VLANs of ports that change before it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) vlans: Vec<PortOptions>,
    /// Actions, if it is a packet-out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) packet_out: Option<String>,
    /// The port that it comes in by, or that the packet-out names.
    pub(crate) in_port: u32,
    /// The frame in hexadecimal.
    pub(crate) frame: String,
    /// What happened to it.
    #[serde(default)]
    pub(crate) expect: Expect,
}

/// The fate of a packet.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Expect {
    /// Frames in hexadecimal by the port that they left by, in order.
    pub(crate) out: Frames,
    /// Packet-ins, as `ovs-ofctl monitor` prints them; ` | ` stands between their lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) packet_in: Vec<String>,
    /// How tables decided, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) trace: Option<RecordedTrace>,
}

/// How tables decided.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct RecordedTrace {
    /// Lookups, in order.
    pub(crate) path: Vec<String>,
    /// The packets that fare alike.
    pub(crate) megaflow: String,
}

/// Frames in hexadecimal, by port.
pub(crate) type Frames = BTreeMap<u32, Vec<String>>;

/// Cases whose groups are taken over OpenFlow alone: a bucket has `push` and `pop`, which have no
/// place in an action set, and the text of a group is refused for that.
const WIRE_ONLY: &[&str] = &["group-092"];

impl Recording {
    /// The cases that can be loaded without a client.
    pub(crate) fn with_text(self) -> impl Iterator<Item = Case> {
        self.cases.into_iter().filter(Case::has_text)
    }

    /// Reads the recording.
    pub(crate) fn read() -> Self {
        Self::of("tests/data/trace-cases.json")
    }

    /// Reads the recording, and the cases by hand that were recorded since.
    pub(crate) fn read_all() -> Self {
        let mut recording = Self::read();
        recording.cases.extend(Self::of("tests/data/odd-cases.json").cases);
        recording
    }

    fn of(path: &str) -> Self {
        serde_json::from_str(&read(path)).expect("a recording is JSON")
    }
}

/// The recorded cases that are not played, and the feature that each lacks.
pub(crate) fn missing() -> BTreeMap<String, String> {
    let path = root().join("tests/data/trace-cases-missing.txt");
    let text = fs::read_to_string(path).expect("the list of missing cases is there");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let entry = |line: &str| line.split_once(' ').map(|(id, why)| (id.to_owned(), why.to_owned()));
    lines.map(|line| entry(line).expect("a line is an id and a feature")).collect()
}

impl Case {
    /// The first word of the id.
    pub(crate) fn kind(&self) -> &str {
        self.id.split('-').next().unwrap_or(&self.id)
    }

    /// Without what was recorded.
    pub(crate) fn given(&self) -> Self {
        let (dump, counters, flows_after) = Default::default();
        let mut given = Self { dump, counters, flows_after, ..self.clone() };
        given.packets.iter_mut().for_each(|packet| packet.expect = Expect::default());
        given
    }

    /// Whether some port does not receive at some time.
    pub(crate) fn has_closed_ports(&self) -> bool {
        let on_the_way = self.packets.iter().flat_map(|packet| &packet.port_mods);
        self.port_mods.iter().chain(on_the_way).any(|[_, change]| change == "no-receive")
    }

    /// Whether it can be loaded without a client.
    pub(crate) fn has_text(&self) -> bool {
        !WIRE_ONLY.contains(&&*self.id)
    }

    /// Requests for its meters and groups, in the order in which they refer to each other.
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

    /// What may come out for a packet, by its place: one of these.
    pub(crate) fn choices(&self, place: usize) -> Vec<&Frames> {
        if self.alternatives.is_empty() {
            return vec![&self.packets[place].expect.out];
        }
        self.alternatives.iter().map(|choice| &choice[place]).collect()
    }

    /// Packet-ins of all packets, in order.
    pub(crate) fn packet_ins(&self) -> Vec<String> {
        self.packets.iter().flat_map(|packet| &packet.expect.packet_in).cloned().collect()
    }
}

impl TaughtRule {
    /// What a dump shows.
    pub(crate) fn of(rule: DumpedRule) -> Self {
        let (table, text) = rule.text.split_once(' ').unwrap_or_default();
        let table = table.strip_prefix("table=").and_then(|table| table.parse().ok());
        let [packets, bytes] = rule.counts;
        Self(rule.cookie, table.unwrap_or_default(), packets, bytes, text.to_owned())
    }

    /// As a dump shows it: cookie, packets and bytes, text.
    pub(crate) fn dumped(&self) -> (String, [u64; 2], String) {
        let Self(cookie, table, packets, bytes, text) = self;
        (cookie.clone(), [*packets, *bytes], format!("table={table} {text}"))
    }
}

impl RecordedPacket {
    /// As `ovs-ofctl packet-out` takes it, with the actions that it is sent with.
    pub(crate) fn as_packet_out(&self, actions: &str) -> String {
        format!("in_port={} packet={} actions={actions}", self.in_port, self.frame)
    }

    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let octet = |at| u8::from_str_radix(&self.frame[at..at + 2], 16);
        (0..self.frame.len()).step_by(2).map(octet).collect::<Result<_, _>>().expect("hexadecimal")
    }
}

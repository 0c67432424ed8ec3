//! The recorded cases: rules, frames, and what Open vSwitch did with them.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    GroupCommand, MeterCommand, Modification,
    text::{parse_group_mod, parse_meter_mod},
};
use shunt_switch::config::Port;
use shunt_tests::repository::{read, root};

/// All recorded cases whose features exist.
#[derive(Debug, Deserialize)]
pub(crate) struct Recording {
    /// Where they come from.
    pub(crate) provenance: String,
    /// The cases.
    pub(crate) cases: Vec<Case>,
}

/// Rules, and packets that meet them.
#[derive(Debug, Deserialize)]
pub(crate) struct Case {
    /// Its kind and number.
    pub(crate) id: String,
    /// Whether the packets may be sent again, with the same result.
    pub(crate) stateless: bool,
    /// Arguments of `ovs-ofctl mod-port`: a port and what to change of it.
    #[serde(default)]
    pub(crate) port_mods: Vec<[String; 2]>,
    /// Ports whose link is down from the start.
    #[serde(default)]
    pub(crate) down: Vec<u32>,
    /// Ports that carry certain VLANs, by name.
    #[serde(default)]
    pub(crate) vlans: Vec<Port>,
    /// Meters, as written.
    #[serde(default)]
    pub(crate) meters: Vec<String>,
    /// Groups, as written.
    #[serde(default)]
    pub(crate) groups: Vec<String>,
    /// Rules, as written.
    pub(crate) flows: Vec<String>,
    /// Rules, as `ovs-ofctl dump-flows` prints them.
    pub(crate) dump: Vec<String>,
    /// Packets and bytes of the rule with a cookie, after all packets were sent once.
    pub(crate) counters: BTreeMap<String, [u64; 2]>,
    /// Rules that packets have taught by the end.
    #[serde(default)]
    pub(crate) flows_after: Vec<TaughtRule>,
    /// Where more than one choice is right: for each of them, what comes out for each packet.
    #[serde(default)]
    alternatives: Vec<Vec<Frames>>,
    /// Packets, in order.
    pub(crate) packets: Vec<RecordedPacket>,
}

/// A rule that was taught: its cookie, table, packets, bytes, and its text.
#[derive(Debug, Deserialize)]
pub(crate) struct TaughtRule(String, u8, u64, u64, String);

/// A packet and its fate.
#[derive(Debug, Deserialize)]
pub(crate) struct RecordedPacket {
    /// The port that it comes in by.
    pub(crate) in_port: u32,
    /// The frame in hexadecimal.
    pub(crate) frame: String,
    /// What happened to it.
    pub(crate) expect: Expect,
}

/// The fate of a packet.
#[derive(Debug, Deserialize)]
pub(crate) struct Expect {
    /// Frames in hexadecimal by the port that they left by, in order.
    pub(crate) out: Frames,
    /// Packet-ins, as `ovs-ofctl monitor` prints them; ` | ` stands between their lines.
    #[serde(default)]
    pub(crate) packet_in: Vec<String>,
    /// How tables decided, where that was asked for.
    pub(crate) trace: Option<RecordedTrace>,
}

/// How tables decided.
#[derive(Debug, Deserialize)]
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
        serde_json::from_str(&read("tests/data/trace-cases.json")).expect("the recording is JSON")
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

    /// Whether it can be loaded without a client.
    pub(crate) fn has_text(&self) -> bool {
        !WIRE_ONLY.contains(&&*self.id)
    }

    /// Requests for its meters and groups, in the order in which they refer to each other.
    pub(crate) fn objects(&self) -> Vec<Modification> {
        let meters = self
            .meters
            .iter()
            .map(|text| parse_meter_mod(MeterCommand::Add, text).map(Modification::Meter));
        let groups = self.groups.iter().map(|text| {
            parse_group_mod(GroupCommand::Add, text, &NoPortNames).map(Modification::Group)
        });
        let requests: Result<Vec<_>, _> = meters.chain(groups).collect();
        requests.unwrap_or_else(|error| panic!("{}: {error}", self.id))
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
    /// As a dump shows it: cookie, packets and bytes, text.
    pub(crate) fn dumped(&self) -> (String, [u64; 2], String) {
        let Self(cookie, table, packets, bytes, text) = self;
        (cookie.clone(), [*packets, *bytes], format!("table={table} {text}"))
    }
}

impl RecordedPacket {
    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let octet = |at| u8::from_str_radix(&self.frame[at..at + 2], 16);
        (0..self.frame.len()).step_by(2).map(octet).collect::<Result<_, _>>().expect("hexadecimal")
    }
}

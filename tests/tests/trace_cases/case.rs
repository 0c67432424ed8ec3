//! The recorded cases: rules, frames, and what Open vSwitch did with them.

use std::{collections::BTreeMap, fs};

use serde::Deserialize;
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
    /// Rules, as written.
    pub(crate) flows: Vec<String>,
    /// Rules, as `ovs-ofctl dump-flows` prints them.
    pub(crate) dump: Vec<String>,
    /// Packets and bytes of the rule with a cookie, after all packets were sent once.
    pub(crate) counters: BTreeMap<String, [u64; 2]>,
    /// Packets, in order.
    pub(crate) packets: Vec<RecordedPacket>,
}

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

impl Recording {
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

    /// Packet-ins of all packets, in order.
    pub(crate) fn packet_ins(&self) -> Vec<String> {
        self.packets.iter().flat_map(|packet| &packet.expect.packet_in).cloned().collect()
    }
}

impl RecordedPacket {
    /// The frame.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let octet = |at| u8::from_str_radix(&self.frame[at..at + 2], 16);
        (0..self.frame.len()).step_by(2).map(octet).collect::<Result<_, _>>().expect("hexadecimal")
    }
}

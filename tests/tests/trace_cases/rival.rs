//! Open vSwitch with six ports that are made of nothing: what goes in is told to it, what comes out
//! lies in capture files.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, json};
use shunt_tests::open_vswitch::OpenVSwitch;

use crate::{
    case::{Case, Frames},
    client::Client,
    rig::{BRIDGE, PORTS, client_in},
};

/// Requests that are answered before a packet has surely been through: it waits in a queue that the
/// switch looks into between two of them.
const ROUNDS: u32 = 3;
/// Bytes of a capture file before its first frame, and before each frame.
const FILE_HEADER: u64 = 24;
const FRAME_HEADER: usize = 16;

/// A private Open vSwitch.
pub(crate) struct Rival {
    switch: OpenVSwitch<'static>,
    control: BufReader<UnixStream>,
    /// What comes out of each port, from where it was read last.
    captures: Vec<File>,
    /// Ports whose settings are not the usual ones.
    odd_ports: BTreeSet<String>,
}

impl Rival {
    /// Starts one, or says loudly that it is not installed.
    pub(crate) fn start_or_skip() -> Option<Self> {
        let switch = OpenVSwitch::dummy_or_skip()?;
        let options = "datapath_type=dummy fail-mode=secure protocols=OpenFlow13 \
                       other-config:datapath-id=00000000000000c1 \
                       other-config:hwaddr=aa\\:55\\:aa\\:55\\:00\\:00 \
                       other-config:mac-aging-time=3600";
        let mut setup = vec!["--", "add-br", BRIDGE, "--", "set", "bridge", BRIDGE];
        setup.extend(options.split_whitespace());
        switch.run("ovs-vsctl", &setup);
        let mut captures = Vec::new();
        for number in 1..=PORTS {
            let capture = switch.folder().join(format!("p{number}.pcap"));
            let name = format!("p{number}");
            let more = format!("ofport_request={number} options:tx_pcap={}", capture.display());
            let mut add = vec!["add-port", BRIDGE, &name, "--", "set", "interface", &name];
            add.push("type=dummy");
            add.extend(more.split_whitespace());
            switch.run("ovs-vsctl", &add);
            let mut file = File::open(capture).expect("the port writes what it sends");
            file.seek(SeekFrom::Start(FILE_HEADER)).expect("a file can be read from anywhere");
            captures.push(file);
        }
        let id = switch.process("ovs-vswitchd");
        let control = switch.folder().join(format!("ovs-vswitchd.{id}.ctl"));
        let control = UnixStream::connect(control).expect("the control socket answers");
        Some(Self {
            switch,
            control: BufReader::new(control),
            captures,
            odd_ports: BTreeSet::new(),
        })
    }

    pub(crate) fn client(&self) -> Client {
        client_in(self.switch.folder())
    }

    /// Forgets everything: rules, groups, meters, addresses, settings of ports.
    pub(crate) fn reset(&mut self) {
        let client = self.client();
        // Rules before what they name: it has died of the other order.
        for verb in ["del-flows", "del-groups", "del-meters"] {
            client.show(verb);
        }
        self.command("fdb/flush", &[BRIDGE]);
        self.settle();
        for port in std::mem::take(&mut self.odd_ports) {
            self.command("netdev-dummy/set-admin-state", &[&port, "up"]);
            self.switch.run("ovs-vsctl", &["clear", "port", &port, "tag", "vlan_mode", "trunks"]);
            for setting in ["flood", "forward", "receive", "packet-in"] {
                client.set_port(&port, setting);
            }
        }
        self.collect();
    }

    /// Gives the ports of a case their VLANs and links.
    pub(crate) fn set_ports(&mut self, case: &Case) {
        self.odd_ports.extend(case.vlans.iter().map(|port| port.name.clone()));
        self.odd_ports.extend(case.down.iter().map(|port| format!("p{port}")));
        self.odd_ports.extend(case.port_mods.iter().map(|[port, _]| port.clone()));
        for port in &case.vlans {
            let mut set = vec!["set".to_owned(), "port".to_owned(), port.name.clone()];
            set.extend(port.tag.map(|tag| format!("tag={tag}")));
            let mode = port.vlan_mode.and_then(|mode| serde_json::to_value(mode).ok());
            set.extend(mode.as_ref().and_then(Value::as_str).map(|m| format!("vlan_mode={m}")));
            let trunks: Vec<String> = port.trunks.iter().map(u16::to_string).collect();
            set.extend((!trunks.is_empty()).then(|| format!("trunks={}", trunks.join(","))));
            self.switch.run("ovs-vsctl", &set.iter().map(String::as_str).collect::<Vec<_>>());
        }
        for port in &case.down {
            self.command("netdev-dummy/set-admin-state", &[&format!("p{port}"), "down"]);
        }
        self.wait();
    }

    /// Sends a frame into a port; what comes out.
    pub(crate) fn send(&mut self, port: u32, frame: &str) -> Frames {
        self.command("netdev-dummy/receive", &[&format!("p{port}"), frame]);
        self.wait();
        self.collect()
    }

    /// Drops everything that is cached, after its counts are told.
    pub(crate) fn settle(&mut self) {
        self.command("revalidator/purge", &[]);
    }

    /// Whether its daemon runs.
    pub(crate) fn is_alive(&self) -> bool {
        let id = self.switch.process("ovs-vswitchd");
        !id.is_empty() && Path::new("/proc").join(id).exists()
    }

    fn wait(&mut self) {
        for _ in 0..ROUNDS {
            self.command("version", &[]);
        }
    }

    /// Asks the daemon; a refusal ends the test.
    fn command(&mut self, method: &str, parameters: &[&str]) -> String {
        let request = json!({ "method": method, "params": parameters, "id": 0 });
        let sent = self.control.get_mut().write_all(request.to_string().as_bytes());
        sent.expect("the daemon lives");
        let mut reply = serde_json::Deserializer::from_reader(&mut self.control);
        let reply = Value::deserialize(&mut reply).expect("the daemon lives");
        let refusal = reply.get("error").filter(|error| !error.is_null());
        assert_eq!(refusal, None, "{method} {parameters:?}");
        reply.get("result").and_then(Value::as_str).unwrap_or_default().to_owned()
    }

    fn collect(&mut self) -> Frames {
        let mut frames = Frames::new();
        for (number, capture) in (1..).zip(&mut self.captures) {
            let mut bytes = Vec::new();
            capture.read_to_end(&mut bytes).expect("a file can be read");
            let mut rest = &bytes[..];
            while let Some((header, frame)) = rest.split_at_checked(FRAME_HEADER) {
                let length = header[8..12].try_into().map_or(0, u32::from_ne_bytes);
                let (frame, next) = frame.split_at(length as usize);
                let hex = frame.iter().map(|octet| format!("{octet:02x}")).collect();
                frames.entry(number).or_default().push(hex);
                rest = next;
            }
        }
        frames
    }
}

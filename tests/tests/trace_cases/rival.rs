//! Open vSwitch with six dummy ports: commands inject packets, and capture files hold the output.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{BufReader, Read, Seek, SeekFrom, Write},
    os::unix::net::UnixStream,
    path::Path,
};

use serde::Deserialize;
use serde_json::{Value, json};
use shunt_switch::config::{MirrorOptions, PortOptions, PortVlanMode};
use shunt_tests::{daemon::wait_until, open_vswitch::OpenVSwitch};

use crate::{
    cabled_switch::{BRIDGE, Macs, PORTS, client_in},
    case::{Case, Frames, RecordedPacket},
    client::{Answer, Client},
};

/// Number of checks for a completed lookup.
/// A port that is down needs all of these checks.
const ROUNDS: u32 = 2000;
/// The columns of a port that contain its VLANs.
const VLAN_COLUMNS: [&str; 5] = ["tag", "vlan_mode", "trunks", "cvlans", "other_config"];
/// Bytes of a capture file before its first record.
const FILE_HEADER: u64 = 24;
/// Bytes of a record before its frame.
const FRAME_HEADER: usize = 16;

/// A private Open vSwitch.
pub(crate) struct Rival {
    switch: OpenVSwitch<'static>,
    control: BufReader<UnixStream>,
    /// Output files of the ports. Each file is read up to the last position.
    captures: Vec<File>,
    /// Ports with changed settings.
    odd_ports: BTreeSet<String>,
}

impl Rival {
    /// Starts Open vSwitch, or prints that Open vSwitch is not installed.
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
            let mut file = File::open(capture).expect("the port writes its output");
            file.seek(SeekFrom::Start(FILE_HEADER)).expect("a file can be read from anywhere");
            captures.push(file);
        }
        let id = switch.process("ovs-vswitchd");
        let control = switch.folder().join(format!("ovs-vswitchd.{id}.ctl"));
        let control = UnixStream::connect(control).expect("the control socket replies");
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

    /// Removes rules, groups, meters and addresses, and resets the settings of ports.
    pub(crate) fn reset(&mut self) {
        let client = self.client();
        // Rules are deleted before the objects that the rules reference. The other order has
        // crashed Open vSwitch.
        for verb in ["del-flows", "del-groups", "del-meters"] {
            client.show(verb);
        }
        self.switch.run("ovs-vsctl", &["clear", "bridge", BRIDGE, "mirrors"]);
        self.command("fdb/flush", &[BRIDGE]);
        self.settle();
        for port in std::mem::take(&mut self.odd_ports) {
            self.command("netdev-dummy/set-admin-state", &[&port, "up"]);
            let words = [&["clear", "port", port.as_str()][..], &VLAN_COLUMNS].concat();
            self.switch.run("ovs-vsctl", &words);
            for setting in ["flood", "forward", "receive", "packet-in"] {
                client.set_port(&port, setting);
            }
        }
        self.collect();
    }

    /// Sets the VLANs and links of the ports of a case, and the mirrors of the case.
    pub(crate) fn set_ports(&mut self, case: &Case) {
        self.odd_ports.extend(case.down.iter().map(|port| format!("p{port}")));
        self.odd_ports.extend(case.port_mods.iter().map(|[port, _]| port.clone()));
        self.set_vlans(&case.vlans);
        case.mirrors.iter().for_each(|mirror| self.add_mirror(mirror));
        for port in &case.down {
            self.command("netdev-dummy/set-admin-state", &[&format!("p{port}"), "down"]);
        }
    }

    /// Sets the VLANs of ports.
    pub(crate) fn set_vlans(&mut self, ports: &[PortOptions]) {
        self.odd_ports.extend(ports.iter().map(|port| port.name.clone()));
        for port in ports {
            // Unset columns return to their defaults. The whole line is one transaction.
            let columns = VLAN_COLUMNS.join(" ");
            let words = format!("clear port {0} {columns} -- set port {0}", port.name);
            let mut set: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            set.extend(port.tag.map(|tag| format!("tag={tag}")));
            let mode = port.vlan_mode.and_then(|mode| serde_json::to_value(mode).ok());
            set.extend(mode.as_ref().and_then(Value::as_str).map(|m| format!("vlan_mode={m}")));
            let trunks: Vec<String> = port.trunks.iter().map(u16::to_string).collect();
            set.extend((!trunks.is_empty()).then(|| format!("trunks={}", trunks.join(","))));
            let cvlans: Vec<String> = port.cvlans.iter().map(u16::to_string).collect();
            set.extend((!cvlans.is_empty()).then(|| format!("cvlans={}", cvlans.join(","))));
            if port.vlan_mode == Some(PortVlanMode::Dot1qTunnel) {
                let qinq_ethtype = port.qinq_ethtype.name();
                set.push(format!("other_config:qinq-ethtype={qinq_ethtype}"));
            }
            self.switch.run("ovs-vsctl", &set.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// Adds a mirror. Mirrors are in the order of their addition.
    fn add_mirror(&self, mirror: &MirrorOptions) {
        let MirrorOptions { name, select_all, output_port, output_vlan, snaplen, .. } = mirror;
        let ports =
            |list: &[String]| list.iter().map(|port| format!("@{port}")).collect::<Vec<_>>();
        let (source, sent) = (ports(&mirror.select_src_port), ports(&mirror.select_dst_port));
        let mut words = Vec::new();
        for number in 1..=PORTS {
            words.extend(["--".to_owned(), format!("--id=@p{number}"), "get".to_owned()]);
            words.extend(["port".to_owned(), format!("p{number}")]);
        }
        words.extend(["--", "--id=@m", "create", "mirror"].map(str::to_owned));
        words.push(format!("name={name}"));
        words.push(format!("select_all={select_all}"));
        let vlans = mirror.select_vlan.iter().map(u16::to_string).collect();
        for (column, values) in
            [("select_src_port", source), ("select_dst_port", sent), ("select_vlan", vlans)]
        {
            if !values.is_empty() {
                words.push(format!("{column}={}", values.join(",")));
            }
        }
        words.extend((!output_port.is_empty()).then(|| format!("output_port=@{output_port}")));
        words.extend((*output_vlan > 0).then(|| format!("output_vlan={output_vlan}")));
        words.extend((*snaplen > 0).then(|| format!("snaplen={snaplen}")));
        words.extend(["--", "add", "bridge", BRIDGE, "mirrors", "@m"].map(str::to_owned));
        self.switch.run("ovs-vsctl", &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    /// Returns the learned addresses by VLAN, and the port of each address.
    pub(crate) fn macs(&mut self) -> Macs {
        let shown = self.command("fdb/show", &[BRIDGE]);
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let (port, vlan, mac) = (words.next()?, words.next()?, words.next()?);
            Some((vlan.parse().ok()?, mac.to_owned(), port.to_owned()))
        };
        shown.lines().filter_map(line).collect()
    }

    /// Changes ports as the case requires before a packet, and sends the packet.
    ///
    /// Returns the output.
    pub(crate) fn play(&mut self, packet: &RecordedPacket) -> (Answer, Frames) {
        for [port, change] in &packet.port_mods {
            self.odd_ports.insert(port.clone());
            self.client().set_port(port, change);
        }
        self.set_vlans(&packet.vlans);
        let answer = match &packet.packet_out {
            None => {
                self.receive(&format!("p{}", packet.in_port), &packet.frame);
                Answer::Taken
            }
            Some(actions) => self.client().ask("packet-out", &packet.as_packet_out(actions)),
        };
        (answer, self.collect())
    }

    /// Injects a frame on a port and waits until Open vSwitch has processed the frame.
    ///
    /// The thread that handles commands processes the queue between two commands.
    fn receive(&mut self, port: &str, frame: &str) {
        let before = self.lookups();
        self.command("netdev-dummy/receive", &[port, frame]);
        for _ in 0..ROUNDS {
            if self.lookups() != before {
                return;
            }
        }
    }

    /// Returns the statistics of Open vSwitch about looked up packets.
    fn lookups(&mut self) -> String {
        let shown = self.command("dpctl/show", &[]);
        let line = shown.lines().find(|line| line.contains("lookups:"));
        line.unwrap_or_default().to_owned()
    }

    /// Flushes all cached flows after their counters are reported.
    pub(crate) fn settle(&mut self) {
        self.command("revalidator/purge", &[]);
    }

    /// Returns whether the daemon has ended or is ending.
    ///
    /// An aborting daemon closes its sockets first.
    pub(crate) fn has_died(&self) -> bool {
        let id = self.switch.process("ovs-vswitchd");
        id.is_empty() || wait_until(|| !Path::new("/proc").join(&id).exists())
    }

    /// Returns the last lines of the log of the daemon.
    pub(crate) fn last_words(&self) -> String {
        let log = self.switch.folder().join("ovs-vswitchd.log");
        let log = fs::read_to_string(log).unwrap_or_default();
        log.lines().filter(|line| line.contains("EMER")).collect::<Vec<_>>().join("\n")
    }

    /// Sends a command to the daemon; a refusal fails the test.
    fn command(&mut self, method: &str, parameters: &[&str]) -> String {
        let request = json!({ "method": method, "params": parameters, "id": 0 });
        let sent = self.control.get_mut().write_all(request.to_string().as_bytes());
        sent.expect("the daemon is running");
        let mut reply = serde_json::Deserializer::from_reader(&mut self.control);
        let reply = Value::deserialize(&mut reply).expect("the daemon is running");
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

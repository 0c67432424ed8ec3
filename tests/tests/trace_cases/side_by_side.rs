//! Unrecorded cases: rules and frames, replayed to a switch and to a private Open vSwitch in
//! parallel.
//!
//! Both switches must accept and refuse the same requests with the same errors, print the same
//! rules, send the same frames and packet-ins, and have the same counters.

use std::{
    collections::BTreeSet,
    fmt::Debug,
    panic::{self, AssertUnwindSafe},
};

use shunt_switch::config::CacheKind;

use crate::{
    cabled_switch::CabledSwitch,
    case::{Case, Expect, Frames, LearnedRule, RecordedPacket},
    client::{Answer, Client, DumpedRule, Monitor},
    masks::Tables,
    rival::Rival,
};

/// Maximum attempts for a case that learns addresses too fast for the machine.
const TRIES: usize = 3;

/// The state of one case on both switches.
struct Play<'a> {
    case: Case,
    cabled: CabledSwitch,
    rival: &'a mut Rival,
    ours: Client,
    theirs: Client,
    found: Vec<String>,
}

/// Replays a case to both switches.
///
/// Returns the differences, and the case with the results of Open vSwitch.
///
/// Returns `None` if Open vSwitch crashed; a new process is then running.
pub(crate) fn play(case: &Case, rival: &mut Rival) -> Option<(Vec<String>, Case)> {
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
        for _ in 1..TRIES {
            let (played, was_slow) = replay_once(case, rival);
            if !was_slow {
                return played;
            }
            println!("{}: learning packets arrive too fast for this machine, retrying", case.id);
        }
        replay_once(case, rival).0
    }));
    match outcome {
        Ok(played) => Some(played),
        Err(cause) if !rival.has_died() => panic::resume_unwind(cause),
        Err(_) => {
            println!("{}", rival.last_words());
            *rival = Rival::start_or_skip()?;
            None
        }
    }
}

/// Replays a case once.
///
/// Returns the differences, the case, and whether Shunt dropped a packet because a port exceeded
/// the stall budget. Learning runs beside the packet threads, and is slow on a busy machine.
fn replay_once(case: &Case, rival: &mut Rival) -> ((Vec<String>, Case), bool) {
    let mut cabled = CabledSwitch::new(CacheKind::Megaflow);
    rival.reset();
    cabled.set_ports(case);
    rival.set_ports(case);
    let (ours, theirs) = (cabled.client(), rival.client());
    let mut play = Play { case: case.clone(), cabled, rival, ours, theirs, found: Vec::new() };
    play.load();
    if play.found.is_empty() {
        play.send();
    }
    if play.found.is_empty() {
        play.try_masks();
    }
    let was_slow = play.cabled.has_exceeded_stall_budget();
    ((play.found, play.case), was_slow)
}

impl Play<'_> {
    fn compare<T: Debug + PartialEq>(&mut self, what: &str, ours: &T, theirs: &T) {
        if ours != theirs {
            self.found.push(format!("{what}:\n  Shunt        {ours:?}\n  Open vSwitch {theirs:?}"));
        }
    }

    /// Loads meters, groups and rules. Requests that both switches refuse are left out.
    fn load(&mut self) {
        let Case { meters, groups, flows, .. } = self.case.clone();
        self.case.meters = self.ask_each("add-meter", meters);
        self.case.groups = self.ask_all(["add-groups", "add-group"], groups);
        self.case.flows = self.ask_all(["add-flows", "add-flow"], flows);
        for [port, change] in self.case.port_mods.clone() {
            self.ours.set_port(&port, &change);
            self.theirs.set_port(&port, &change);
        }
        if !self.case.groups.is_empty() {
            self.compare_shown("dump-groups");
        }
        if !self.case.meters.is_empty() {
            self.compare_shown("dump-meters");
        }
        self.compare_rules("rules");
    }

    /// Sends all requests together. If some requests are refused,
    /// sends requests one by one.
    fn ask_all(&mut self, [all, each]: [&str; 2], lines: Vec<String>) -> Vec<String> {
        let clients = [&self.ours, &self.theirs];
        if lines.len() < 2 || clients.map(|client| client.ask_all(all, &lines)) == [true; 2] {
            return if lines.len() < 2 { self.ask_each(each, lines) } else { lines };
        }
        for client in clients {
            client.show(&all.replace("add", "del"));
        }
        self.ask_each(each, lines)
    }

    fn ask_each(&mut self, verb: &str, lines: Vec<String>) -> Vec<String> {
        let mut taken = Vec::new();
        for line in lines {
            let (ours, theirs) = (self.ours.ask(verb, &line), self.theirs.ask(verb, &line));
            self.compare(&format!("{verb} {line}"), &ours, &theirs);
            if ours == Answer::Taken {
                taken.push(line);
            }
        }
        taken
    }

    fn send(&mut self) {
        let mut lines = self.case.flows.iter().chain(&self.case.groups);
        let punts = |line: &String| line.to_lowercase().contains("controller");
        let mut monitors =
            lines.any(punts).then(|| [Monitor::start(&self.ours), Monitor::start(&self.theirs)]);
        for pass in 1..=if self.case.stateless { 2 } else { 1 } {
            for index in 0..self.case.packets.len() {
                self.send_packet(pass, index, monitors.as_ref());
            }
            self.rival.settle();
            self.compare_rules(&format!("rules after pass {pass}"));
            if !self.case.groups.is_empty() {
                self.compare_shown("dump-group-stats");
            }
            if !self.case.meters.is_empty() {
                self.compare_shown("meter-stats");
            }
            if let Some(monitors) = monitors.take() {
                let theirs = self.case.packet_ins();
                let ours = monitors[0].packet_ins(&theirs);
                self.compare("packet-ins", &ours, &theirs);
            }
        }
    }

    fn send_packet(&mut self, pass: u32, index: usize, monitors: Option<&[Monitor; 2]>) {
        if !self.case.stateless {
            self.rival.settle();
        }
        let packet = self.case.packets[index].clone();
        let RecordedPacket { in_port, frame, .. } = &packet;
        let what = format!("pass {pass} packet {index} on port {in_port}, {frame}");
        let (said, ours) = self.cabled.play(&self.ours, &packet);
        let (answer, mut theirs) = self.rival.play(&packet);
        // Ports of Open vSwitch capture their output even if the link is down.
        theirs.retain(|port, _| !self.case.down.contains(port));
        self.compare(&format!("reply to {what}"), &said, &answer);
        if pass == 1 {
            let before = self.case.packet_ins().len();
            let packet_in = monitors.map_or_else(Vec::new, |[_, theirs]| theirs.all());
            let packet_in = packet_in.into_iter().skip(before).collect();
            let expect = Expect { out: theirs.clone(), packet_in, trace: None };
            self.case.packets[index].expect = expect;
        }
        self.compare_frames(&what, &ours, &theirs);
        if !self.case.stateless {
            let (ours, theirs) = (self.cabled.macs(), self.rival.macs());
            self.compare(&format!("addresses after {what}"), &ours, &theirs);
        }
    }

    /// Records the printed rules, the counters of the first pass, and learned rules.
    fn note_rules(&mut self, rules: Vec<DumpedRule>) {
        if self.case.dump.is_empty() {
            self.case.dump = rules.into_iter().map(|rule| rule.text).collect();
            return;
        }
        if !self.case.counters.is_empty() {
            return;
        }
        for rule in rules {
            if self.case.dump.contains(&rule.text) {
                self.case.counters.insert(rule.cookie, rule.counts);
            } else {
                self.case.flows_after.push(LearnedRule::of(rule));
            }
        }
    }

    fn compare_frames(&mut self, what: &str, ours: &Frames, theirs: &Frames) {
        if ours == theirs {
            return;
        }
        let ports: BTreeSet<u32> = ours.keys().chain(theirs.keys()).copied().collect();
        for port in ports {
            let none = Vec::new();
            let [mut ours, mut theirs] =
                [ours, theirs].map(|all| all.get(&port).unwrap_or(&none).clone());
            if !self.case.mirrors.is_empty() {
                // The switches flood in different orders, and the first mirrored port determines
                // when the copy leaves.
                ours.sort();
                theirs.sort();
            }
            if ours != theirs {
                self.compare(&format!("{what}, out of port {port}"), &ours, &theirs);
            }
        }
    }

    fn compare_rules(&mut self, what: &str) {
        let dumps = [&self.ours, &self.theirs].map(Client::dump);
        // Open vSwitch counts packets that a closed port then does not receive.
        let is_counted = !self.case.has_closed_ports();
        let [ours, theirs] = dumps.each_ref().map(|dump| {
            let line = |rule: &DumpedRule| {
                let counts = if is_counted { rule.counts } else { [0; 2] };
                format!("cookie={} {counts:?} {}", rule.cookie, rule.text)
            };
            dump.iter().map(line).collect::<BTreeSet<_>>()
        });
        let missing = |one: &BTreeSet<String>, other: &BTreeSet<String>| {
            one.difference(other).cloned().collect::<Vec<_>>()
        };
        self.compare(what, &missing(&ours, &theirs), &missing(&theirs, &ours));
        let [_, theirs] = dumps;
        self.note_rules(theirs);
    }

    fn compare_shown(&mut self, verb: &str) {
        let [ours, theirs] =
            [&self.ours, &self.theirs].map(|client| shown_lines(&client.show(verb)));
        self.compare(verb, &ours, &theirs);
    }

    /// Tests the masks of Shunt with packets near the packets of the case.
    fn try_masks(&mut self) {
        // Some rules and groups are accepted over OpenFlow only.
        let Ok(tables) = Tables::try_new(&self.case) else { return };
        for (index, packet) in self.case.packets.iter().enumerate() {
            if let Some(other) = tables.find_mask_violation(&self.case, packet) {
                self.found.push(format!("mask of packet {index} is too wide: {other}"));
            }
        }
    }
}

/// Returns the printed lines without values that vary or are known to differ.
///
/// Such values are message numbers, times, and reference counts of groups.
fn shown_lines(text: &str) -> Vec<String> {
    let item = |item: &str| {
        let (name, _) = item.split_once(['=', ':']).unwrap_or_default();
        !matches!(name, "duration" | "(xid" | "ref_count")
    };
    let line =
        |line: &str| line.split([' ', ',']).filter(|word| item(word)).collect::<Vec<_>>().join(" ");
    let mut lines: Vec<String> = text.lines().map(line).collect();
    lines.sort();
    lines
}

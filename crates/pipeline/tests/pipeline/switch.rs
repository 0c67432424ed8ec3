//! The switch of the tests: a pipeline with one bridge, and helpers for packets.

use std::sync::Arc;

use shunt_flow::{
    FieldId, FlowKey, Match, PortNo,
    text::{NoPortNames, parse_match},
};
use shunt_pipeline::{
    Action, BridgeId, BridgeSettings, Change, DatapathAction, DatapathPort, FlowMod,
    FlowModCommand, ModificationError, Pipeline, PortConfig, PortInfo, PortKind, QueueId,
    RuleFilter, Time, Traversal,
    text::{parse_actions, parse_rule},
};

/// The bridge on which packets arrive.
pub(crate) const BRIDGE: BridgeId = BridgeId::new(1);

/// A pipeline with one bridge.
///
/// The bridge has ports 1 to 4, which are datapath ports of the same numbers, and LOCAL, which is
/// datapath port 100.
pub(crate) struct Switch {
    pub(crate) pipeline: Arc<Pipeline>,
}

impl Switch {
    /// Creates a switch with these rules.
    pub(crate) fn new(rules: &[&str]) -> Self {
        let switch = Self { pipeline: Arc::new(Pipeline::new(1)) };
        switch.pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        switch.set_ports(ports());
        switch.add(rules);
        switch
    }

    /// Creates a switch that runs these actions for every packet.
    ///
    /// The parser would refuse actions that need a header which packets may lack.
    pub(crate) fn of_actions(actions: &[Action]) -> Self {
        let mut rule = request(FlowModCommand::Add, "actions=drop");
        rule.instructions.apply = actions.into();
        let switch = Self::new(&[]);
        switch.pipeline.apply(BRIDGE, &[rule], Time::ZERO).expect("the rule is legal");
        switch
    }

    /// Returns the ports of the bridge.
    pub(crate) fn infos(&self) -> Vec<PortInfo> {
        let ports = self.pipeline.ports(BRIDGE).expect("the bridge exists");
        ports.iter().map(|port| (**port).clone()).collect()
    }

    pub(crate) fn set_ports(&self, ports: Vec<PortInfo>) {
        self.pipeline.set_ports(BRIDGE, ports).expect("the bridge exists");
    }

    /// Changes the settings of a port.
    pub(crate) fn configure(&self, number: u32, config: PortConfig) {
        let mut ports = self.infos();
        let port = ports.iter_mut().find(|port| port.number == PortNo::new(number));
        port.expect("the port exists").config = config;
        self.set_ports(ports);
    }

    /// Adds rules, as one version.
    pub(crate) fn add(&self, rules: &[&str]) -> Change {
        let mods: Vec<_> = rules.iter().map(|rule| request(FlowModCommand::Add, rule)).collect();
        self.pipeline.apply(BRIDGE, &mods, Time::ZERO).expect("the rules are legal")
    }

    /// Applies the flow-mod of a text.
    pub(crate) fn send(
        &self,
        command: FlowModCommand,
        rule: &str,
    ) -> Result<Change, ModificationError> {
        let request = request(command, rule);
        self.pipeline.apply(BRIDGE, &[request], Time::ZERO).map_err(|rejected| rejected.error)
    }

    pub(crate) fn translate(&self, packet: &str) -> Traversal {
        self.pipeline.translate(&key(packet), self.pipeline.version())
    }

    /// Returns the result of a packet as text; see [`describe`].
    pub(crate) fn run(&self, packet: &str) -> String {
        let traversal = self.translate(packet);
        match traversal.error {
            Some(error) => error.to_string(),
            None => describe(&traversal.actions),
        }
    }

    /// Returns the result of a packet-out as text; see [`describe`].
    pub(crate) fn packet_out(&self, packet: &str, actions: &str) -> String {
        describe(&self.translate_out(packet, actions).actions)
    }

    /// Translates a packet-out of a controller.
    pub(crate) fn translate_out(&self, packet: &str, actions: &str) -> Traversal {
        let actions = parse_actions(actions, &NoPortNames).expect("the actions are legal");
        let version = self.pipeline.version();
        self.pipeline.translate_actions(&key(packet), &actions.apply, version)
    }

    /// Returns the cookies of all rules, by table and age.
    pub(crate) fn cookies(&self) -> Vec<u64> {
        let rules = self.pipeline.rules(BRIDGE, &RuleFilter::all());
        rules.iter().map(|rule| rule.cookie.number()).collect()
    }
}

/// Parses a request as `ovs-ofctl` does.
pub(crate) fn request(command: FlowModCommand, rule: &str) -> FlowMod {
    parse_rule(command, rule, &NoPortNames).unwrap_or_else(|error| panic!("{rule}: {error}"))
}

/// Returns a packet with these fields.
pub(crate) fn key(packet: &str) -> FlowKey {
    let matching = parse_match(packet, &NoPortNames).expect("the text of the packet is valid");
    let mut key = matching.key();
    key.set_bridge(BRIDGE.number().into());
    if key.in_port() == PortNo::new(0) {
        key.set_in_port(PortNo::new(1));
    }
    key
}

/// Returns ports 1 to 4 and LOCAL.
pub(crate) fn ports() -> Vec<PortInfo> {
    let numbers = (1..=4).map(|number| (number, number)).chain([(PortNo::LOCAL.number(), 100)]);
    let kind = |port| PortKind::Datapath(DatapathPort::new(port));
    numbers.map(|(number, own)| port(number, kind(own))).collect()
}

pub(crate) fn port(number: u32, kind: PortKind) -> PortInfo {
    PortInfo::new(PortNo::new(number), kind)
}

/// Describes actions as text: ports by number.
/// `!` marks an output that may go back to the ingress port.
pub(crate) fn describe(actions: &[DatapathAction]) -> String {
    let truncated =
        |max_len: &Option<u32>| max_len.map_or_else(String::new, |len| format!("/{len}"));
    let describe_action = |action: &DatapathAction| match action {
        DatapathAction::SetHeader(set) => format!("set({})", describe_fields(set)),
        DatapathAction::PushVlan { tpid, tci } => format!("push({tpid:x},{tci:x})"),
        DatapathAction::PopVlan => "pop".to_owned(),
        DatapathAction::Output { port, queue, unless_ingress, max_len } => {
            let unless = if *unless_ingress { "" } else { "!" };
            format!("{port}{}{unless}{}", describe_queue(*queue), truncated(max_len))
        }
        DatapathAction::OutputIngress { queue, max_len } => {
            format!("back{}{}", describe_queue(*queue), truncated(max_len))
        }
        DatapathAction::Punt(punt) => {
            format!("punt({:?},table={},cookie={})", punt.reason, punt.table, punt.cookie)
        }
        DatapathAction::Meter(meter) => format!("meter({})", meter.id),
        DatapathAction::Copy(inner) => format!("copy({})", describe(inner)),
        DatapathAction::PushMpls { lse, ethertype } => {
            let (label, class, ttl) = (lse >> 12, lse >> 9 & 7, lse & 0xff);
            let bottom = if lse & 0x100 == 0 { "" } else { "." };
            format!("push({ethertype:x},{label}/{class}/{ttl}{bottom})")
        }
        DatapathAction::PopMpls { ethertype } => format!("pop({ethertype:x})"),
        DatapathAction::Recirculate(_) => "recirculate".to_owned(),
        DatapathAction::CheckLength { length, .. } => format!("larger({length})"),
        DatapathAction::Sample(request) => format!("sample({})", request.action.collector_set_id),
    };
    actions.iter().map(describe_action).collect::<Vec<_>>().join(" ")
}

fn describe_queue(queue: QueueId) -> String {
    if queue == QueueId::DEFAULT { String::new() } else { format!("q{queue}") }
}

fn describe_fields(set: &Match) -> String {
    let fields =
        [FieldId::EthSrc, FieldId::EthDst, FieldId::VlanTci, FieldId::Ipv4Dst, FieldId::NwTtl];
    let key = set.key();
    let mask = shunt_flow::FlowMask::from(set.mask());
    let named = fields.iter().filter(|field| mask.field(**field) != 0);
    let text = |field: &FieldId| format!("{}={:x}", field.name(), key.field(*field));
    named.map(text).collect::<Vec<_>>().join(",")
}

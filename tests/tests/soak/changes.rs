//! The changes of a network: the network is built, changed until stopped, and removed.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread::sleep,
    time::Duration,
};

use proptest::test_runner::TestRunner;
use shunt_flow::text::NoPortNames;
use shunt_pipeline::{
    FlowModCommand, GroupCommand, GroupKind, GroupMod, MeterCommand, MeterConfig, MeterMod,
    MeterUnit, Mirror, MirrorOutput, MirroredPorts, Modification, PortInfo, PortVlans, Selection,
    VlanMode,
    testing::generate::{self, BRIDGES, Op},
    text::parse_rule,
};
use shunt_switch::{Switch, config};
use tokio::runtime::Handle;

use crate::{
    draw,
    fixture::{PORTS, bridge_name, port_name},
};

/// Pause after a change, in which packets fill the caches again.
const PAUSE: Duration = Duration::from_millis(1);

/// Pause after the last change, in which retired entries are reclaimed.
const LAST_PAUSE: Duration = Duration::from_millis(1200);

/// The source of changes.
pub(crate) struct Changes<'a> {
    switch: &'a Switch,
    runtime: &'a Handle,
    is_over: &'a AtomicBool,
    versions: &'a AtomicU64,
}

impl<'a> Changes<'a> {
    pub(crate) const fn new(
        switch: &'a Switch,
        runtime: &'a Handle,
        is_over: &'a AtomicBool,
        versions: &'a AtomicU64,
    ) -> Self {
        Self { switch, runtime, is_over, versions }
    }

    /// Builds a network of bridges and ports.
    pub(crate) fn build(&self, runner: &mut TestRunner) {
        draw(runner, generate::network()).into_iter().for_each(|op| self.apply(op));
    }

    /// Makes changes until the network is stopped, and removes it.
    pub(crate) fn make(&self, runner: &mut TestRunner) {
        while !self.is_over.load(Ordering::Relaxed) {
            self.apply(draw(runner, generate::op()));
            sleep(PAUSE);
        }
        self.tear_down();
        sleep(LAST_PAUSE);
    }

    /// Applies a change; a refused change has no effect.
    fn apply(&self, op: Op) {
        let made = match op {
            Op::Apply(id, mods) => {
                let mods = mods.into_iter().map(Modification::Flow).collect();
                self.modify(id.number(), mods)
            }
            Op::Modify(id, mods) => self.modify(id.number(), mods),
            Op::SetPorts(id, ports) => {
                ports.iter().for_each(|port| self.set_vlans(id.number(), port));
                true
            }
            Op::SetMirrors(id, mirrors) => self.set_mirrors(id.number(), mirrors),
            Op::SetFloodVlans(id, vlans) => {
                let vlans: Vec<_> = vlans.iter().map(u16::to_string).collect();
                let (bridge, vlans) = (bridge_name(id.number()), vlans.join(","));
                let settings = [("flood_vlans", vlans.as_str())];
                self.runtime.block_on(self.switch.set_bridge(&bridge, &settings)).is_ok()
            }
            Op::SetSnooping(id, snooping) => {
                let (bridge, is_on) = (bridge_name(id.number()), snooping.is_some().to_string());
                let settings = [("mcast_snooping_enable", is_on.as_str())];
                self.runtime.block_on(self.switch.set_bridge(&bridge, &settings)).is_ok()
            }
            // Packets trigger learning, and the switch expires and reclaims entries itself. Bundles
            // are not generated. Connections of OpenFlow 1.0 set the treatment of misses, and lost
            // connections that of fail-open.
            Op::LearnFrom(_)
            | Op::Snoop(..)
            | Op::AddStaticMac(..)
            | Op::RemoveStaticMac(..)
            | Op::Reclaim
            | Op::Expire(_)
            | Op::Commit(..)
            | Op::SetSendsMisses(..)
            | Op::SetFailsOpen(..) => false,
        };
        self.versions.fetch_add(u64::from(made), Ordering::Relaxed);
    }

    fn modify(&self, bridge: u16, mods: Vec<Modification>) -> bool {
        self.runtime.block_on(self.switch.modify(&bridge_name(bridge), mods)).is_ok()
    }

    fn set_mirrors(&self, bridge: u16, mirrors: Vec<Mirror>) -> bool {
        let named = |name: String| {
            let number = name.strip_prefix('p').and_then(|number| number.parse().ok());
            number.map_or(name, |number| port_name(bridge, number))
        };
        let all = |names: BTreeSet<String>| names.into_iter().map(named).collect::<Vec<_>>();
        let options = |Mirror { name, ports, vlans, output, snaplen }: Mirror| {
            let (select_all, (select_src_port, select_dst_port)) = match ports {
                MirroredPorts::All => (true, (Vec::new(), Vec::new())),
                MirroredPorts::Named { received, sent } => (false, (all(received), all(sent))),
            };
            let (output_port, output_vlan) = match output {
                MirrorOutput::Port(name) => (named(name), 0),
                MirrorOutput::Vlan(vlan) => (String::new(), vlan),
            };
            config::MirrorOptions {
                name,
                select_all,
                select_src_port,
                select_dst_port,
                select_vlan: vlans.into_iter().collect(),
                output_port,
                output_vlan,
                snaplen: snaplen.unwrap_or_default(),
            }
        };
        // A mirror to VLAN 0 is refused.
        let mirrors = mirrors.into_iter().map(options).collect();
        self.runtime.block_on(self.switch.set_mirrors(&bridge_name(bridge), mirrors)).is_ok()
    }

    fn set_vlans(&self, bridge: u16, info: &PortInfo) {
        if info.number.number() > PORTS {
            return;
        }
        let PortVlans { mode, trunks, cvlans, qinq_ethtype, priority_tags } = &info.vlans;
        let (vlan_mode, tag) = match *mode {
            VlanMode::Trunk => (config::PortVlanMode::Trunk, None),
            VlanMode::Access(vlan) => (config::PortVlanMode::Access, Some(vlan)),
            VlanMode::NativeTagged(vlan) => (config::PortVlanMode::NativeTagged, Some(vlan)),
            VlanMode::NativeUntagged(vlan) => (config::PortVlanMode::NativeUntagged, Some(vlan)),
            VlanMode::Dot1qTunnel(vlan) => (config::PortVlanMode::Dot1qTunnel, Some(vlan)),
        };
        let is_tunnel = matches!(mode, VlanMode::Dot1qTunnel(_));
        let has_trunks = !is_tunnel && !matches!(mode, VlanMode::Access(_));
        // A mode refuses the lists of other modes.
        let list = |vlans: Option<&BTreeSet<u16>>, is_used: bool| {
            vlans.into_iter().flatten().copied().filter(|_| is_used).collect()
        };
        let port = config::PortOptions {
            name: port_name(bridge, info.number.number()),
            vlan_mode: Some(vlan_mode),
            tag,
            priority_tags: *priority_tags,
            protected: info.is_protected,
            trunks: list(trunks.as_ref(), has_trunks),
            cvlans: list(cvlans.as_ref(), is_tunnel),
            qinq_ethtype: if is_tunnel { *qinq_ethtype } else { config::QinqEthtype::default() },
            ..config::PortOptions::default()
        };
        // A tunnel to VLAN 0 is refused.
        let _ = self.runtime.block_on(self.switch.set_vlans(&port));
    }

    /// Removes every rule, group, meter, mirror and MAC address.
    fn tear_down(&self) {
        for id in BRIDGES {
            let rules = parse_rule(FlowModCommand::Delete, "", &NoPortNames);
            let groups = GroupMod {
                command: GroupCommand::Delete,
                group: None,
                kind: GroupKind::All,
                selection: Selection::default(),
                buckets: Box::default(),
            };
            let meters = MeterMod {
                command: MeterCommand::Delete,
                meter: None,
                config: MeterConfig {
                    unit: MeterUnit::Packets,
                    burst: false,
                    stats: false,
                    bands: Box::default(),
                },
            };
            let all = vec![
                Modification::Flow(rules.expect("the empty text is valid")),
                Modification::Group(groups),
                Modification::Meter(meters),
            ];
            assert!(self.modify(id.number(), all), "everything can be removed");
            self.set_mirrors(id.number(), Vec::new());
        }
        let flushed = self.runtime.block_on(self.switch.flush_macs(None));
        flushed.expect("addresses can be flushed");
    }
}

//! The bridge that the packet is in, as one version sees it.

use std::sync::Arc;

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::record::recorder::Recorder;
use crate::{
    bridges::{
        bridge::{VersionedBridge, VersionedBridges},
        port::PortInfo,
        port_table::PortTable,
    },
    continuations::continuation::Continuations,
    groups::group::Group,
    id::{BridgeId, GroupId, MeterId},
    meters::meter::Meter,
    versions::delta::Object,
};

/// All tables of the daemon, at one version.
#[derive(Clone, Copy)]
pub(crate) struct TablesAtVersion<'a> {
    pub(crate) bridges: &'a VersionedBridges,
    pub(crate) continuations: &'a Continuations,
    pub(crate) version: Version,
}

/// One bridge, at one version.
#[derive(Clone, Copy)]
pub(super) struct BridgeView<'a> {
    pub(super) id: BridgeId,
    pub(super) state: &'a VersionedBridge,
    pub(super) ports: &'a PortTable,
    pub(super) version: Version,
}

impl<'a> BridgeView<'a> {
    /// Returns the bridge with this number, if the version sees one.
    pub(super) fn find(
        tables: TablesAtVersion<'a>,
        id: BridgeId,
        recorder: &mut Recorder,
    ) -> Option<Self> {
        recorder.read(Object::Bridge(id));
        let state = tables.bridges.get(&id)?;
        let ports = state.ports(tables.version)?;
        Some(Self { id, state, ports, version: tables.version })
    }

    /// Returns a port of the bridge.
    pub(super) fn find_port(self, number: PortNo, recorder: &mut Recorder) -> Option<&'a PortInfo> {
        recorder.read(Object::Port(self.id, number));
        self.ports.find(number)
    }

    /// Returns all ports of the bridge, in the order of their numbers.
    pub(super) fn all_ports(self, recorder: &mut Recorder) -> &'a [PortInfo] {
        recorder.read(Object::Ports(self.id));
        self.ports.ports()
    }

    /// Returns a group of the bridge. The caller records the read.
    pub(super) fn group(self, id: GroupId) -> Option<&'a Arc<Group>> {
        self.state.groups.find(id, self.version)
    }

    /// Returns a meter of the bridge.
    pub(super) fn find_meter(self, id: MeterId, recorder: &mut Recorder) -> Option<Arc<Meter>> {
        recorder.read(Object::Meter(self.id, id));
        self.state.meters.find(id, self.version).cloned()
    }
}

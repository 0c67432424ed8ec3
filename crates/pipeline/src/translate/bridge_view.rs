//! The bridge that the packet is in, as one version sees it.
//!
//! Every method that finds an object by name records the read. So a translation depends on every
//! object that it uses. Tables are the exception: their lookups are recorded as visits.

use std::{net::IpAddr, sync::Arc};

use shunt_classifier::Version;
use shunt_flow::PortNo;

use super::record::recorder::Recorder;
use crate::{
    bridges::{
        bridge::{VersionedBridge, VersionedBridges},
        mac_table::MacEntry,
        mirror_table::{MirrorSet, MirrorTable},
        multicast::MulticastSnooping,
        multicast_table::{MulticastKey, MulticastPorts},
        output_counter::OutputHit,
        port::PortInfo,
        port_table::{FloodedPorts, PortProtocols, PortTable},
    },
    continuations::{continuation::Continuations, liveness::ReadableFields},
    groups::group::Group,
    id::{BridgeId, GroupId, MeterId, TableId},
    meters::meter::Meter,
    tables::{learned::masked::IndexedFrom, table::RuleTable},
    versions::delta::Object,
};

/// The bridges and continuations of the daemon, at one version.
#[derive(Clone, Copy)]
pub(crate) struct TablesAtVersion<'a> {
    pub(crate) bridges: &'a VersionedBridges,
    pub(crate) continuations: &'a Continuations,
    pub(crate) version: Version,
    /// The tables in which recorded lookups use learned indexes.
    pub(crate) indexed_from: IndexedFrom,
}

/// One bridge, at one version.
#[derive(Clone, Copy)]
pub(super) struct BridgeView<'a> {
    id: BridgeId,
    /// The bridge at all versions.
    state: &'a VersionedBridge,
    /// The ports at this version.
    ports: &'a PortTable,
    version: Version,
    /// The lookups that use a learned index.
    indexed_from: IndexedFrom,
}

impl<'a> BridgeView<'a> {
    /// Returns the bridge with this number, if the version sees one.
    pub(super) fn find(
        tables: TablesAtVersion<'a>,
        id: BridgeId,
        recorder: &mut Recorder,
    ) -> Option<Self> {
        recorder.read(Object::Bridge(id));
        Self::find_unrecorded(tables, id)
    }

    /// Returns the bridge with this number for a decision that is not recorded.
    pub(super) fn find_unrecorded(tables: TablesAtVersion<'a>, id: BridgeId) -> Option<Self> {
        let state = tables.bridges.get(&id)?;
        let ports = state.ports(tables.version)?;
        let TablesAtVersion { version, indexed_from, .. } = tables;
        Some(Self { id, state, ports, version, indexed_from })
    }

    /// Returns the number of the bridge.
    pub(super) const fn id(self) -> BridgeId {
        self.id
    }

    /// Returns the version at which the translation sees the bridge.
    pub(super) const fn version(self) -> Version {
        self.version
    }

    /// Returns the tables in which recorded lookups use learned indexes.
    pub(super) const fn indexed_from(self) -> IndexedFrom {
        self.indexed_from
    }

    /// Returns the bridge with all of its versions.
    pub(super) const fn all_versions(self) -> &'a VersionedBridge {
        self.state
    }

    /// Returns all ports for a decision that is not recorded.
    pub(super) const fn ports(self) -> &'a PortTable {
        self.ports
    }

    /// Returns a table, if it has ever had a rule.
    pub(super) fn table(self, table: TableId) -> Option<&'a RuleTable> {
        self.state.table(table)
    }

    /// Returns the hidden fields that the tables of the bridge can read.
    pub(super) fn readable(self) -> &'a ReadableFields {
        self.state.liveness.at(self.version)
    }

    /// Returns whether any port drops received packets.
    pub(super) fn filters_ingress(self, recorder: &mut Recorder) -> bool {
        self.port_filters(recorder).filters_ingress
    }

    /// Returns whether any port drops packets that are sent on it.
    pub(super) fn filters_egress(self, recorder: &mut Recorder) -> bool {
        self.port_filters(recorder).filters_egress
    }

    /// Returns the ports to read their filters, and records this read.
    fn port_filters(self, recorder: &mut Recorder) -> &'a PortTable {
        recorder.read(Object::PortFilters(self.id));
        self.ports
    }

    /// Returns the mirrors of the bridge, if some copy packets or reserve ports.
    ///
    /// Not recorded: the mirrors belong to the object of the bridge, which `find` has recorded.
    pub(super) fn mirrors(self) -> Option<&'a MirrorTable> {
        Some(&self.ports.mirrors).filter(|mirrors| !mirrors.is_empty())
    }

    /// Returns whether NORMAL floods every packet of a VLAN.
    ///
    /// Not recorded: settings belong to the object of the bridge, which `find` has recorded.
    pub(super) fn floods_vlan(self, vlan: u16) -> bool {
        self.state.settings(self.version).is_some_and(|own| own.flood_vlans.contains(&vlan))
    }

    /// Returns the settings of multicast snooping; `None` if NORMAL does not snoop.
    ///
    /// Not recorded: settings belong to the object of the bridge, which `find` has recorded.
    pub(super) fn snooping(self) -> Option<MulticastSnooping> {
        self.state.settings(self.version)?.multicast
    }

    /// Returns whether a miss in the first table is sent to controllers.
    ///
    /// Not recorded: settings belong to the object of the bridge, which `find` has recorded.
    pub(super) fn sends_misses(self) -> bool {
        self.state.settings(self.version).is_some_and(|own| own.sends_misses)
    }

    /// Returns whether NORMAL forwards every packet, in place of the tables.
    ///
    /// Not recorded: settings belong to the object of the bridge, which `find` has recorded.
    pub(super) fn fails_open(self) -> bool {
        self.state.settings(self.version).is_some_and(|own| own.fails_open)
    }

    /// Returns the ports on which multicast packets leave unconditionally.
    ///
    /// Not recorded: these ports belong to the object of the bridge, which `find` has recorded.
    pub(super) fn flooded(self) -> &'a FloodedPorts {
        &self.ports.flooded
    }

    /// Returns the protocols of the ports.
    ///
    /// Not recorded: protocols belong to the object of the bridge, which `find` has recorded.
    pub(super) const fn protocols(self) -> PortProtocols {
        self.ports.protocols
    }

    /// Returns whether a port is reserved for the copies of a mirror.
    pub(super) fn is_mirror_output(self, port: PortNo) -> bool {
        self.mirrors().is_some_and(|mirrors| mirrors.is_output(port))
    }

    /// Returns the mirrors that copy a packet no more after the mirrors of `hits`.
    pub(super) fn mirrors_done_after(self, hits: &[OutputHit]) -> MirrorSet {
        if hits.is_empty() { MirrorSet::default() } else { self.ports.mirrors.done_after(hits) }
    }

    /// Returns a port of the bridge.
    pub(super) fn find_port(self, number: PortNo, recorder: &mut Recorder) -> Option<&'a PortInfo> {
        recorder.read(Object::Port(self.id, number));
        self.ports.find(number)
    }

    /// Returns the active member of a bond.
    ///
    /// Reads only the active member: another member becomes active only when this member changes.
    pub(super) fn active_member(self, bond: &str, recorder: &mut Recorder) -> Option<&'a PortInfo> {
        let active = self.ports.active_member(bond);
        recorder.read(match active {
            Some(port) => Object::Port(self.id, port.number),
            None => Object::Ports(self.id),
        });
        active
    }

    /// Returns whether frames that the bridge has sent may come back on some port.
    pub(super) fn receives_copies(self, recorder: &mut Recorder) -> bool {
        recorder.read(Object::Ports(self.id));
        self.ports.receives_copies
    }

    /// Returns all ports of the bridge, in the order of their numbers.
    pub(super) fn all_ports(self, recorder: &mut Recorder) -> &'a [Arc<PortInfo>] {
        recorder.read(Object::Ports(self.id));
        self.ports.ports()
    }

    /// Returns a group of the bridge.
    pub(super) fn find_group(self, id: GroupId, recorder: &mut Recorder) -> Option<&'a Arc<Group>> {
        recorder.read(Object::Group(self.id, id));
        self.state.groups.find(id, self.version)
    }

    /// Returns a meter of the bridge.
    pub(super) fn find_meter(self, id: MeterId, recorder: &mut Recorder) -> Option<Arc<Meter>> {
        recorder.read(Object::Meter(self.id, id));
        self.state.meters.find(id, self.version).cloned()
    }

    /// Returns a MAC address that the bridge has learned in a VLAN.
    pub(super) fn find_mac(
        self,
        vlan: u16,
        mac: [u8; 6],
        recorder: &mut Recorder,
    ) -> Option<&'a Arc<MacEntry>> {
        recorder.read(Object::Mac(self.id, vlan, mac));
        self.state.macs.find(vlan, mac, self.version)
    }

    /// Returns the ports that want a multicast group of a VLAN.
    pub(super) fn multicast_group(
        self,
        vlan: u16,
        group: IpAddr,
        recorder: &mut Recorder,
    ) -> Option<&'a Arc<MulticastPorts>> {
        recorder.read(Object::MulticastGroup(self.id, vlan, group));
        self.state.multicast.find(MulticastKey::Group(vlan, group), self.version)
    }

    /// Returns the router ports of a VLAN.
    pub(super) fn multicast_routers(
        self,
        vlan: u16,
        recorder: &mut Recorder,
    ) -> Option<&'a Arc<MulticastPorts>> {
        recorder.read(Object::MulticastRouters(self.id, vlan));
        self.state.multicast.find(MulticastKey::Routers(vlan), self.version)
    }
}

//! NORMAL: the packet is forwarded as a learning switch with VLANs does (IEEE 802.1Q; what it
//! leaves open is as in Open vSwitch).
//!
//! * The ingress port says which VLAN the packet belongs to, or does not take it.
//! * Frames to the reserved addresses of bridges go nowhere, but for those of a controller; nor do
//!   frames with a tag that nobody has read: one that is cut short, or that lies below others.
//! * Where the source address was seen is learned; what is known already, hits refresh.
//! * The packet goes to the port where its destination was seen last, or to every port of its VLAN
//!   that is flooded to; never to the one that it came in by.
//! * On each port it has the tag of its VLAN, or none, as the port says; a priority stays, in a tag
//!   of its own if need be, but not where a port takes the tag of its own VLAN off.

use std::slice;

use shunt_flow::{FieldId, PortNo, layout::word};

use super::context::{Step, Translation};
use crate::{
    bridges::{mac_table::MacSighting, port::PortInfo, port_vlans::VlanMode},
    learn::learning::Learning,
    traversals::traversal::{Refresh, TraversalError},
    versions::delta::Object,
};

/// Ports that a packet has still to be flooded to.
pub(super) struct NormalFlood<'a> {
    rest: slice::Iter<'a, PortInfo>,
    ingress: PortNo,
    vlan: u16,
}

const VLAN: usize = word::VLAN as usize;
const OUTER_PRESENT: u64 = 0x1000 << 32;
const OUTER_PRIORITY: u64 = 0xe000 << 32;
/// The VLAN of the tag below the outer one.
const INNER_ID: u64 = 0xfff;
/// What says in place of an Ethernet type that a tag follows.
const TAG_TYPES: [u16; 2] = [0x8100, 0x88a8];
/// The bit of the first byte of a MAC address that groups have.
const GROUP_ADDRESS: u64 = 1 << 40;

impl<'a> Translation<'a> {
    /// `output:NORMAL`.
    pub(super) fn normal(&mut self) -> Result<(), TraversalError> {
        let ingress = self.in_port();
        let (source, target) = (self.address(FieldId::EthSrc), self.address(FieldId::EthDst));
        self.recorder.consult_word(VLAN, u64::MAX);
        if self.hides_tag() {
            return Ok(());
        }
        let Some((vlan, learns)) = self.admit(ingress) else { return Ok(()) };
        if learns && is_reserved(target) {
            return Ok(());
        }
        if learns && source & GROUP_ADDRESS == 0 {
            self.learn_source(vlan, bytes(source), ingress)?;
            // To itself: it has just been seen where it is.
            if source == target {
                return Ok(());
            }
        }
        self.recorder.read(Object::Mac(self.here.id, vlan, bytes(target)));
        let known = self.here.bridge.macs.find(vlan, bytes(target), self.version);
        match known.map(|known| known.port) {
            Some(port) if port == ingress => Ok(()),
            Some(port) => match self.find_port(port) {
                Some(port) => self.send_tagged(port, vlan),
                None => Ok(()),
            },
            None => {
                let rest = self.all_ports().iter();
                self.agenda.push(Step::NormalFlood(NormalFlood { rest, ingress, vlan }));
                Ok(())
            }
        }
    }

    /// Goes to the next port of a flood, and comes back for the rest.
    pub(super) fn normal_flood(
        &mut self,
        mut flood: NormalFlood<'a>,
    ) -> Result<(), TraversalError> {
        let Some(port) = flood.rest.next() else { return Ok(()) };
        let (ingress, vlan) = (flood.ingress, flood.vlan);
        self.agenda.push(Step::NormalFlood(flood));
        // What goes out without a tag has none of another VLAN below.
        let is_tagged_twice = self.key.words()[VLAN] & INNER_ID != 0;
        let is_reached = port.number != ingress
            && !port.config.no_flood
            && port.vlans.carries(vlan)
            && !(is_tagged_twice && is_access(port));
        if is_reached { self.send_tagged(port, vlan) } else { Ok(()) }
    }

    /// Whether the type of a tag stands where that of the network header should.
    fn hides_tag(&mut self) -> bool {
        if self.key.words()[VLAN] & OUTER_PRESENT != 0 {
            return false;
        }
        let ethertype = self.key.eth_type();
        TAG_TYPES.into_iter().any(|tag_type| {
            // One bit tells the two apart.
            let bit = (ethertype ^ tag_type).checked_ilog2().map_or(u128::MAX, |bit| 1 << bit);
            self.recorder.consult(FieldId::EthType, bit);
            ethertype == tag_type
        })
    }

    /// The VLAN of the packet, and whether its source is learned; `None`: its ingress port does not
    /// take it. What a controller sends comes in by no port, which takes everything.
    fn admit(&mut self, ingress: PortNo) -> Option<(u16, bool)> {
        let id = self.vlan_id();
        if matches!(ingress, PortNo::CONTROLLER | PortNo::ANY) {
            return Some((id, false));
        }
        let port = self.find_port(ingress)?;
        port.vlans.admit(id).map(|vlan| (vlan, true))
    }

    fn learn_source(
        &mut self,
        vlan: u16,
        mac: [u8; 6],
        port: PortNo,
    ) -> Result<(), TraversalError> {
        let bridge = self.here.id;
        self.recorder.read(Object::Mac(bridge, vlan, mac));
        match self.here.bridge.macs.find(vlan, mac, self.version) {
            Some(known) if known.port == port => self.refresh(Refresh::Mac(known.clone())),
            _ => self.teach(Learning::Mac(MacSighting { bridge, vlan, mac, port })),
        }
    }

    /// Sends the packet with the tag that its VLAN has on the wire of a port.
    fn send_tagged(&mut self, port: &PortInfo, vlan: u16) -> Result<(), TraversalError> {
        let (now, then) = (self.vlan_id(), port.vlans.id_on_wire(vlan));
        let tags = self.key.words()[VLAN];
        let (is_tagged, has_priority) = (tags & OUTER_PRESENT != 0, tags & OUTER_PRIORITY != 0);
        // Where the tag is taken off, its priority goes with it.
        let loses_tag = is_access(port) || port.vlans.mode == VlanMode::NativeUntagged(vlan);
        let keeps_priority = has_priority && !loses_tag;
        let is_tagged_then = then != 0 || keeps_priority;
        if now != then || is_tagged != is_tagged_then {
            self.put_back_later();
            if is_tagged_then {
                self.set_tag(FieldId::DlVlan, u128::from(then), 0xfff);
            } else {
                self.pop_vlan();
                if is_access(port) {
                    self.pop_vlan();
                }
            }
        }
        self.output_to(port, None)
    }

    /// The VLAN id of the packet; 0 without a tag. The caller has consulted the tags.
    fn vlan_id(&self) -> u16 {
        u16::try_from(self.key.words()[VLAN] >> 32 & 0xfff).unwrap_or_default()
    }

    /// An address of the packet, in the low 48 bits.
    fn address(&mut self, field: FieldId) -> u64 {
        self.recorder.consult(field, u128::MAX);
        u64::try_from(self.key.field(field)).unwrap_or_default()
    }
}

const fn is_access(port: &PortInfo) -> bool {
    matches!(port.vlans.mode, VlanMode::Access(_))
}

/// Whether a bridge must not forward frames to this address (IEEE 802.1Q, 8.6.3; and those of
/// other makers that `ovs-vswitchd.conf.db(5)` lists under `forward-bpdu`).
const fn is_reserved(address: u64) -> bool {
    const SIXTEEN: u64 = !0xf;
    address & SIXTEEN == 0x0180_c200_0000
        || address & SIXTEEN == 0x0100_0ccc_ccc0
        || matches!(
            address,
            0x00e0_2b00_0000
                | 0x00e0_2b00_0004
                | 0x00e0_2b00_0006
                | 0x0100_0c00_0000
                | 0x0100_0ccd_cdcd
        )
}

const fn bytes(address: u64) -> [u8; 6] {
    let [_, _, mac @ ..] = address.to_be_bytes();
    mac
}

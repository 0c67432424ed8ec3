//! The mirrors of a bridge at one version, with the ports that they name.
//!
//! A mirror without its output port copies nothing, and is left out. Other ports that do not exist
//! select nothing. The name of a bond selects all of its members; copies leave on the active
//! member.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use shunt_flow::PortNo;

use super::{
    mirror::{Mirror, MirrorOutput, MirroredPorts},
    output_counter::{OutputCounter, OutputHit},
    port::PortInfo,
};

/// The mirrors that copy packets, and their ports by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorTable {
    mirrors: Vec<ActiveMirror>,
    /// The ports that a mirror uses.
    ports: BTreeMap<PortNo, PortMirrors>,
}

/// A mirror that has an output.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ActiveMirror {
    /// The index among the mirrors of the settings.
    pub(crate) index: u8,
    /// The counter of the copied packets.
    pub(crate) hit: OutputHit,
    /// The VLANs of the copied packets; empty: all.
    pub(crate) vlans: BTreeSet<u16>,
    /// The port or VLAN that gets the copies.
    pub(crate) output: ActiveOutput,
    /// Maximum number of bytes of a copy; `None` for no maximum.
    pub(crate) snaplen: Option<u32>,
    /// The mirrors with the same output, which gets one copy of a packet.
    pub(crate) same_output: MirrorSet,
}

/// The destination of the copies of a mirror, with the port by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ActiveOutput {
    Port(PortNo),
    Vlan(u16),
}

/// The mirrors that use a port.
#[derive(Debug, Default, PartialEq, Eq)]
struct PortMirrors {
    /// The mirrors that copy received packets.
    received: MirrorSet,
    /// The mirrors that copy sent packets.
    sent: MirrorSet,
    /// True if a mirror sends its copies to the port.
    is_output: bool,
}

/// A set of mirrors of a bridge, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct MirrorSet(u32);

const _: () = assert!(Mirror::COUNT_MAX <= 32, "a set has one bit for each mirror");

impl MirrorTable {
    /// Finds the ports of mirrors.
    ///
    /// `counters` has the counter of each mirror by its name.
    pub(crate) fn new(
        mirrors: &[Mirror],
        counters: &BTreeMap<String, Arc<OutputCounter>>,
        ports: &[Arc<PortInfo>],
    ) -> Self {
        let mut table = Self::default();
        for (index, mirror) in (0..).zip(mirrors.iter().take(Mirror::COUNT_MAX)) {
            if let Some(counter) = counters.get(&mirror.name) {
                table.add(index, mirror, OutputHit(Arc::clone(counter)), ports);
            }
        }
        let outputs: Vec<_> = table.mirrors.iter().map(|mirror| mirror.output).collect();
        for mirror in &mut table.mirrors {
            let same = outputs.iter().enumerate().filter(|(_, output)| **output == mirror.output);
            same.for_each(|(index, _)| mirror.same_output.insert(MirrorSet::of(index)));
        }
        table
    }

    /// Adds a mirror to the ports that it selects.
    fn add(&mut self, index: u8, mirror: &Mirror, hit: OutputHit, ports: &[Arc<PortInfo>]) {
        let output = match &mirror.output {
            MirrorOutput::Port(name) => {
                let named = || ports.iter().filter(|port| port.is_named(name));
                for port in named() {
                    self.ports.entry(port.number).or_default().is_output = true;
                }
                let Some(port) = named().find(|port| !port.is_backup()) else { return };
                ActiveOutput::Port(port.number)
            }
            MirrorOutput::Vlan(vlan) => ActiveOutput::Vlan(*vlan),
        };
        let own = MirrorSet::of(self.mirrors.len());
        for port in ports {
            let (receives, sends) = match &mirror.ports {
                MirroredPorts::All => (true, true),
                MirroredPorts::Named { received, sent } => {
                    let is_in = |names: &BTreeSet<String>| {
                        names.contains(&port.name)
                            || port.bond_name().is_some_and(|bond| names.contains(bond))
                    };
                    (is_in(received), is_in(sent))
                }
            };
            if receives {
                self.ports.entry(port.number).or_default().received.insert(own);
            }
            if sends {
                self.ports.entry(port.number).or_default().sent.insert(own);
            }
        }
        self.mirrors.push(ActiveMirror {
            index,
            hit,
            vlans: mirror.vlans.clone(),
            output,
            snaplen: mirror.snaplen,
            same_output: MirrorSet::default(),
        });
    }

    /// Returns whether no mirror copies packets or reserves a port.
    pub(crate) fn is_empty(&self) -> bool {
        self.mirrors.is_empty() && self.ports.is_empty()
    }

    /// Returns the mirror with this index in the table.
    pub(crate) fn get(&self, index: usize) -> Option<&ActiveMirror> {
        self.mirrors.get(index)
    }

    /// Returns the mirrors of a set by their counters.
    /// A counter names a mirror at every version, unlike an index in a set.
    pub(crate) fn hits(&self, mut set: MirrorSet) -> Vec<OutputHit> {
        let next = || set.take_first().map(|index| self.get(index));
        std::iter::from_fn(next).flatten().map(|mirror| mirror.hit.clone()).collect()
    }

    /// Returns the mirrors that copy a packet no more after the mirrors of `hits`.
    ///
    /// The result has the mirrors of `hits` at this version, and all mirrors with the same output
    /// as one of them.
    pub(crate) fn done_after(&self, hits: &[OutputHit]) -> MirrorSet {
        let mut set = MirrorSet::default();
        let own = self.mirrors.iter().filter(|own| hits.contains(&own.hit));
        own.for_each(|own| set.insert(own.same_output));
        set
    }

    /// Returns the mirrors of packets that arrive on a port.
    pub(crate) fn received(&self, port: PortNo) -> MirrorSet {
        self.port(port).map_or_else(MirrorSet::default, |own| own.received)
    }

    /// Returns the mirrors of packets that leave on a port.
    pub(crate) fn sent(&self, port: PortNo) -> MirrorSet {
        self.port(port).map_or_else(MirrorSet::default, |own| own.sent)
    }

    /// Returns whether a port is reserved for the copies of a mirror.
    pub(crate) fn is_output(&self, port: PortNo) -> bool {
        self.port(port).is_some_and(|own| own.is_output)
    }

    /// Finds the mirrors that use a port.
    ///
    /// Not inlined, so the code of translations without mirrors stays small.
    #[inline(never)]
    fn port(&self, port: PortNo) -> Option<&PortMirrors> {
        self.ports.get(&port)
    }
}

impl MirrorSet {
    /// Returns the set with one mirror.
    const fn of(index: usize) -> Self {
        Self(1 << index)
    }

    /// Returns whether the set is empty.
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds the mirrors of another set.
    pub(crate) const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Returns the set without the mirrors of another.
    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Takes the first mirror out of the set, and returns its index.
    pub(crate) const fn take_first(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let first = self.0.trailing_zeros();
        self.0 &= self.0 - 1;
        Some(first as usize)
    }
}

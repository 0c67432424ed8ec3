//! Samples packets of a received burst for sFlow and IPFIX collectors.
//!
//! A burst is sampled after its lookup, and before its packets change. The output ports of a
//! sampled packet come from the actions of the entries that it hit. A packet that missed is still
//! to be translated, so this module translates it for its output ports alone. Translations of
//! samples have their own limit in each iteration, so that samples delay no packet.

use shunt_flow::{FieldId, FlowKey};
use shunt_pipeline::{BridgeId, DatapathAction, DatapathPort};

use super::PacketThread;
use crate::sample::{PacketSampler, SampleUse, SampledEgress, SampledOutcome};

/// The cache lookup of a burst before it is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BurstLookup {
    /// The caches were searched for the burst.
    Done,
    /// No lookup: the caches are bypassed, and the tables will decide each packet.
    None,
}

/// The bit in the TCI field of a flow key that is set if the packet has a VLAN tag.
const TAG_PRESENT: u16 = 0x1000;

impl PacketThread {
    /// Sets the sampler of a bridge and protocol; `None` ends the sampling.
    pub(super) fn set_sampler(
        &mut self,
        bridge: BridgeId,
        protocol: SampleUse,
        sampler: Option<Box<PacketSampler>>,
    ) {
        self.samplers.retain(|(own, sampler)| (*own, sampler.bridge()) != (protocol, bridge));
        self.samplers.extend(sampler.map(|own| (protocol, *own)));
    }

    /// Samples the packets of a burst by all samplers of their bridge.
    #[cold]
    pub(super) fn sample_burst(&mut self, input: usize, count: usize, lookup: BurstLookup) {
        let bridge = self.rx_ports.list[input].bridge;
        for place in 0..self.samplers.len() {
            if self.samplers[place].1.bridge() == bridge {
                self.sample_burst_by(place, count, lookup);
            }
        }
    }

    /// Samples the packets of a burst by the sampler with index `place`.
    fn sample_burst_by(&mut self, place: usize, count: usize, lookup: BurstLookup) {
        self.samplers[place].1.count(count);
        let mut from = 0;
        while let Some(position) = self.samplers[place].1.next_position(from, count) {
            from = position + 1;
            if self.samplers[place].1.has_room() {
                let outcome = self.outcome_of(position, lookup);
                let vlan_in = outermost_tci(&self.batch.keys[position]);
                self.samplers[place].1.push(&self.batch.packets[position], vlan_in, outcome);
            }
        }
    }

    /// Returns the output ports and the output VLAN tag of a packet of the burst.
    fn outcome_of(&mut self, position: usize, lookup: BurstLookup) -> SampledOutcome {
        let (key, hits) = (&self.batch.keys[position], &self.batch.hits[position]);
        let mut scan = EgressScan::new(self.batch.packets[position].ingress);
        if lookup == BurstLookup::Done && !hits.is_miss() {
            let entries = self.caches.owner.entries();
            let lists = hits.slots().iter().map(|slot| entries.actions(*slot));
            scan.read(lists.flat_map(|list| list.iter()), &mut key.clone());
        } else if self.sample_translations_left > 0 {
            self.sample_translations_left -= 1;
            let traversal = self.pipeline.translate(key, self.caches.owner.version());
            scan.read(traversal.actions.iter(), &mut key.clone());
        } else {
            scan.is_undecided = true;
        }
        scan.outcome()
    }
}

/// Collects the output ports of action lists.
pub(super) struct EgressScan {
    /// The ingress port, to which a flood does not send.
    ingress: DatapathPort,
    /// The first output port, and the TCI that the packet has at this output.
    first: Option<(DatapathPort, Option<u16>)>,
    /// Number of output ports.
    ports_count: u32,
    /// True if a packet goes to the controller.
    is_punted: bool,
    /// True if a later lookup, after recirculation, decides the output ports.
    is_undecided: bool,
}

impl EgressScan {
    /// Creates a scan that has found no port.
    pub(super) const fn new(ingress: DatapathPort) -> Self {
        Self { ingress, first: None, ports_count: 0, is_punted: false, is_undecided: false }
    }

    /// Adds the output ports of actions on a packet with flow key `key`.
    ///
    /// Copies nest at most 64 deep.
    pub(super) fn read<'a>(
        &mut self,
        actions: impl Iterator<Item = &'a DatapathAction>,
        key: &mut FlowKey,
    ) {
        for action in actions {
            match action {
                DatapathAction::Output { port, unless_ingress: true, .. }
                    if *port == self.ingress => {}
                DatapathAction::Output { port, .. } => self.add(*port, key),
                DatapathAction::OutputIngress { .. } => self.add(self.ingress, key),
                DatapathAction::Punt(_) => self.is_punted = true,
                DatapathAction::Recirculate(_) | DatapathAction::CheckLength { .. } => {
                    self.is_undecided = true;
                }
                DatapathAction::Copy(inner) => self.read_copy(inner, key),
                DatapathAction::Meter(_) | DatapathAction::Sample(_) => {}
                DatapathAction::SetHeader(_)
                | DatapathAction::PushVlan { .. }
                | DatapathAction::PopVlan
                | DatapathAction::PushMpls { .. }
                | DatapathAction::PopMpls { .. } => action.change_key(key),
            }
        }
    }

    /// Scans the actions on a copy of the packet.
    fn read_copy(&mut self, actions: &[DatapathAction], key: &FlowKey) {
        self.read(actions.iter(), &mut key.clone());
    }

    /// Records an output port of the packet.
    fn add(&mut self, port: DatapathPort, key: &FlowKey) {
        self.first.get_or_insert_with(|| (port, outermost_tci(key)));
        self.ports_count += 1;
    }

    /// Returns the output ports of the packet, and its VLAN tag at the first port.
    pub(super) fn outcome(&self) -> SampledOutcome {
        let egress = match (self.first, self.ports_count) {
            _ if self.is_undecided => SampledEgress::Unknown,
            (Some((port, _)), 1) => SampledEgress::Port(port),
            (Some(_), count) => SampledEgress::Ports(count),
            (None, _) if self.is_punted => SampledEgress::Controller,
            (None, _) => SampledEgress::Dropped,
        };
        SampledOutcome { egress, vlan_out: self.first.and_then(|(_, tci)| tci) }
    }
}

/// Returns the TCI of the outermost VLAN tag; `None` for an untagged packet.
fn outermost_tci(key: &FlowKey) -> Option<u16> {
    let tci = u16::try_from(key.field(FieldId::VlanTci)).unwrap_or_default();
    (tci & TAG_PRESENT != 0).then_some(tci)
}

#[cfg(test)]
mod tests {
    use shunt_pipeline::QueueId;

    use super::*;

    /// The ingress port of the packets.
    const INGRESS: DatapathPort = DatapathPort::new(1);

    /// Returns an output to a port.
    fn output(port: u32) -> DatapathAction {
        let port = DatapathPort::new(port);
        DatapathAction::Output {
            port,
            queue: QueueId::DEFAULT,
            unless_ingress: true,
            max_len: None,
        }
    }

    /// Returns the egress of a packet with some actions.
    fn outcome(actions: &[DatapathAction]) -> (SampledEgress, Option<u16>) {
        let mut key = FlowKey::ZERO;
        key.set_field(FieldId::VlanTci, 0x1005);
        let mut scan = EgressScan::new(INGRESS);
        scan.read(actions.iter(), &mut key);
        let SampledOutcome { egress, vlan_out } = scan.outcome();
        (egress, vlan_out)
    }

    #[test]
    fn a_sample_has_the_ports_that_get_packets() {
        let tag = Some(0x1005);
        let port = |port| SampledEgress::Port(DatapathPort::new(port));
        assert_eq!(outcome(&[]), (SampledEgress::Dropped, None));
        assert_eq!(
            outcome(&[output(1)]),
            (SampledEgress::Dropped, None),
            "not to its ingress port"
        );
        assert_eq!(outcome(&[output(2)]), (port(2), tag));
        assert_eq!(outcome(&[output(2), output(1), output(3)]), (SampledEgress::Ports(2), tag));
        let back = DatapathAction::OutputIngress { queue: QueueId::DEFAULT, max_len: None };
        assert_eq!(outcome(&[DatapathAction::PopVlan, back]), (port(1), None));
        let push = DatapathAction::PushVlan { tpid: 0x8100, tci: 0x7009 };
        assert_eq!(outcome(&[push.clone(), output(3)]), (port(3), Some(0x7009)));
        let copy = DatapathAction::Copy([push, output(2)].into());
        assert_eq!(outcome(std::slice::from_ref(&copy)), (port(2), Some(0x7009)));
        // Only the copy loses its tag.
        let both = [DatapathAction::Copy([DatapathAction::PopVlan].into()), output(4)];
        assert_eq!(outcome(&both), (port(4), tag));
        assert_eq!(outcome(&[copy, output(3)]), (SampledEgress::Ports(2), Some(0x7009)));
    }
}

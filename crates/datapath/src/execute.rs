//! The execution of actions: from a decided packet to the transmit queues.
//!
//! A list of actions ends with its last output, punt or recirculation: that one takes the packet
//! itself, those before it take copies, header changes after it concern nobody. So a packet with
//! one output, which is nearly every packet, is moved and never copied.
//!
//! Outputs collect in a batch per port; a full batch is sent at once, the rest at the end of the
//! turn. What a port cannot do itself (checksums, segments) is done as a packet enters its batch.

use std::{iter, sync::Arc};

use rtrb::Producer;
use shunt_flow::{
    FlowKey, Layers, Match,
    layout::word,
    rewrite::{self, ChecksumState},
};
use shunt_pipeline::{DatapathAction, DatapathPort, PacketIn, Punt};

use crate::{
    BURST, DropReason, Packet, Pool, TxQueue,
    capture::Taps,
    command::DATAPATH_PORT_MAX,
    metrics::{PortTraffic, ThreadCounters},
    offload::{self, Unsendable},
    port::Capabilities,
    segment::SegmentError,
};

/// Where packets go: the transmit queues of one thread, and the queue to the controllers.
pub(crate) struct Outputs {
    ports: Vec<TxPort>,
    /// Place in `ports` by number of the port; [`ABSENT`] where there is none.
    places: Vec<u32>,
    packet_ins: Producer<PacketIn>,
    /// Packets to be parsed and looked up again.
    pub(crate) again: Vec<Again>,
    pub(crate) tally: Tally,
    pub(crate) taps: Taps,
}

/// The transmit side of one port.
pub(crate) struct TxPort {
    pub(crate) port: DatapathPort,
    pub(crate) queue: Box<dyn TxQueue>,
    pub(crate) capabilities: Capabilities,
    pub(crate) traffic: Arc<PortTraffic>,
    batch: Vec<Packet>,
}

/// Which of the transmit queues of a thread; good until one is added or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TxPlace(u32);

impl TxPlace {
    #[inline]
    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A packet with what is known of it.
pub(crate) struct Parsed<'a> {
    /// Its fields; header changes are applied to it.
    pub(crate) key: &'a mut FlowKey,
    /// Where its headers lie.
    pub(crate) layers: Layers,
    /// How often it was recirculated.
    pub(crate) depth: u8,
}

/// A packet to be parsed and looked up again.
pub(crate) struct Again {
    pub(crate) packet: Packet,
    /// Bridge and ingress port, and the hidden state that it goes on with.
    pub(crate) bridge: u64,
    pub(crate) in_port: u64,
    pub(crate) hidden: Match,
    pub(crate) depth: u8,
}

/// The ends of packets, counted in plain words and published once a turn.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) received: u64,
    pub(crate) injected: u64,
    pub(crate) copied: u64,
    pub(crate) forwarded: u64,
    pub(crate) sent: u64,
    pub(crate) punted: u64,
    pub(crate) dropped: [u64; DropReason::COUNT],
}

const ABSENT: u32 = u32::MAX;

/// Packets in a batch for which memory is there from the beginning: what is in it when a burst is
/// added, and the burst. Only segments may be more.
pub(crate) const BATCH_MAX: usize = 2 * BURST;

impl Outputs {
    pub(crate) const fn new(packet_ins: Producer<PacketIn>) -> Self {
        Self {
            ports: Vec::new(),
            places: Vec::new(),
            packet_ins,
            again: Vec::new(),
            tally: Tally::new(),
            taps: Taps::new(),
        }
    }

    /// Adds a port; one of the same number is replaced by it and given back.
    pub(crate) fn add(&mut self, port: TxPort) -> Option<TxPort> {
        debug_assert!(port.port.number() <= DATAPATH_PORT_MAX);
        let replaced = self.remove(port.port);
        let number = port.port.number() as usize;
        if self.places.len() <= number {
            self.places.resize(number + 1, ABSENT);
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most DATAPATH_PORT_MAX + 1 ports")]
        {
            self.places[number] = self.ports.len() as u32;
        }
        self.ports.push(port);
        replaced
    }

    /// Takes a port out; its batch must have been flushed.
    pub(crate) fn remove(&mut self, port: DatapathPort) -> Option<TxPort> {
        let place = self.place(port)?;
        let removed = self.ports.swap_remove(place.index());
        debug_assert!(removed.batch.is_empty(), "flushed before");
        self.places[port.number() as usize] = ABSENT;
        if let Some(moved) = self.ports.get(place.index()) {
            self.places[moved.port.number() as usize] = place.0;
        }
        Some(removed)
    }

    /// Where packets to a port go, if it can send this one as it is.
    #[inline]
    pub(crate) fn ready_port(&self, port: DatapathPort, packet: &Packet) -> Option<TxPlace> {
        let place = self.place(port)?;
        self.ports[place.index()].takes(packet).then_some(place)
    }

    /// Sends a packet as it is. It goes straight from the burst that it came in to the batch that
    /// it leaves in: each further hand that it went through would copy it, and wait for the copy
    /// before.
    #[inline]
    pub(crate) fn forward(&mut self, pool: &mut Pool, place: TxPlace, packet: Packet) {
        self.tally.forwarded += 1;
        let tx = &mut self.ports[place.index()];
        tx.batch.push(packet);
        if tx.batch.len() >= BURST {
            tx.send(pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Sends a whole burst as it is: if it can, without touching a packet.
    pub(crate) fn forward_all(
        &mut self,
        pool: &mut Pool,
        place: TxPlace,
        packets: &mut Vec<Packet>,
    ) {
        self.tally.forwarded += packets.len() as u64;
        let tx = &mut self.ports[place.index()];
        if tx.batch.is_empty() {
            std::mem::swap(&mut tx.batch, packets);
        } else {
            tx.batch.append(packets);
        }
        if tx.batch.len() >= BURST {
            tx.send(pool, &mut self.tally, &mut self.taps);
        }
    }

    /// Does to a packet what was decided. `actions` is not empty.
    pub(crate) fn execute(
        &mut self,
        pool: &mut Pool,
        mut packet: Packet,
        actions: &[DatapathAction],
        mut parsed: Parsed<'_>,
    ) {
        let ingress = packet.ingress;
        let Some(last) = actions.iter().rposition(|action| emits(action, ingress)) else {
            let hairpin =
                actions.iter().any(|action| matches!(action, DatapathAction::Output { .. }));
            let reason = if hairpin { DropReason::Hairpin } else { DropReason::Policy };
            return self.drop(pool, packet, reason);
        };
        self.tally.forwarded += u64::from(parsed.depth == 0);
        for action in &actions[..last] {
            if emits(action, ingress) {
                match pool.copy(&packet, max_len(action)) {
                    Some(copy) => {
                        self.tally.copied += 1;
                        self.emit(pool, copy, action, &parsed);
                    }
                    None => self.tally.drop_copy(DropReason::NoBuffer),
                }
            } else if !change(&mut packet, action, &mut parsed) {
                return self.drop(pool, packet, DropReason::Malformed);
            }
        }
        if let Some(length) = max_len(&actions[last]) {
            packet.truncate(length);
        }
        self.emit(pool, packet, &actions[last], &parsed);
    }

    /// Hands a packet to where an action sends it.
    fn emit(
        &mut self,
        pool: &mut Pool,
        packet: Packet,
        action: &DatapathAction,
        parsed: &Parsed<'_>,
    ) {
        match action {
            DatapathAction::Output { port, .. } => self.output(pool, *port, packet),
            DatapathAction::OutputIngress { .. } => self.output(pool, packet.ingress, packet),
            DatapathAction::Punt(punt) => self.punt(pool, packet, punt),
            DatapathAction::Recirculate(hidden) => self.again.push(Again {
                packet,
                bridge: parsed.key.bridge(),
                in_port: parsed.key.words()[usize::from(word::IN_PORT)],
                hidden: hidden.clone(),
                depth: parsed.depth + 1,
            }),
            DatapathAction::SetHeader(_)
            | DatapathAction::PushVlan { .. }
            | DatapathAction::PopVlan => self.drop(pool, packet, DropReason::Malformed),
        }
    }

    fn output(&mut self, pool: &mut Pool, port: DatapathPort, packet: Packet) {
        let Some(place) = self.place(port) else {
            return self.drop(pool, packet, DropReason::NoPort);
        };
        let tx = &mut self.ports[place.index()];
        let before = tx.batch.len();
        match offload::finish(packet, &tx.capabilities, pool, &mut tx.batch) {
            Ok(()) => {
                // Segments are copies of the packet that they were made of, less one. A packet
                // without payload has no segment: it is gone.
                let made = (tx.batch.len() - before) as u64;
                self.tally.copied += made.saturating_sub(1);
                if made == 0 {
                    self.tally.dropped[DropReason::Malformed as usize] += 1;
                }
            }
            Err(refused) => {
                tx.traffic.tx_dropped.add(1);
                self.tally.dropped[reason(refused) as usize] += 1;
            }
        }
        if tx.batch.len() >= BURST {
            tx.send(pool, &mut self.tally, &mut self.taps);
        }
    }

    fn punt(&mut self, pool: &mut Pool, mut packet: Packet, punt: &Arc<Punt>) {
        if self.packet_ins.is_full() {
            return self.drop(pool, packet, DropReason::PacketInFull);
        }
        if packet.offload.needs_checksum {
            // A controller gets the packet as it would be on a wire.
            let (start, offset) = (packet.offload.checksum_start, packet.offload.checksum_offset);
            offload::complete_checksum(packet.frame_mut(), start.into(), offset.into());
        }
        let sent = self
            .packet_ins
            .push(PacketIn { punt: Arc::clone(punt), frame: packet.frame().to_vec() });
        debug_assert!(sent.is_ok(), "only this end fills the ring");
        self.tally.punted += 1;
        pool.give(packet);
    }

    /// Ends a packet.
    pub(crate) fn drop(&mut self, pool: &mut Pool, packet: Packet, reason: DropReason) {
        self.tally.dropped[reason as usize] += 1;
        self.taps.at_drop(std::slice::from_ref(&packet));
        pool.give(packet);
    }

    /// Sends what is in the batches and flushes every queue.
    pub(crate) fn flush(&mut self, pool: &mut Pool) {
        for tx in &mut self.ports {
            if !tx.batch.is_empty() {
                tx.send(pool, &mut self.tally, &mut self.taps);
            }
            tx.queue.flush();
        }
    }

    #[inline]
    fn place(&self, port: DatapathPort) -> Option<TxPlace> {
        let place = *self.places.get(port.number() as usize)?;
        (place != ABSENT).then_some(TxPlace(place))
    }
}

impl TxPort {
    pub(crate) fn new(
        port: DatapathPort,
        queue: Box<dyn TxQueue>,
        capabilities: Capabilities,
        traffic: Arc<PortTraffic>,
    ) -> Self {
        Self { port, queue, capabilities, traffic, batch: Vec::with_capacity(BATCH_MAX) }
    }

    /// Whether a packet can be sent as it is.
    #[inline]
    const fn takes(&self, packet: &Packet) -> bool {
        packet.len() <= self.capabilities.frame_max
            && !packet.offload.needs_checksum
            && !packet.offload.is_segmented()
    }

    fn send(&mut self, pool: &mut Pool, tally: &mut Tally, taps: &mut Taps) {
        let count = self.batch.len();
        let sent = self.queue.tx(&self.batch).min(count);
        taps.at_port(self.port, &self.batch[..sent]);
        let bytes: usize = self.batch[..sent].iter().map(Packet::len).sum();
        self.traffic.tx_packets.add(sent as u64);
        self.traffic.tx_bytes.add(bytes as u64);
        tally.sent += sent as u64;
        if sent < count {
            let refused = (count - sent) as u64;
            self.traffic.tx_dropped.add(refused);
            tally.dropped[DropReason::TxFull as usize] += refused;
            taps.at_drop(&self.batch[sent..]);
        }
        self.batch.drain(..).for_each(|packet| pool.give(packet));
    }
}

impl Tally {
    const fn new() -> Self {
        Self {
            received: 0,
            injected: 0,
            copied: 0,
            forwarded: 0,
            sent: 0,
            punted: 0,
            dropped: [0; DropReason::COUNT],
        }
    }

    /// A copy that could not be made: it counts as made and dropped.
    const fn drop_copy(&mut self, reason: DropReason) {
        self.copied += 1;
        self.dropped[reason as usize] += 1;
    }

    /// Lets everybody see the counts.
    pub(crate) fn publish(&self, counters: &ThreadCounters) {
        counters.received.set(self.received);
        counters.injected.set(self.injected);
        counters.copied.set(self.copied);
        counters.forwarded.set(self.forwarded);
        counters.sent.set(self.sent);
        counters.punted.set(self.punted);
        for (counter, count) in iter::zip(&counters.dropped, self.dropped) {
            counter.set(count);
        }
    }
}

/// Whether an action hands a packet on, rather than changing it or doing nothing.
fn emits(action: &DatapathAction, ingress: DatapathPort) -> bool {
    match action {
        DatapathAction::Output { port, unless_ingress, .. } => {
            !(*unless_ingress && *port == ingress)
        }
        DatapathAction::OutputIngress { .. }
        | DatapathAction::Punt(_)
        | DatapathAction::Recirculate(_) => true,
        DatapathAction::SetHeader(_)
        | DatapathAction::PushVlan { .. }
        | DatapathAction::PopVlan => false,
    }
}

/// The length that an action cuts its packet to.
const fn max_len(action: &DatapathAction) -> Option<usize> {
    match action {
        DatapathAction::Output { max_len: Some(length), .. }
        | DatapathAction::OutputIngress { max_len: Some(length) } => Some(*length as usize),
        _ => None,
    }
}

/// Changes a packet's headers; `false` if they do not allow it. An output that does not happen
/// changes nothing.
fn change(packet: &mut Packet, action: &DatapathAction, parsed: &mut Parsed<'_>) -> bool {
    match action {
        DatapathAction::SetHeader(set) => {
            let checksum = if packet.offload.needs_checksum {
                ChecksumState::Partial
            } else {
                ChecksumState::Complete
            };
            let layers = &parsed.layers;
            rewrite::set_header(packet.frame_mut(), layers, parsed.key, set, checksum);
            true
        }
        DatapathAction::PushVlan { tpid, tci } => {
            if !packet.push_front(VLAN_TAG_LEN) {
                return false;
            }
            rewrite::push_vlan(packet.frame_mut(), *tpid, *tci);
            parsed.layers = parsed.layers.shifted(VLAN_TAG_SHIFT);
            let vlan = &mut parsed.key.words_mut()[usize::from(word::VLAN)];
            *vlan = u64::from(*tpid) << 48 | u64::from(*tci) << 32 | *vlan >> 32;
            true
        }
        DatapathAction::PopVlan => {
            if packet.len() < TAGGED_HEADER_LEN {
                return false;
            }
            rewrite::pop_vlan(packet.frame_mut());
            packet.pop_front(VLAN_TAG_LEN);
            parsed.layers = parsed.layers.shifted(-VLAN_TAG_SHIFT);
            let vlan = &mut parsed.key.words_mut()[usize::from(word::VLAN)];
            *vlan <<= 32;
            true
        }
        DatapathAction::Output { .. }
        | DatapathAction::OutputIngress { .. }
        | DatapathAction::Punt(_)
        | DatapathAction::Recirculate(_) => true,
    }
}

const fn reason(refused: Unsendable) -> DropReason {
    match refused {
        Unsendable::TooLong { .. } => DropReason::TooLong,
        Unsendable::Segment(SegmentError::PoolEmpty) => DropReason::NoBuffer,
        Unsendable::Segment(SegmentError::Protocol | SegmentError::TooMany { .. }) => {
            DropReason::Unsegmented
        }
    }
}

/// Length of a VLAN tag (IEEE 802.1Q, 9.3).
const VLAN_TAG_LEN: usize = 4;
const VLAN_TAG_SHIFT: i16 = 4;

/// Length of an Ethernet header with one VLAN tag.
const TAGGED_HEADER_LEN: usize = 18;

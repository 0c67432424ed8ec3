//! The NetFlow cache: packets and bytes of each flow that a bridge receives.
//!
//! Each packet thread has a [`NetflowCache`] for each bridge that exports flows. The cache counts
//! every IPv4 packet. When a flow ends, or lasts for longer than the active timeout, its counts are
//! put into a bounded ring. The thread never waits: while the ring is full, flows stay in the
//! cache. The megaflow caches do not depend on it, and have no further entries for it.
//!
//! The number of flows is bounded. A new flow that finds no room replaces one of eight other flows:
//! the flow without a packet for the longest time.
//!
//! ```text
//!   count ──► flows ──scan: idle──────────────────► ring, removed
//!               │ ────scan: older than the active timeout ──► ring, counts from zero
//!               └ ────no room for a new flow ─────► ring, removed
//! ```

use std::{fmt, sync::Arc, time::Duration};

use rtrb::{Consumer, Producer, RingBuffer};
use shunt_flow::{FlowKey, hash::KeyHasher, layout::word};
use shunt_pipeline::{BridgeId, Time};

use crate::{metrics::Counter, sample::SampledEgress};

/// Maximum number of flows in the cache of one thread.
pub const NETFLOW_FLOWS_MAX: usize = 65_536;

/// Capacity of the ring between one thread and the reader of the flows.
///
/// The ring holds the flows of 50 ms when 300,000 flows end per second.
const EXPIRED_MAX: usize = 16_384;

/// Number of flows that are compared to find the flow to replace.
const CANDIDATES: usize = 8;

/// Time between two scans for flows that have ended.
const SCAN_PERIOD: Duration = Duration::from_secs(1);

/// Time after which a scan continues that found the ring full.
const RETRY_PERIOD: Duration = Duration::from_millis(50);

/// The position of no flow.
const NONE: u32 = u32::MAX;

/// The Ethernet type of IPv4.
const IPV4: u16 = 0x0800;

/// The fields that the packets of a flow have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetflowKey {
    /// OpenFlow port that received the packets.
    pub in_port: u32,
    /// IPv4 source address of the packets.
    pub source: u32,
    /// IPv4 destination address of the packets.
    pub destination: u32,
    /// Source port, or type of an ICMP message.
    pub source_port: u16,
    /// Destination port, or code of an ICMP message.
    pub destination_port: u16,
    /// IP protocol of the packets.
    pub protocol: u8,
    /// IP type of service, without the bits of ECN.
    pub tos: u8,
}

/// The counts of a flow since its beginning or its last report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCounts {
    /// Number of packets of the flow.
    pub packets: u64,
    /// Number of bytes of the frames.
    pub bytes: u64,
    /// Time of the first packet.
    pub first: Time,
    /// Time of the last packet.
    pub last: Time,
    /// The union of the flags of all TCP segments.
    pub tcp_flags: u8,
}

/// A flow with counts to report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiredFlow {
    /// The fields that the packets have in common.
    pub key: NetflowKey,
    /// The counts to report.
    pub counts: FlowCounts,
    /// The output ports of the packets that the thread knows.
    pub egress: SampledEgress,
}

/// The position of a flow in the cache, valid until the next packet is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlowPosition(usize);

/// Identifies the decision on the output ports of a flow.
///
/// A decision is a set of cache entries, or a version of the tables.
///
/// While the decision stays the same, the output ports stay the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DecisionId(pub(crate) u64);

/// The packet thread's endpoint of a NetFlow cache.
pub struct NetflowCache {
    /// The bridge of the flows.
    bridge: BridgeId,
    /// Maximum number of flows in the NetFlow cache.
    limit: usize,
    /// The flows, without an order.
    flows: Vec<CachedFlow>,
    /// The position of the first flow of each bucket, or [`NONE`].
    ///
    /// The hash table has chained buckets, so it never allocates memory and never moves all flows.
    buckets: Box<[u32]>,
    /// The hash function of keys.
    hasher: KeyHasher,
    /// The ring of flows to report.
    expired: Producer<ExpiredFlow>,
    /// The counters and settings that both endpoints share.
    shared: Arc<NetflowShared>,
    /// Position of the next flow to check, while a scan runs.
    next_checked: usize,
    /// True while expired flows are searched.
    is_scanning: bool,
    /// Time of the next search for expired flows.
    next_scan: Time,
    /// Position of the next flow to compare when room is needed.
    next_candidate: usize,
}

/// The reader's endpoint of a NetFlow cache.
#[derive(Debug)]
pub struct NetflowReceiver {
    /// The ring of expired flows.
    expired: Consumer<ExpiredFlow>,
    /// The counters and settings that both endpoints share.
    shared: Arc<NetflowShared>,
}

/// The values that both endpoints share.
#[derive(Debug, Default)]
struct NetflowShared {
    /// The active timeout: nanoseconds after which a flow that lasts is reported.
    ///
    /// The reader writes this value.
    active_timeout: Counter,
    /// Number of flows in the cache.
    flows: Counter,
    /// Number of flows that were lost because the ring was full.
    lost: Counter,
}

/// A flow of the cache, in the list of its hash bucket.
struct CachedFlow {
    /// The fields that identify the flow.
    key: NetflowKey,
    /// The hash bucket of the flow.
    bucket: u32,
    /// Position of the next flow of the bucket, or [`NONE`].
    next: u32,
    /// The packets, bytes and times of the flow.
    counts: FlowCounts,
    /// The output ports of the flow.
    egress: SampledEgress,
    /// The decision that `egress` belongs to.
    decision: Option<DecisionId>,
}

/// Creates the two endpoints of a cache of at most `limit` flows.
///
/// The limit is from 1 to [`NETFLOW_FLOWS_MAX`].
/// `seed` selects the hash function.
#[must_use]
pub fn netflow_cache(bridge: BridgeId, limit: usize, seed: u64) -> (NetflowCache, NetflowReceiver) {
    let limit = limit.clamp(1, NETFLOW_FLOWS_MAX);
    let (expired, received) = RingBuffer::new(EXPIRED_MAX);
    let shared = Arc::new(NetflowShared::default());
    shared.active_timeout.set(u64::MAX);
    let cache = NetflowCache {
        bridge,
        limit,
        flows: Vec::with_capacity(limit),
        buckets: vec![NONE; limit.next_power_of_two()].into_boxed_slice(),
        hasher: KeyHasher::new(seed),
        expired,
        shared: Arc::clone(&shared),
        next_checked: 0,
        is_scanning: false,
        next_scan: Time::ZERO,
        next_candidate: 0,
    };
    (cache, NetflowReceiver { expired: received, shared })
}

impl NetflowKey {
    /// Returns the NetFlow key of a packet; `None` if the packet is not IPv4.
    #[must_use]
    pub fn of_packet(key: &FlowKey) -> Option<Self> {
        if key.eth_type() != IPV4 {
            return None;
        }
        let words = key.words();
        let [addresses, transport, misc] = [word::IPV4, word::TRANSPORT, word::IP_MISC]
            .map(|word| words[usize::from(word)].to_be_bytes());
        let [a, b, c, d, e, f, g, h] = addresses;
        let [source_high, source_low, destination_high, destination_low, ..] = transport;
        let [.., tos, _, protocol] = misc;
        Some(Self {
            in_port: key.in_port().number(),
            source: u32::from_be_bytes([a, b, c, d]),
            destination: u32::from_be_bytes([e, f, g, h]),
            source_port: u16::from_be_bytes([source_high, source_low]),
            destination_port: u16::from_be_bytes([destination_high, destination_low]),
            protocol,
            tos: tos & !3,
        })
    }

    /// Returns the hash of the fields of a flow.
    fn hash(self, hasher: &KeyHasher) -> u64 {
        let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
        let ports = u32::from(self.source_port) << 16 | u32::from(self.destination_port);
        let rest = u64::from(self.protocol) << 8 | u64::from(self.tos);
        let addresses = pair(self.source, self.destination);
        hasher.hash_array(&[addresses, pair(self.in_port, ports), rest, 0])
    }
}

impl NetflowCache {
    /// Returns the bridge of the flows.
    pub(crate) const fn bridge(&self) -> BridgeId {
        self.bridge
    }

    /// Returns whether no flow is in the cache.
    pub(crate) const fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Returns whether a scan has flows left to check.
    pub(crate) const fn is_scanning(&self) -> bool {
        self.is_scanning
    }

    /// Returns the time until a scan is due.
    pub(crate) fn time_to_scan(&self, now: Time) -> Duration {
        if self.is_empty() { Duration::MAX } else { self.next_scan.since(now) }
    }

    /// Counts a packet of `bytes`, and returns the position of its flow.
    ///
    /// `None` if the packet is not IPv4. The cost is constant.
    pub(crate) fn count(
        &mut self,
        packet: &FlowKey,
        bytes: u64,
        now: Time,
    ) -> Option<FlowPosition> {
        let key = NetflowKey::of_packet(packet)?;
        let position = self.find(key).unwrap_or_else(|| self.insert(key, now));
        let [.., tcp_flags, _, _] = packet.words()[usize::from(word::TRANSPORT)].to_be_bytes();
        let counts = &mut self.flows[position].counts;
        if counts.packets == 0 {
            counts.first = now;
        }
        counts.packets += 1;
        counts.bytes += bytes;
        counts.last = now;
        counts.tcp_flags |= tcp_flags;
        Some(FlowPosition(position))
    }

    /// Returns the position of the flow of a packet that was just counted.
    pub(crate) fn position(&self, packet: &FlowKey) -> Option<FlowPosition> {
        self.find(NetflowKey::of_packet(packet)?).map(FlowPosition)
    }

    /// Returns whether the stored output ports of a flow are from another decision.
    pub(crate) fn is_egress_of_other(&self, flow: FlowPosition, decision: DecisionId) -> bool {
        self.flows[flow.0].decision != Some(decision)
    }

    /// Sets the output ports of a flow, and the decision on them.
    pub(crate) fn set_egress(
        &mut self,
        flow: FlowPosition,
        egress: SampledEgress,
        decision: DecisionId,
    ) {
        let own = &mut self.flows[flow.0];
        (own.egress, own.decision) = (egress, Some(decision));
    }

    /// Checks up to `checks` flows, and reports flows that are idle or last too long.
    ///
    /// A scan of all flows begins every [`SCAN_PERIOD`]. Returns whether there was work.
    pub(crate) fn scan(&mut self, checks: usize, max_idle: Duration, now: Time) -> bool {
        self.shared.flows.set(self.flows.len() as u64);
        if !self.is_scanning {
            if self.flows.is_empty() || now < self.next_scan {
                return false;
            }
            self.is_scanning = true;
        }
        let active_timeout = Duration::from_nanos(self.shared.active_timeout.get());
        for _ in 0..checks {
            let Some(flow) = self.flows.get(self.next_checked) else {
                self.end_scan(now.after(SCAN_PERIOD));
                self.next_checked = 0;
                break;
            };
            let is_idle = now.since(flow.counts.last) > max_idle;
            let is_due = is_idle || now.since(flow.counts.first) >= active_timeout;
            if is_due && !self.report(self.next_checked) {
                self.end_scan(now.after(RETRY_PERIOD));
                break;
            }
            if is_idle {
                // The last flow takes the position, which is checked next.
                self.remove(self.next_checked);
            } else {
                self.next_checked += 1;
            }
        }
        true
    }

    /// Returns the flows that are not reported yet.
    ///
    /// The reader of the ring reports these flows after the flows in the ring.
    pub fn into_flows(self) -> impl Iterator<Item = ExpiredFlow> {
        // The receiver counts the shared number as lost flows if the thread ends with its cache.
        self.shared.flows.set(0);
        let counted = self.flows.into_iter().filter(|own| own.counts.packets > 0);
        counted.map(|CachedFlow { key, counts, egress, .. }| ExpiredFlow { key, counts, egress })
    }

    /// Ends a scan; the next begins at `next`.
    fn end_scan(&mut self, next: Time) {
        (self.is_scanning, self.next_scan) = (false, next);
    }

    /// Returns the bucket of a key.
    #[expect(clippy::cast_possible_truncation, reason = "the mask has fewer than 32 bits")]
    fn bucket(&self, key: NetflowKey) -> u32 {
        (key.hash(&self.hasher) & (self.buckets.len() as u64 - 1)) as u32
    }

    /// Returns the position of the flow with a key.
    fn find(&self, key: NetflowKey) -> Option<usize> {
        let mut position = self.buckets[self.bucket(key) as usize];
        while let Some(flow) = self.flows.get(position as usize) {
            if flow.key == key {
                return Some(position as usize);
            }
            position = flow.next;
        }
        None
    }

    /// Adds a flow without packets, and returns its position.
    fn insert(&mut self, key: NetflowKey, now: Time) -> usize {
        if self.flows.len() >= self.limit {
            self.make_room();
        }
        let (position, bucket) = (self.flows.len(), self.bucket(key));
        #[expect(clippy::cast_possible_truncation, reason = "the limit is less than 2^32")]
        let next = std::mem::replace(&mut self.buckets[bucket as usize], position as u32);
        let counts = FlowCounts { packets: 0, bytes: 0, first: now, last: now, tcp_flags: 0 };
        let egress = SampledEgress::Unknown;
        self.flows.push(CachedFlow { key, bucket, next, counts, egress, decision: None });
        position
    }

    /// Reports and removes the flow that had no packet for the longest time.
    ///
    /// Only [`CANDIDATES`] flows are compared.
    fn make_room(&mut self) {
        let count = self.flows.len();
        let candidates = (0..CANDIDATES).map(|step| (self.next_candidate + step) % count);
        let oldest = candidates.min_by_key(|position| self.flows[*position].counts.last);
        self.next_candidate = (self.next_candidate + CANDIDATES) % count;
        if let Some(oldest) = oldest {
            if !self.report(oldest) {
                self.shared.lost.add(1);
            }
            self.remove(oldest);
        }
    }

    /// Puts the counts of a flow into the ring, and sets them to zero.
    ///
    /// Returns false if the ring is full. A flow without packets is not reported.
    fn report(&mut self, position: usize) -> bool {
        let flow = &mut self.flows[position];
        if flow.counts.packets > 0 {
            let expired = ExpiredFlow { key: flow.key, counts: flow.counts, egress: flow.egress };
            if self.expired.push(expired).is_err() {
                return false;
            }
            (flow.counts.packets, flow.counts.bytes, flow.counts.tcp_flags) = (0, 0, 0);
        }
        true
    }

    /// Removes a flow; the last flow gets its position.
    fn remove(&mut self, position: usize) {
        let removed = &self.flows[position];
        let (bucket, next) = (removed.bucket, removed.next);
        *self.link_to(bucket, position) = next;
        let last = self.flows.len() - 1;
        if last != position {
            let bucket = self.flows[last].bucket;
            #[expect(clippy::cast_possible_truncation, reason = "the limit is less than 2^32")]
            {
                *self.link_to(bucket, last) = position as u32;
            }
        }
        self.flows.swap_remove(position);
    }

    /// Returns the link that leads to a flow in the chain of its bucket.
    fn link_to(&mut self, bucket: u32, position: usize) -> &mut u32 {
        let first = self.buckets[bucket as usize] as usize;
        if first == position {
            return &mut self.buckets[bucket as usize];
        }
        let mut before = first;
        while self.flows[before].next as usize != position {
            before = self.flows[before].next as usize;
        }
        &mut self.flows[before].next
    }
}

impl NetflowReceiver {
    /// Takes the oldest flow of the ring.
    pub fn pop(&mut self) -> Option<ExpiredFlow> {
        self.expired.pop().ok()
    }

    /// Returns the number of flows in the ring.
    #[must_use]
    pub fn len(&self) -> usize {
        self.expired.slots()
    }

    /// Returns whether the ring is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.expired.is_empty()
    }

    /// Sets the active timeout, after which a flow that lasts is reported.
    ///
    /// `None`: never.
    pub fn set_active_timeout(&self, timeout: Option<Duration>) {
        let nanoseconds = timeout.map(|own| u64::try_from(own.as_nanos()).unwrap_or(u64::MAX));
        self.shared.active_timeout.set(nanoseconds.unwrap_or(u64::MAX));
    }

    /// Returns the number of flows in the cache, as of the last scan.
    #[must_use]
    pub fn flows(&self) -> u64 {
        if self.expired.is_abandoned() { 0 } else { self.shared.flows.get() }
    }

    /// Returns the number of ended flows that were not reported.
    ///
    /// A flow is not reported if the ring is full at its end, or if the thread ends with its cache.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let of_cache = if self.expired.is_abandoned() { self.shared.flows.get() } else { 0 };
        self.shared.lost.get() + of_cache
    }
}

impl fmt::Debug for NetflowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetflowCache")
            .field("bridge", &self.bridge)
            .field("flows", &self.flows.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

//! The cache that collects samples of packets into flows.

use std::collections::{BTreeMap, VecDeque};

use super::flow::{FlowEndReason, IpfixCounts, IpfixFlow, IpfixFlowKey};

/// The limits of a flow cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpfixLimits {
    /// Milliseconds after its first sample at which a flow is reported; 0: immediately.
    pub active_timeout_ms: u64,
    /// Maximum number of flows in the cache; 0: each sample is reported immediately.
    pub flows_max: usize,
}

/// Flows that are not reported yet.
#[derive(Clone, Debug, Default)]
pub struct IpfixCache {
    /// The limits of the cache.
    limits: IpfixLimits,
    /// The counts of each flow.
    flows: BTreeMap<IpfixFlowKey, IpfixCounts>,
    /// The keys of all flows with their start times, in the order of these times.
    ages: VecDeque<(u64, IpfixFlowKey)>,
}

impl IpfixCache {
    /// Creates an empty cache.
    #[must_use]
    pub fn new(limits: IpfixLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Returns the number of flows in the cache.
    #[must_use]
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Returns whether no flow is in the cache.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Adds a sample at `now_ms`; returns a flow that must be reported to make space.
    ///
    /// Without a cache, the returned flow is the sample itself. O(log n) for n flows.
    pub fn add(
        &mut self,
        key: IpfixFlowKey,
        sample: IpfixCounts,
        now_ms: u64,
    ) -> Option<IpfixFlow> {
        let IpfixLimits { active_timeout_ms, flows_max } = self.limits;
        if active_timeout_ms == 0 || flows_max == 0 {
            let end_reason = FlowEndReason::ActiveTimeout;
            return Some(IpfixFlow { key, counts: sample, end_reason });
        }
        if let Some(counts) = self.flows.get_mut(&key) {
            counts.add(&sample);
            return None;
        }
        let is_full = self.flows.len() >= flows_max;
        let removed = if is_full { self.pop(FlowEndReason::LackOfResources) } else { None };
        self.flows.insert(key, sample);
        self.ages.push_back((now_ms, key));
        removed
    }

    /// Takes a flow that has reached the active timeout; `None` if no flow has.
    pub fn pop_timed_out(&mut self, now_ms: u64) -> Option<IpfixFlow> {
        let (began, _) = self.ages.front()?;
        let is_due = now_ms.saturating_sub(*began) >= self.limits.active_timeout_ms;
        if is_due { self.pop(FlowEndReason::ActiveTimeout) } else { None }
    }

    /// Takes the flow that began first, and reports it with `end_reason`.
    pub fn pop(&mut self, end_reason: FlowEndReason) -> Option<IpfixFlow> {
        let (_, key) = self.ages.pop_front()?;
        self.flows.remove(&key).map(|counts| IpfixFlow { key, counts, end_reason })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipfix::{FlowDirection, FlowTransport, ObservationPoint};

    /// Returns the key of a flow.
    fn key(number: u32) -> IpfixFlowKey {
        IpfixFlowKey {
            observed_at: ObservationPoint::default(),
            direction: FlowDirection::Ingress,
            ingress: number,
            egress: 0,
            source_mac: [2; 6],
            destination_mac: [4; 6],
            vlan_tci: None,
            ethernet_type: 0x0806,
            network: None,
            transport: FlowTransport::Other,
        }
    }

    /// Returns the counts of one sample.
    const fn sample(now_ms: u64) -> IpfixCounts {
        IpfixCounts {
            packets: 1,
            ip_bytes: 0,
            frame_bytes: 60,
            start_ms: now_ms,
            end_ms: now_ms,
            tcp_flags: 0,
            ttl_min: 0,
            ttl_max: 0,
        }
    }

    #[test]
    fn a_flow_is_reported_after_the_active_timeout() {
        let mut cache = IpfixCache::new(IpfixLimits { active_timeout_ms: 1000, flows_max: 10 });
        assert_eq!(cache.add(key(1), sample(5), 5), None);
        assert_eq!(cache.add(key(2), sample(500), 500), None);
        assert_eq!(cache.add(key(1), sample(900), 900), None);
        assert_eq!(cache.pop_timed_out(1004), None);
        let flow = cache.pop_timed_out(1005).unwrap();
        assert_eq!((flow.key, flow.end_reason), (key(1), FlowEndReason::ActiveTimeout));
        let counts = IpfixCounts { packets: 2, frame_bytes: 120, end_ms: 900, ..sample(5) };
        assert_eq!(flow.counts, counts);
        assert_eq!((cache.pop_timed_out(1005), cache.len()), (None, 1));
        assert_eq!(cache.pop(FlowEndReason::ForcedEnd).unwrap().key, key(2));
        assert!(cache.is_empty() && cache.ages.is_empty());
    }

    #[test]
    fn a_full_cache_reports_its_oldest_flow() {
        let mut cache = IpfixCache::new(IpfixLimits { active_timeout_ms: 1000, flows_max: 2 });
        for (number, now) in [(1, 0), (2, 1), (1, 2)] {
            assert_eq!(cache.add(key(number), sample(now), now), None);
        }
        let flow = cache.add(key(3), sample(3), 3).unwrap();
        assert_eq!((flow.key, flow.counts.packets), (key(1), 2));
        assert_eq!(flow.end_reason, FlowEndReason::LackOfResources);
        assert_eq!((cache.len(), cache.ages.len()), (2, 2));
    }

    #[test]
    fn without_a_cache_each_sample_is_a_flow() {
        for limits in [(0, 10), (1000, 0)] {
            let (active_timeout_ms, flows_max) = limits;
            let mut cache = IpfixCache::new(IpfixLimits { active_timeout_ms, flows_max });
            let flow = cache.add(key(1), sample(3), 3).unwrap();
            assert_eq!((flow.counts, cache.is_empty()), (sample(3), true));
        }
    }
}

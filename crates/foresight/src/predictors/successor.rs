//! The predictor `SuccessorTable`: learns which flows follow other flows.
//!
//! A branch predictor learns which instruction follows which, without knowledge of the program. In
//! the same way, this predictor learns which flow follows a *base flow* to a service. The predictor
//! remembers the relation between the two flows, and not the flows themselves. An example of a
//! relation is "the server of the base flow opens a flow from any port to port 5432 of 10.0.0.9".
//! This relation applies to the base flows of all clients of that server.
//!
//! Each client chooses its own source ports, and some clients increase them by a constant for each
//! flow to a server (RFC 6056, section 3.3.4). [`SourcePortTable`] finds the next source port of a
//! client with constant steps.
//!
//! A host opens a flow because of a flow that it received or opened before, but most flows of a
//! busy host are independent. Relations compete: if several base flows have strong relations to a
//! new flow, only the strongest relation becomes stronger. The other relations become weaker.
//!
//! A [`Relation`] has one [`EndpointRule`] for each address and one [`PortRule`] for each port. The
//! strength of a relation grows up to [`STRENGTH_MAX`] while flows follow the base flows, and
//! decreases when a base flow is not followed. A relation makes forecasts from [`STRENGTH_MIN`] on.
//! A service without a flow for [`AGE_MAX`] is forgotten, with its relations.
//!
//! Relations do not describe coflows, in which many sources send to the same destinations in any
//! order. [`PairTable`] learns them.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use shunt_flow::{FieldId, FlowKey, FlowMask, SparseKey, SparseMask};

use super::{
    due::DueForecasts,
    flow_ends::{FlowEnds, FlowService},
    pairs::pair_table::PairTable,
    scan_hand::ScanHand,
    source_ports::SourcePortTable,
};
use crate::{
    event::{FlowEvent, NewFlow},
    forecast::{Confidence, Forecast, ForecastSource},
    predictor::Predictor,
};

/// Forecasts the flows that followed earlier flows to the same service.
#[derive(Debug)]
pub struct SuccessorTable {
    services: BTreeMap<FlowService, Followers>,
    /// The last flows, each of which a new flow may follow.
    recent: VecDeque<RecentFlow>,
    source_ports: SourcePortTable,
    pairs: PairTable,
    /// The forecasts to return.
    due: DueForecasts,
    capacity: usize,
    /// The last service that was considered for removal, by age or for room.
    hand: ScanHand<FlowService>,
}

/// A recent flow that later flows may follow.
#[derive(Debug)]
struct RecentFlow {
    time: Duration,
    ends: FlowEnds,
    /// The addresses and ports of the reply to the flow.
    reply: FlowEnds,
}

/// A recent flow that a new flow may follow.
#[derive(Clone, Copy, Debug)]
struct BaseFlow {
    time: Duration,
    service: FlowService,
    rule: RelationRule,
}

/// The relations of the flows that follow flows to one service.
#[derive(Debug, Default)]
struct Followers {
    relations: Vec<Relation>,
    used: Duration,
}

/// A learned relation between a base flow and the flow that follows it.
#[derive(Debug)]
struct Relation {
    rule: RelationRule,
    /// The key of the last follower: a template for all other fields.
    template: SparseKey,
    /// The time from the base flow to the follower.
    delay: Duration,
    strength: u8,
    /// True if a flow followed the last base flow.
    has_followed: bool,
}

/// The protocol, addresses and ports of a follower, from its base flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RelationRule {
    protocol: u128,
    source: EndpointRule,
    destination: EndpointRule,
    source_port: PortRule,
    destination_port: PortRule,
}

/// The origin of an address of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndpointRule {
    BaseSource,
    BaseDestination,
    Constant(u128),
}

/// The origin of a port of a follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PortRule {
    /// The source port of the base flow, plus this number.
    BaseSource(u128),
    BaseDestination,
    Constant(u128),
    Unknown,
}

/// Number of recent flows that are remembered.
const RECENT_MAX: usize = 128;

/// Maximum number of base flows that a new flow may follow.
const BASES_MAX: usize = 8;

/// Time after which a flow no longer follows a base flow.
const WINDOW: Duration = Duration::from_secs(1);

/// Time without a flow after which a service is forgotten.
const AGE_MAX: Duration = Duration::from_secs(600);

/// Maximum number of relations of one service.
const RELATIONS_MAX: usize = 16;

/// Maximum number of forecasts that wait to be taken.
const DUE_MAX: usize = 1024;

/// The maximum strength of a relation.
const STRENGTH_MAX: u8 = 3;
/// The least strength of a relation that causes forecasts.
const STRENGTH_MIN: u8 = 2;

/// Greatest difference of two source ports of one client that is learned.
/// The source port of a client often grows by one with each flow.
const PORT_STEP_MAX: u128 = 8;

/// Least ephemeral port.
/// Lower ports belong to services (RFC 6335: system ports), or are constant.
const EPHEMERAL_PORT_MIN: u128 = 32_768;

/// Number of services that are examined to find a service to remove.
const CANDIDATES_MAX: usize = 8;

impl SuccessorTable {
    /// Creates a predictor that remembers up to `capacity` services.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self::with_seed(capacity, 0)
    }

    /// Creates a predictor that remembers up to `capacity` services.
    ///
    /// Sources are found by a hash with `seed`, so an attacker cannot choose sources that collide.
    #[must_use]
    pub fn with_seed(capacity: usize, seed: u64) -> Self {
        Self {
            services: BTreeMap::new(),
            recent: VecDeque::with_capacity(RECENT_MAX),
            source_ports: SourcePortTable::new(capacity),
            pairs: PairTable::new(capacity, seed),
            due: DueForecasts::new(DUE_MAX),
            capacity: capacity.max(1),
            hand: ScanHand::new(),
        }
    }

    /// Learns from a new flow, and forecasts its followers.
    fn start(&mut self, flow: &NewFlow, now: Duration) {
        let Some(ends) = FlowEnds::of(&flow.key) else { return };
        if self.is_reply(&ends) {
            return;
        }
        self.source_ports.observe(&ends);
        self.pairs.observe(&flow.key, &ends, now);
        self.forget_old(now);
        self.learn(flow, &ends, now);
        self.expect_followers(&ends, now);
        if self.recent.len() >= RECENT_MAX {
            self.recent.pop_front();
        }
        let left = flow.egress.as_ref().and_then(FlowEnds::of).unwrap_or(ends);
        self.recent.push_back(RecentFlow { time: now, ends, reply: left.reverse() });
    }

    /// Returns whether a flow is the reply to a recent flow.
    ///
    /// The predictor [`Reply`](super::reply::Reply) forecasts replies. In this table replies would
    /// be half of all flows, and displace the other flows.
    fn is_reply(&self, flow: &FlowEnds) -> bool {
        self.recent.iter().any(|recent| recent.reply == *flow)
    }

    /// Strengthens the relations of recent flows to a new flow.
    ///
    /// If several relations are strong, only the strongest becomes stronger, because a follower
    /// needs only one forecast. The other relations become weaker.
    fn learn(&mut self, flow: &NewFlow, follower: &FlowEnds, now: Duration) {
        let bases = self.bases(follower, now);
        let strength = |base: &&BaseFlow| {
            let followers = self.services.get(&base.service);
            followers.map_or(0, |followers| followers.strength_of(&base.rule))
        };
        // Of equally strong relations this is the one with the newest base flow, because bases are
        // in order of time.
        let strongest = bases.iter().max_by_key(strength).copied();
        if let Some(base) = strongest.filter(|base| strength(&base) >= STRENGTH_MIN) {
            return self.strengthen(base, flow, now);
        }
        bases.into_iter().for_each(|base| self.strengthen(base, flow, now));
    }

    /// Returns the last flows that a new flow may follow, in order of time.
    fn bases(&self, follower: &FlowEnds, now: Duration) -> Vec<BaseFlow> {
        let recent = self.recent.iter().rev();
        let recent = recent.take_while(|recent| now.saturating_sub(recent.time) <= WINDOW);
        let bases = recent.filter_map(|recent| {
            let rule = RelationRule::between(&recent.ends, follower)?;
            Some(BaseFlow { time: recent.time, service: recent.ends.service(), rule })
        });
        let mut bases: Vec<BaseFlow> = bases.take(BASES_MAX).collect();
        bases.reverse();
        bases
    }

    /// Strengthens the relation between a base flow and `flow`.
    fn strengthen(&mut self, base: BaseFlow, flow: &NewFlow, now: Duration) {
        let BaseFlow { time, service, rule } = base;
        if !self.services.contains_key(&service) {
            self.make_room();
        }
        let followers = self.services.entry(service).or_default();
        followers.used = now;
        followers.strengthen(rule, flow, now.saturating_sub(time));
    }

    /// Weakens the relations that were not followed, and forecasts by strong relations.
    fn expect_followers(&mut self, base: &FlowEnds, now: Duration) {
        let Some(followers) = self.services.get_mut(&base.service()) else { return };
        if now.saturating_sub(followers.used) >= AGE_MAX {
            followers.relations.clear();
        }
        followers.used = now;
        for relation in &mut followers.relations {
            if !std::mem::take(&mut relation.has_followed) {
                relation.strength = relation.strength.saturating_sub(1);
            }
            if relation.strength >= STRENGTH_MIN {
                self.due.push(relation.forecast(base, &mut self.source_ports, now));
            }
        }
        followers.relations.retain(|relation| relation.strength > 0);
    }

    /// Removes the next service, if it is old.
    /// Each new flow examines one remembered flow.
    fn forget_old(&mut self, now: Duration) {
        let Some(service) = self.hand.advance(&self.services) else { return };
        let followers = self.services.get(&service);
        if followers.is_some_and(|own| now.saturating_sub(own.used) >= AGE_MAX) {
            self.services.remove(&service);
        }
    }

    /// Removes the least recently used of a few services, if the table is full.
    fn make_room(&mut self) {
        if self.services.len() < self.capacity {
            return;
        }
        let services = &self.services;
        let candidates = (0..CANDIDATES_MAX).filter_map(|_| self.hand.advance(services));
        let used = |service: &FlowService| services.get(service).map(|followers| followers.used);
        if let Some(service) = candidates.min_by_key(used) {
            self.services.remove(&service);
        }
    }
}

impl Followers {
    /// Returns the strength of a relation; 0 if it is not known.
    fn strength_of(&self, rule: &RelationRule) -> u8 {
        let relation = self.relations.iter().find(|relation| relation.rule == *rule);
        relation.map_or(0, |relation| relation.strength)
    }

    /// Strengthens the relation with a rule, or adds it for the weakest.
    fn strengthen(&mut self, rule: RelationRule, flow: &NewFlow, delay: Duration) {
        if let Some(relation) = self.relations.iter_mut().find(|relation| relation.rule == rule) {
            relation.strength = (relation.strength + 1).min(STRENGTH_MAX);
            relation.delay = (relation.delay * 3 + delay) / 4;
            relation.template = SparseKey::from(&flow.key);
            relation.has_followed = true;
            return;
        }
        if self.relations.len() >= RELATIONS_MAX {
            let weakest = (0..).zip(&self.relations).min_by_key(|(_, own)| own.strength);
            let Some((index, weakest)) = weakest else { return };
            if weakest.strength > 1 {
                self.relations[index].strength -= 1;
                return;
            }
            self.relations.remove(index);
        }
        self.relations.push(Relation {
            rule,
            template: SparseKey::from(&flow.key),
            delay,
            strength: 1,
            has_followed: true,
        });
    }
}

impl Relation {
    /// Returns the forecast of the follower of a base flow.
    fn forecast(
        &self,
        base: &FlowEnds,
        source_ports: &mut SourcePortTable,
        now: Duration,
    ) -> Forecast {
        let mut key = FlowKey::from(&self.template);
        let [source, destination] = FlowEnds::address_fields(base.is_ipv4);
        key.set_field(source, self.rule.source.of(base));
        key.set_field(destination, self.rule.destination.of(base));
        let valid_until = now + (self.delay * 4).max(WINDOW);
        let destination_port = self.rule.destination_port.of(base);
        let source_port = self.rule.source_port.of(base).or_else(|| {
            let follower = FlowEnds::of(&key)?;
            let follower = FlowEnds { destination_port: destination_port?, ..follower };
            source_ports.next(&follower, now, now + self.delay * 2)
        });
        let mut known = None;
        for (field, port) in [(FieldId::UdpSrc, source_port), (FieldId::UdpDst, destination_port)] {
            // The ports of all protocols are in the same bits of a key.
            match port {
                Some(port) => key.set_field(field, port),
                None => all_but(field, known.get_or_insert_with(full_mask)),
            }
        }
        Forecast {
            key: SparseKey::from(&key),
            known: known.as_ref().map(SparseMask::from),
            confidence: Confidence::of_percent(25 * self.strength.min(STRENGTH_MAX)),
            made: now,
            valid_until,
            source: ForecastSource::Successor,
        }
    }
}

/// Returns a mask of all bits.
fn full_mask() -> FlowMask {
    let mut mask = FlowMask::EMPTY;
    mask.words_mut().fill(u64::MAX);
    mask
}

/// Removes a field from the known bits.
fn all_but(field: FieldId, known: &mut FlowMask) {
    known.remove_bits(field, field.info().slot.value_max());
}

impl RelationRule {
    /// Returns the relation of two flows.
    ///
    /// The result is `None` if the base flow neither reached nor left the host that is the source
    /// of the follower. A host opens a flow because of a flow that it received or opened before.
    fn between(base: &FlowEnds, follower: &FlowEnds) -> Option<Self> {
        let endpoint = |address| match address {
            address if address == base.destination => EndpointRule::BaseDestination,
            address if address == base.source => EndpointRule::BaseSource,
            address => EndpointRule::Constant(address),
        };
        let (source, destination) = (endpoint(follower.source), endpoint(follower.destination));
        let rule = Self {
            protocol: follower.protocol,
            source,
            destination,
            source_port: PortRule::between(base, source, follower.source_port),
            destination_port: PortRule::between(base, destination, follower.destination_port),
        };
        let is_related = base.bridge == follower.bridge && base.is_ipv4 == follower.is_ipv4;
        let is_cause = !matches!(rule.source, EndpointRule::Constant(_));
        let is_known = rule.destination_port != PortRule::Unknown;
        (is_related && is_cause && is_known).then_some(rule)
    }
}

impl EndpointRule {
    /// Returns the address for a base flow.
    const fn of(self, base: &FlowEnds) -> u128 {
        match self {
            Self::BaseSource => base.source,
            Self::BaseDestination => base.destination,
            Self::Constant(address) => address,
        }
    }
}

impl PortRule {
    /// Returns the relation of a port of a follower to the ports of a base flow.
    ///
    /// `endpoint` is the address with this port. Only the source of the base flow increases its
    /// source port.
    fn between(base: &FlowEnds, endpoint: EndpointRule, port: u128) -> Self {
        let is_counted = endpoint == EndpointRule::BaseSource;
        match port.checked_sub(base.source_port) {
            Some(step) if is_counted && step <= PORT_STEP_MAX => Self::BaseSource(step),
            _ if port == base.destination_port => Self::BaseDestination,
            _ if port < EPHEMERAL_PORT_MIN => Self::Constant(port),
            _ => Self::Unknown,
        }
    }

    /// Returns the port of a follower; `None` if it is unknown.
    fn of(self, base: &FlowEnds) -> Option<u128> {
        match self {
            Self::BaseSource(step) => Some((base.source_port + step) & 0xffff),
            Self::BaseDestination => Some(base.destination_port),
            Self::Constant(port) => Some(port),
            Self::Unknown => None,
        }
    }
}

impl Predictor for SuccessorTable {
    fn source(&self) -> ForecastSource {
        ForecastSource::Successor
    }

    fn observe(&mut self, event: &FlowEvent<'_>, now: Duration) {
        if let FlowEvent::Started(flow) = event {
            self.start(flow, now);
        }
    }

    fn forecast(&mut self, now: Duration, budget: usize, forecasts: &mut Vec<Forecast>) {
        let end = forecasts.len() + budget;
        let pairs = self.pairs.confidence().unwrap_or(Confidence::MAX);
        self.due.take_from(pairs, now, budget, forecasts);
        self.pairs.forecast(now, end - forecasts.len(), forecasts);
        self.due.take(now, end - forecasts.len(), forecasts);
    }

    fn next_due(&self) -> Option<Duration> {
        self.due.next_due().into_iter().chain(self.pairs.next_due()).min()
    }

    fn confidence(&self, _now: Duration) -> Option<Confidence> {
        self.due.confidence().max(self.pairs.confidence())
    }

    fn len(&self) -> usize {
        let pairs = self.pairs.len();
        self.services.len() + self.recent.len() + self.source_ports.len() + self.due.len() + pairs
    }

    fn capacity(&self) -> usize {
        2 * self.capacity + RECENT_MAX + self.due.capacity() + self.pairs.capacity()
    }
}

//! The control group of forecasts: some are withheld, to measure what the others save.
//!
//! An installed entry that packets hit does not prove that the forecast saved a miss. Entries of
//! other traffic may cover the flow meanwhile, as with the shared sub-traversals of a chain. So one
//! of [`WITHHELD_ONE_IN`] forecasts of a predictor is translated but not installed, and the thread
//! counts the withheld flows that miss. The rest of the withheld flows needed no forecast.
//!
//! A withheld forecast is identified by the packets that its entry would have covered: those that
//! agree with the flow in the mask of the megaflow. The first miss of such a packet is the miss that
//! the entry would have saved. A forecast of another flow with the same megaflow is withheld too,
//! otherwise its entry would save this miss. In a chain the entries of a flow are shared, and the
//! flow is identified by its whole key.
//!
//! The group does nothing for packets that hit. A miss costs two hashes while the group has
//! forecasts. The group is bounded ([`CONTROL_MAX`]); further forecasts are installed.

use std::collections::{BTreeMap, VecDeque};

use shunt_flow::{FlowKey, SparseMask, hash::KeyHasher, layout::FLOW_WORDS};
use shunt_foresight::ForecastSource;
use shunt_pipeline::Time;

use super::ForecastAccount;

/// The withheld forecasts of a packet thread.
#[derive(Debug)]
pub(crate) struct ControlGroup {
    /// The hash function of flows.
    hasher: KeyHasher,
    /// The withheld forecasts, by the hash of their flows.
    withheld: BTreeMap<FlowHash, WithheldForecast>,
    /// The hash and the number of each withheld forecast, in the order of examination.
    ///
    /// Forecasts that have ended stay until they are examined.
    order: VecDeque<(FlowHash, u64)>,
    /// Number of forecasts of each source to install before the next one is withheld.
    to_install: [u64; ForecastSource::COUNT],
    /// Number of withheld forecasts so far.
    count: u64,
}

/// The hash of the packets that the entry of a forecast covers.
///
/// Two flows have the same hash with probability 2^-64, and then one miss is miscounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowHash(u64);

/// A forecast that was translated, but not installed.
#[derive(Debug)]
struct WithheldForecast {
    /// The number of the forecast.
    number: u64,
    /// The counters for the outcome.
    account: ForecastAccount,
    /// Time at which an entry without a hit would have expired.
    expires: Time,
}

/// The decision about a translated forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ControlChoice {
    /// The forecast is installed.
    Install,
    /// The forecast is withheld, and joins the control group.
    Withhold,
    /// The forecast is not installed, because another one of the same flow is withheld.
    AlreadyWithheld,
}

/// One of this number of forecasts is withheld, on average.
const WITHHELD_ONE_IN: u64 = 16;

/// Greatest difference of a distance of two withheld forecasts from the mean.
///
/// With equal distances, a regular pattern of flows could always lose the same flow.
const JITTER: u64 = 4;

/// Number of forecasts of each source before the first one is withheld.
const INSTALLED_FIRST: u64 = 24;

/// Maximum number of withheld forecasts.
const CONTROL_MAX: usize = 1024;

impl ControlGroup {
    /// Creates an empty group; `seed` chooses the withheld forecasts.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            hasher: KeyHasher::new(seed),
            withheld: BTreeMap::new(),
            order: VecDeque::new(),
            to_install: [INSTALLED_FIRST; ForecastSource::COUNT],
            count: 0,
        }
    }

    /// Returns the number of withheld forecasts to examine.
    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the hash of the packets that agree with `key` in `mask`.
    ///
    /// Without a mask, they agree in all bits.
    pub(crate) fn hash(&self, key: &FlowKey, mask: Option<&SparseMask>) -> FlowHash {
        let Some(mask) = mask else {
            // Different from the hash under a mask of all bits.
            return FlowHash(!self.hasher.hash(key.words()));
        };
        let mut words = [0; FLOW_WORDS];
        for (index, bits) in mask.iter() {
            words[index] = key.words()[index] & bits;
        }
        FlowHash(self.hasher.hash(&words))
    }

    /// Decides about a translated forecast, and counts it if it is installed.
    pub(crate) fn choose(&mut self, source: ForecastSource, flow: FlowHash) -> ControlChoice {
        // Announced flows and a trace are certain, and no governor judges them.
        if !source.is_predictor() || source == ForecastSource::Oracle {
            return ControlChoice::Install;
        }
        if self.withheld.contains_key(&flow) {
            return ControlChoice::AlreadyWithheld;
        }
        let to_install = &mut self.to_install[source as usize];
        if *to_install > 0 {
            *to_install -= 1;
            return ControlChoice::Install;
        }
        if self.order.len() >= CONTROL_MAX {
            ControlChoice::Install
        } else {
            ControlChoice::Withhold
        }
    }

    /// Adds a forecast for which [`Self::choose`] returned [`ControlChoice::Withhold`].
    ///
    /// `expires` is the time at which its entry would have expired.
    pub(crate) fn add(&mut self, flow: FlowHash, account: ForecastAccount, expires: Time) {
        account.withhold();
        self.count += 1;
        let number = self.count;
        let jitter = self.hasher.hash(&[number]) % (2 * JITTER + 1);
        self.to_install[account.source as usize] = WITHHELD_ONE_IN - JITTER - 1 + jitter;
        self.withheld.insert(flow, WithheldForecast { number, account, expires });
        self.order.push_back((flow, number));
    }

    /// Counts the miss of a withheld flow, if the packet that missed belongs to one.
    ///
    /// `mask` has the bits that the traversal of the packet consulted. In a chain these are the bits
    /// of a sub-traversal, which identify no withheld flow.
    pub(crate) fn note_miss(&mut self, key: &FlowKey, mask: Option<&SparseMask>) {
        if self.withheld.is_empty() {
            return;
        }
        for hash in [self.hash(key, None), self.hash(key, mask)] {
            if let Some(withheld) = self.withheld.remove(&hash) {
                withheld.account.end_withheld(true);
            }
        }
    }

    /// Examines the next withheld forecast; returns whether it has ended.
    pub(crate) fn settle_next(&mut self, now: Time) -> bool {
        let Some((flow, number)) = self.order.pop_front() else { return false };
        let Some(withheld) = self.withheld.get(&flow).filter(|own| own.number == number) else {
            return true;
        };
        if now <= withheld.expires {
            self.order.push_back((flow, number));
            return false;
        }
        withheld.account.end_withheld(false);
        self.withheld.remove(&flow);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use shunt_flow::{FieldId, FlowMask, testing::UdpFlow};
    use shunt_foresight::OutcomeCounts;

    use super::*;
    use crate::forecast::ForecastCounters;

    /// The predictor of all forecasts.
    const SOURCE: ForecastSource = ForecastSource::Successor;

    /// Returns a time in seconds.
    fn seconds(count: u64) -> Time {
        Time::ZERO.after(Duration::from_secs(count))
    }

    /// Returns a flow from a source port.
    fn flow(port: u16) -> FlowKey {
        UdpFlow { in_port: 1, source: (1, port), destination: (2, 53) }.key()
    }

    /// Returns the mask of the source port alone.
    fn port_mask() -> SparseMask {
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::UdpSrc, 0xffff);
        SparseMask::from(&mask)
    }

    /// A group with its counters.
    struct Group {
        group: ControlGroup,
        counters: Arc<ForecastCounters>,
    }

    impl Group {
        /// Returns a group that withholds the next new forecast.
        fn new() -> Self {
            let mut group = ControlGroup::new(1);
            group.to_install = [0; ForecastSource::COUNT];
            Self { group, counters: Arc::default() }
        }

        /// Handles a forecast, as the packet thread does.
        fn forecast(&mut self, hash: FlowHash, expires: Time) -> ControlChoice {
            let account = ForecastAccount::open(&self.counters, SOURCE, None);
            let choice = self.group.choose(SOURCE, hash);
            if choice == ControlChoice::Withhold {
                self.group.add(hash, account, expires);
            }
            choice
        }

        fn counts(&self) -> OutcomeCounts {
            self.counters.of(SOURCE).counts()
        }
    }

    #[test]
    fn one_forecast_of_sixteen_is_withheld() {
        let mut own = Group { group: ControlGroup::new(1), counters: Arc::default() };
        let mut positions = Vec::new();
        for port in 0..16_000 {
            let hash = own.group.hash(&flow(port), None);
            if own.forecast(hash, seconds(1)) == ControlChoice::Withhold {
                positions.push(u64::from(port));
            }
        }
        assert_eq!(positions[0], INSTALLED_FIRST);
        assert!((980..=1020).contains(&positions.len()), "{}", positions.len());
        let distances = positions.windows(2).map(|pair| pair[1] - pair[0]);
        let [least, most] = [distances.clone().min(), distances.max()].map(Option::unwrap);
        assert_eq!((least, most), (WITHHELD_ONE_IN - JITTER, WITHHELD_ONE_IN + JITTER));
    }

    #[test]
    fn announced_flows_are_never_withheld() {
        let mut own = Group::new();
        let hash = own.group.hash(&flow(1), None);
        for source in [ForecastSource::Announced, ForecastSource::Preload, ForecastSource::Oracle] {
            assert_eq!(own.group.choose(source, hash), ControlChoice::Install);
        }
        assert_eq!(own.group.choose(SOURCE, hash), ControlChoice::Withhold);
    }

    /// The entry of the forecast would have covered all packets with the source port.
    #[test]
    fn the_first_miss_under_the_mask_counts() {
        let mut own = Group::new();
        let mask = port_mask();
        let hash = own.group.hash(&flow(1), Some(&mask));
        assert_eq!(own.forecast(hash, seconds(1)), ControlChoice::Withhold);
        assert_eq!(own.forecast(hash, seconds(1)), ControlChoice::AlreadyWithheld);
        let mut other = flow(1);
        other.set_field(FieldId::Ipv4Dst, 77);
        own.group.note_miss(&flow(2), Some(&mask));
        assert_eq!(own.counts().arrived, 0);
        own.group.note_miss(&other, Some(&mask));
        own.group.note_miss(&other, Some(&mask));
        assert_eq!((own.counts().withheld, own.counts().arrived, own.counts().unneeded), (1, 1, 0));
        // An ended forecast is examined once more.
        assert!(own.group.settle_next(seconds(0)));
        assert_eq!(own.group.len(), 0);
        assert_eq!(own.counts().unneeded, 0);
    }

    #[test]
    fn a_withheld_flow_without_a_miss_is_unneeded() {
        let mut own = Group::new();
        let hash = own.group.hash(&flow(1), None);
        own.forecast(hash, seconds(5));
        assert!(!own.group.settle_next(seconds(5)));
        assert!(own.group.settle_next(seconds(6)));
        assert_eq!((own.counts().arrived, own.counts().unneeded, own.group.len()), (0, 1, 0));
    }

    /// The model is a list of the withheld flows.
    #[test]
    fn the_group_equals_a_list_of_flows() {
        let mut own = Group::new();
        let (mut model, mut random) = (Vec::<(u16, Time)>::new(), 1_u64);
        let (mut arrived, mut unneeded) = (0, 0);
        for step in 0..20_000_u64 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let [port, choice, ..] = random.to_be_bytes();
            let (port, now) = (u16::from(port), seconds(step / 8));
            let hash = own.group.hash(&flow(port), None);
            let position = model.iter().position(|(withheld, _)| *withheld == port);
            if choice < 100 {
                own.group.to_install = [0; ForecastSource::COUNT];
                let choice = own.forecast(hash, now.after(Duration::from_secs(9)));
                assert_eq!(choice == ControlChoice::Withhold, position.is_none(), "{step}");
                if position.is_none() {
                    model.push((port, now.after(Duration::from_secs(9))));
                }
            } else {
                own.group.note_miss(&flow(port), None);
                if let Some(position) = position {
                    model.remove(position);
                    arrived += 1;
                }
            }
            for _ in 0..own.group.len() {
                own.group.settle_next(now);
            }
            let before = model.len();
            model.retain(|(_, expires)| now <= *expires);
            unneeded += (before - model.len()) as u64;
            let counts = own.counts();
            assert_eq!((counts.arrived, counts.unneeded), (arrived, unneeded), "{step}");
            assert_eq!(own.group.withheld.len(), model.len(), "{step}");
        }
        assert!(arrived > 100 && unneeded > 100, "{arrived} {unneeded}");
    }
}

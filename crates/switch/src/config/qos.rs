//! The configuration of the quality of service (QoS) of sent packets.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shunt_datapath::{
    egress::htb::{HtbOptions, HtbQueue},
    packet::egress_policer::EgressPolicing,
};
use shunt_pipeline::QueueId;

/// The QoS of a port (table `QoS` of `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QosOptions {
    /// Type of the QoS.
    #[serde(rename = "type")]
    pub kind: QosType,
    /// Committed information rate of an `egress-policer`, in bytes per second.
    #[serde(default)]
    pub cir: u64,
    /// Committed burst size of an `egress-policer`, in bytes.
    #[serde(default)]
    pub cbs: u64,
    /// Rate of all queues of `linux-htb` together, in bits per second.
    ///
    /// 0: the speed of the link, or 10 Gbit/s if the speed is not known.
    #[serde(default)]
    pub max_rate: u64,
    /// The queues of `linux-htb`.
    #[serde(default)]
    pub queues: Vec<QueueOptions>,
}

/// An egress queue of a port (table `Queue` of `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QueueOptions {
    /// The queue number in `set_queue`; packets without a queue use queue 0.
    pub id: u32,
    /// Rate that the queue gets before any queue borrows, in bits per second.
    #[serde(default)]
    pub min_rate: u64,
    /// Rate that the queue never exceeds, in bits per second; 0: the rate of the port.
    #[serde(default)]
    pub max_rate: u64,
    /// Number of bits that an idle queue may send in a burst.
    ///
    /// The burst is at least the number of bits that the rate gives in a millisecond.
    #[serde(default)]
    pub burst: u64,
    /// Priority for bandwidth that the minimum rates leave: lowest value borrows first.
    #[serde(default)]
    pub priority: u32,
}

/// The type of a QoS, with the names of Open vSwitch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QosType {
    /// Sends every packet immediately, without a limit.
    LinuxNoop,
    /// Drops the packets above a rate.
    EgressPolicer,
    /// Delays the packets above a rate, in queues.
    LinuxHtb,
}

impl QosOptions {
    /// The largest rate in bytes per second, and the largest burst in bytes.
    const AMOUNT_MAX: u64 = 1 << 40;

    /// The largest rate in bits per second, and the largest burst in bits.
    const BITS_MAX: u64 = Self::AMOUNT_MAX * 8;

    /// The rate of a port if the speed of its link is unknown, in bits per second.
    ///
    /// Open vSwitch has the same default (`linux-htb` in `ovs-vswitchd.conf.db(5)`).
    const MAX_RATE_DEFAULT: u64 = 10_000_000_000;

    /// The least link speed that sets the rate of a port, in bits per second.
    ///
    /// Older kernels report 10 Mbit/s for each TAP device, although it has no physical link.
    const LINK_RATE_MIN: u64 = 100_000_000;

    /// Number of queues that a port can have in Open vSwitch.
    const QUEUE_IDS: u32 = 61_440;

    /// Creates the QoS of a type, with default options.
    #[must_use]
    pub const fn new(kind: QosType) -> Self {
        Self { kind, cir: 0, cbs: 0, max_rate: 0, queues: Vec::new() }
    }

    /// Checks that the type of the QoS has its keys, and no others.
    ///
    /// # Errors
    ///
    /// The reason why a key is not allowed, is missing or has a wrong value.
    pub fn check(&self) -> Result<(), &'static str> {
        let amounts = [self.cir, self.cbs];
        match self.kind {
            QosType::LinuxNoop | QosType::LinuxHtb if amounts != [0, 0] => {
                Err("only a qos of type egress-policer has `cir` and `cbs`: remove them")
            }
            QosType::LinuxNoop | QosType::EgressPolicer
                if self.max_rate > 0 || !self.queues.is_empty() =>
            {
                Err("only a qos of type linux-htb has `max_rate` and `queues`: remove them")
            }
            QosType::EgressPolicer if amounts.iter().any(|own| !is_amount(*own)) => {
                Err("an egress-policer needs `cir`, its bytes per second, and `cbs`, its burst in \
                 bytes: from 1 to 1099511627776")
            }
            QosType::LinuxHtb => self.check_queues(),
            QosType::LinuxNoop | QosType::EgressPolicer => Ok(()),
        }
    }

    /// Returns the rule that the queues break, if they break one.
    fn check_queues(&self) -> Result<(), &'static str> {
        let has_default = self.queues.iter().any(|queue| queue.id == 0);
        if self.queues.len() + usize::from(!has_default) > HtbOptions::QUEUES_MAX {
            return Err("a port has at most 64 queues, with queue 0: remove some");
        }
        let ids: BTreeMap<u32, ()> = self.queues.iter().map(|queue| (queue.id, ())).collect();
        if ids.len() < self.queues.len() {
            return Err("two queues have the same `id`: give each its own");
        }
        if self.queues.iter().any(|queue| queue.id >= Self::QUEUE_IDS) {
            return Err("the `id` of a queue must be from 0 to 61439");
        }
        let bits = |queue: &QueueOptions| [queue.min_rate, queue.max_rate, queue.burst];
        let mut all = self.queues.iter().flat_map(bits).chain([self.max_rate]);
        if all.any(|bits| bits > Self::BITS_MAX) {
            return Err("rates and bursts of linux-htb must be at most 8796093022208 bits");
        }
        let is_inverted =
            |queue: &QueueOptions| queue.max_rate > 0 && queue.min_rate > queue.max_rate;
        if self.queues.iter().any(is_inverted) {
            return Err("the `min_rate` of a queue must be at most its `max_rate`");
        }
        Ok(())
    }

    /// Returns the limits of an `egress-policer`; `None` for other types.
    #[must_use]
    pub const fn egress_policing(&self) -> Option<EgressPolicing> {
        match self.kind {
            QosType::EgressPolicer => Some(EgressPolicing { cir: self.cir, cbs: self.cbs }),
            QosType::LinuxNoop | QosType::LinuxHtb => None,
        }
    }

    /// Returns the rates and queues of `linux-htb`; `None` for other types.
    ///
    /// `link_bps` is the speed of the link in bits per second, if it is known.
    #[must_use]
    pub fn htb(&self, link_bps: Option<u64>) -> Option<HtbOptions> {
        if self.kind != QosType::LinuxHtb {
            return None;
        }
        let of_link = link_bps.filter(|rate| *rate >= Self::LINK_RATE_MIN);
        let max_rate = non_zero_or(self.max_rate, of_link.unwrap_or(Self::MAX_RATE_DEFAULT));
        let queue = |own: &QueueOptions| HtbQueue {
            min_rate: own.min_rate.min(max_rate),
            max_rate: non_zero_or(own.max_rate, max_rate),
            burst: own.burst,
            priority: own.priority,
        };
        let mut queues: BTreeMap<_, _> =
            self.queues.iter().map(|own| (QueueId::new(own.id), queue(own))).collect();
        queues.entry(QueueId::DEFAULT).or_insert(HtbQueue { max_rate, ..HtbQueue::DEFAULT });
        Some(HtbOptions { max_rate, queues })
    }
}

impl QosType {
    /// All types of QoS.
    pub const ALL: [Self; 3] = [Self::LinuxHtb, Self::EgressPolicer, Self::LinuxNoop];

    /// Returns the name of the type in the configuration file and in Open vSwitch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LinuxNoop => "linux-noop",
            Self::EgressPolicer => "egress-policer",
            Self::LinuxHtb => "linux-htb",
        }
    }
}

/// Returns whether a rate or burst is in the allowed range.
const fn is_amount(amount: u64) -> bool {
    amount > 0 && amount <= QosOptions::AMOUNT_MAX
}

/// Returns a value, or a default for zero.
const fn non_zero_or(value: u64, default: u64) -> u64 {
    if value == 0 { default } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_qos_type_has_its_own_keys() {
        let check = |kind, cir, cbs| QosOptions { cir, cbs, ..QosOptions::new(kind) }.check();
        assert_eq!(check(QosType::EgressPolicer, 1, 1 << 40), Ok(()));
        assert_eq!(check(QosType::LinuxNoop, 0, 0), Ok(()));
        for (cir, cbs) in [(0, 1), (1, 0), (1, (1 << 40) + 1)] {
            let problem = check(QosType::EgressPolicer, cir, cbs).unwrap_err();
            assert!(problem.contains("needs `cir`"), "{problem}");
        }
        for kind in [QosType::LinuxNoop, QosType::LinuxHtb] {
            assert!(check(kind, 1, 0).unwrap_err().contains("has `cir`"));
        }
        let rate = |kind| QosOptions { max_rate: 1, ..QosOptions::new(kind) }.check();
        assert_eq!(rate(QosType::LinuxHtb), Ok(()));
        assert!(rate(QosType::LinuxNoop).unwrap_err().contains("only a qos of type linux-htb"));
    }

    #[test]
    fn invalid_qos_queues_are_refused() {
        let queue = |id| QueueOptions { id, ..QueueOptions::default() };
        let check = |queues: Vec<QueueOptions>| {
            QosOptions { queues, ..QosOptions::new(QosType::LinuxHtb) }.check().err()
        };
        assert_eq!(check((0..64).map(queue).collect()), None);
        let inverted = QueueOptions { min_rate: 2, max_rate: 1, ..queue(1) };
        let cases = [
            ((1..65).map(queue).collect(), "at most 64 queues"),
            (vec![queue(5), queue(5)], "the same `id`"),
            (vec![queue(61_440)], "from 0 to 61439"),
            (vec![QueueOptions { burst: u64::MAX, ..queue(1) }], "at most 8796093022208"),
            (vec![inverted], "at most its `max_rate`"),
        ];
        for (queues, expected) in cases {
            let problem = check(queues).unwrap_or_default();
            assert!(problem.contains(expected), "{problem}");
        }
    }

    #[test]
    fn queues_without_rates_get_the_port_rate() {
        let queue = QueueOptions { id: 3, min_rate: 5, ..QueueOptions::default() };
        let mut options = QosOptions { queues: vec![queue], ..QosOptions::new(QosType::LinuxHtb) };
        for (max_rate, link_bps, expected) in [
            (0, None, 10_000_000_000),
            (0, Some(1_000_000_000), 1_000_000_000),
            (0, Some(10_000_000), 10_000_000_000),
            (1000, Some(1_000_000_000), 1000),
        ] {
            options.max_rate = max_rate;
            let htb = options.htb(link_bps).unwrap();
            assert_eq!(htb.max_rate, expected);
            let rates = htb.queues.values().map(|queue| (queue.min_rate, queue.max_rate));
            let default_rate = HtbQueue::DEFAULT.min_rate;
            assert_eq!(rates.collect::<Vec<_>>(), [(default_rate, expected), (5, expected)]);
        }
    }

    #[test]
    fn a_qos_type_is_serialised_by_name() {
        for kind in QosType::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}

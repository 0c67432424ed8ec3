//! The quality of service of the packets that a port sends.

use serde::{Deserialize, Serialize};
use shunt_datapath::packet::egress_policer::EgressPolicing;

/// The quality of service of a port (table `QoS` of `ovs-vswitchd.conf.db(5)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct QosOptions {
    /// Type of the quality of service.
    #[serde(rename = "type")]
    pub kind: QosType,
    /// Committed information rate of an `egress-policer`, in bytes per second.
    #[serde(default)]
    pub cir: u64,
    /// Committed burst size of an `egress-policer`, in bytes.
    #[serde(default)]
    pub cbs: u64,
}

/// The type of a quality of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum QosType {
    /// Sends every packet at once.
    LinuxNoop,
    /// Drops the packets above a rate.
    EgressPolicer,
}

impl QosOptions {
    /// The largest rate in bytes per second, and the largest burst in bytes.
    const AMOUNT_MAX: u64 = 1 << 40;

    /// Checks that the type has its keys, and no others.
    ///
    /// # Errors
    ///
    /// The reason why it does not.
    pub fn check(&self) -> Result<(), &'static str> {
        let amounts = [self.cir, self.cbs];
        match self.kind {
            QosType::LinuxNoop if amounts != [0, 0] => {
                Err("a qos of type linux-noop has no `cir` and no `cbs`: remove them")
            }
            QosType::EgressPolicer if amounts.iter().any(|own| !is_amount(*own)) => {
                Err("an egress-policer needs `cir`, its bytes per second, and `cbs`, its burst in \
                 bytes: from 1 to 1099511627776")
            }
            QosType::LinuxNoop | QosType::EgressPolicer => Ok(()),
        }
    }

    /// Returns the limits of an `egress-policer`.
    #[must_use]
    pub const fn egress_policing(&self) -> Option<EgressPolicing> {
        match self.kind {
            QosType::LinuxNoop => None,
            QosType::EgressPolicer => Some(EgressPolicing { cir: self.cir, cbs: self.cbs }),
        }
    }
}

impl QosType {
    /// All types.
    pub const ALL: [Self; 2] = [Self::EgressPolicer, Self::LinuxNoop];

    /// Returns the name in the configuration file and in Open vSwitch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LinuxNoop => "linux-noop",
            Self::EgressPolicer => "egress-policer",
        }
    }
}

const fn is_amount(amount: u64) -> bool {
    amount > 0 && amount <= QosOptions::AMOUNT_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_own_keys() {
        let check = |kind, cir, cbs| QosOptions { kind, cir, cbs }.check();
        assert_eq!(check(QosType::EgressPolicer, 1, 1 << 40), Ok(()));
        assert_eq!(check(QosType::LinuxNoop, 0, 0), Ok(()));
        for (cir, cbs) in [(0, 1), (1, 0), (1, (1 << 40) + 1)] {
            let problem = check(QosType::EgressPolicer, cir, cbs).unwrap_err();
            assert!(problem.contains("needs `cir`"), "{problem}");
        }
        assert!(check(QosType::LinuxNoop, 1, 0).unwrap_err().contains("has no `cir`"));
    }

    #[test]
    fn a_type_has_the_same_name_in_a_file() {
        for kind in QosType::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        }
    }
}

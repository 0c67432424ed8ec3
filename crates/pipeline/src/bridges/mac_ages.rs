//! The order in which a full MAC table evicts its addresses.
//!
//! The oldest address of the port with the most addresses goes first. So a port that forges
//! addresses evicts its own, and the other ports keep theirs.
//!
//! Hits refresh entries without a lock and without an update of this index. So an address may be
//! listed with an old time; it moves to its correct place when it becomes the oldest. Every
//! operation is logarithmic, except for one such move for each address that was seen again since.

use std::collections::{BTreeMap, BTreeSet};

use shunt_flow::PortNo;

use super::mac_table::MacKey;
use crate::time::Time;

/// The addresses of a MAC table, by port and age.
#[derive(Default)]
pub(crate) struct Ages {
    /// The key of each address in `by_port`.
    mac_keys: BTreeMap<MacKey, (PortNo, Time)>,
    by_port: BTreeMap<PortNo, BTreeSet<(Time, MacKey)>>,
    /// Number of addresses of each port.
    by_count: BTreeSet<(usize, PortNo)>,
}

impl Ages {
    /// Returns the number of addresses.
    pub(crate) fn len(&self) -> usize {
        self.mac_keys.len()
    }

    /// Adds a new address, seen on a port at this time.
    pub(crate) fn add(&mut self, mac_key: MacKey, port: PortNo, seen: Time) {
        debug_assert!(!self.mac_keys.contains_key(&mac_key), "removed before");
        self.mac_keys.insert(mac_key, (port, seen));
        let ages = self.by_port.entry(port).or_default();
        self.by_count.remove(&(ages.len(), port));
        ages.insert((seen, mac_key));
        self.by_count.insert((ages.len(), port));
    }

    /// Removes an address, if it is listed.
    pub(crate) fn remove(&mut self, mac_key: MacKey) {
        let Some((port, seen)) = self.mac_keys.remove(&mac_key) else { return };
        let Some(ages) = self.by_port.get_mut(&port) else { return };
        self.by_count.remove(&(ages.len(), port));
        ages.remove(&(seen, mac_key));
        if ages.is_empty() {
            self.by_port.remove(&port);
        } else {
            self.by_count.insert((ages.len(), port));
        }
    }

    /// Returns the oldest address of the port with the most addresses.
    ///
    /// `seen` returns the current time of an address.
    pub(crate) fn oldest(&mut self, seen: impl Fn(MacKey) -> Option<Time>) -> Option<MacKey> {
        let (_, port) = *self.by_count.last()?;
        let ages = self.by_port.get_mut(&port)?;
        loop {
            let (known, mac_key) = *ages.first()?;
            let seen = seen(mac_key).unwrap_or(known);
            if seen <= known {
                return Some(mac_key);
            }
            ages.pop_first();
            ages.insert((seen, mac_key));
            self.mac_keys.insert(mac_key, (port, seen));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    /// An operation: an address is learned, seen again or removed, or the table is
    /// full.
    #[derive(Clone, Debug)]
    enum MacAgesOp {
        Learn(u8, u32),
        See(u8),
        Remove(u8),
        Forget,
    }

    fn op() -> impl Strategy<Value = MacAgesOp> {
        prop_oneof![
            4 => (0..20u8, 1..4u32).prop_map(|(mac, port)| MacAgesOp::Learn(mac, port)),
            3 => (0..20u8).prop_map(MacAgesOp::See),
            1 => (0..20u8).prop_map(MacAgesOp::Remove),
            2 => Just(MacAgesOp::Forget),
        ]
    }

    const fn mac_key(mac: u8) -> MacKey {
        (0, [0, 0, 0, 0, 0, mac])
    }

    /// Returns the address that `oldest` must return, by a scan of all addresses.
    fn slow_oldest(seen: &BTreeMap<u8, (u32, Time)>) -> Option<u8> {
        let count = |port| seen.values().filter(|(own, _)| *own == port).count();
        let port = seen.values().map(|(port, _)| (count(*port), *port)).max()?.1;
        let own = seen.iter().filter(|(_, (own, _))| *own == port);
        own.min_by_key(|(mac, (_, seen))| (*seen, **mac)).map(|(mac, _)| *mac)
    }

    proptest! {
        #[test]
        fn the_largest_port_loses_its_oldest_address(
            ops in prop::collection::vec(op(), 1..100),
        ) {
            let mut ages = Ages::default();
            let mut seen = BTreeMap::new();
            for (second, op) in (0..).zip(ops) {
                let now = Time::ZERO.after(Duration::from_secs(second));
                match op {
                    MacAgesOp::Learn(mac, port) => {
                        ages.remove(mac_key(mac));
                        ages.add(mac_key(mac), PortNo::new(port), now);
                        seen.insert(mac, (port, now));
                    }
                    MacAgesOp::See(mac) => {
                        seen.entry(mac).and_modify(|(_, seen)| *seen = now);
                    }
                    MacAgesOp::Remove(mac) => {
                        ages.remove(mac_key(mac));
                        seen.remove(&mac);
                    }
                    MacAgesOp::Forget => {
                        let by_key = |mac_key: MacKey| seen.get(&mac_key.1[5]).map(|entry| entry.1);
                        let oldest = ages.oldest(by_key);
                        prop_assert_eq!(oldest, slow_oldest(&seen).map(mac_key));
                        if let Some(oldest) = oldest {
                            ages.remove(oldest);
                            seen.remove(&oldest.1[5]);
                        }
                    }
                }
                prop_assert_eq!(ages.len(), seen.len());
            }
        }
    }
}

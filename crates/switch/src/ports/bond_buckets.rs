//! The buckets of a balancing bond (`balance-slb`, `balance-tcp`), with their members and loads.
//!
//! Each bucket is assigned to an enabled member, and keeps this member as long as it is enabled.
//! When another member is enabled, only buckets that have sent nothing are assigned again. The load
//! of a bucket is the number of bytes that it has sent. Every `rebalance_interval_ms`, buckets move
//! one by one from the member with the highest load to the member with the lowest, while this
//! reduces the difference. After the moves, all loads are halved, so older traffic counts less.

use std::{array, collections::BTreeMap, time::Duration};

use shunt_flow::PortNo;
use shunt_pipeline::{BondBalance, BondCounters, BondHash, Time};

/// The buckets of a bond: the member and the load of each bucket.
#[derive(Debug)]
pub(crate) struct BondBucketTable {
    /// The member of each bucket; `None` while no member is enabled.
    members: Vec<Option<String>>,
    /// Load of each bucket: its sent bytes, halved at each rebalancing.
    loads: Vec<u64>,
    /// The sent bytes of each bucket that are already added to `loads`.
    counted: Vec<u64>,
    /// The packets that each bucket has sent.
    counters: BondCounters,
    /// Time of the next rebalancing; `None` if rebalancing is off.
    rebalance_at: Option<Time>,
    /// The members that were enabled at the last assignment.
    enabled: Vec<String>,
}

/// Least difference between two members' loads, in bytes, at which a bucket moves.
const DIFFERENCE_MIN: u64 = 100_000;

impl BondBucketTable {
    /// Creates buckets without members.
    pub(crate) fn new(bond: &str) -> Self {
        let counted = vec![0; BondBalance::BUCKETS];
        Self {
            members: vec![None; BondBalance::BUCKETS],
            loads: counted.clone(),
            counted,
            counters: BondCounters::new(bond),
            rebalance_at: None,
            enabled: Vec::new(),
        }
    }

    /// Assigns an enabled member to each bucket without an enabled member, round robin.
    ///
    /// If a member is enabled that was not enabled at the last call, buckets that have sent nothing
    /// are assigned again too. So the order in which links come up does not matter. Returns the
    /// number of buckets that moved from a disabled member to another.
    pub(crate) fn assign(&mut self, enabled: &[&str]) -> usize {
        let has_new = enabled.iter().any(|name| !self.enabled.iter().any(|own| own == name));
        self.enabled = enabled.iter().map(|name| (*name).to_owned()).collect();
        let mut moved = 0;
        let mut turn = enabled.iter().cycle();
        let sent = self.counters.bytes().zip(&self.loads);
        for (member, (bytes, load)) in self.members.iter_mut().zip(sent) {
            let is_enabled = |own: &String| enabled.contains(&own.as_str());
            let has_member = member.as_ref().is_some_and(is_enabled);
            let is_unused = bytes == 0 && *load == 0;
            if !has_member || has_new && is_unused {
                let next = turn.next().map(|name| (*name).to_owned());
                moved += usize::from(member.is_some() && !has_member && next.is_some());
                *member = next;
            }
        }
        moved
    }

    /// Assigns a bucket to a member.
    pub(crate) fn migrate(&mut self, bucket: u8, member: &str) {
        if let Some(own) = self.members.get_mut(usize::from(bucket)) {
            *own = Some(member.to_owned());
        }
    }

    /// Returns the time of the next rebalancing.
    pub(crate) const fn rebalance_at(&self) -> Option<Time> {
        self.rebalance_at
    }

    /// Moves buckets if the interval has passed; returns the number of moved buckets.
    ///
    /// The counters must be up to date. An interval of zero turns rebalancing off.
    pub(crate) fn run(&mut self, enabled: &[&str], interval: Duration, now: Time) -> usize {
        if interval.is_zero() {
            self.rebalance_at = None;
            return 0;
        }
        let next = now.after(interval);
        let due = *self.rebalance_at.get_or_insert(next);
        if due > now {
            // A shorter interval takes effect immediately.
            self.rebalance_at = Some(due.min(next));
            return 0;
        }
        self.rebalance_at = Some(next);
        self.count();
        let moved = self.rebalance(enabled);
        self.loads.iter_mut().for_each(|load| *load /= 2);
        moved
    }

    /// Adds the bytes that were sent since the last call to the loads.
    fn count(&mut self) {
        let totals: Vec<u64> = self.counters.bytes().collect();
        for ((load, counted), total) in self.loads.iter_mut().zip(&mut self.counted).zip(totals) {
            *load = load.saturating_add(total.saturating_sub(*counted));
            *counted = total;
        }
    }

    /// Moves buckets from members with high load to members with low load.
    fn rebalance(&mut self, enabled: &[&str]) -> usize {
        // Each bucket moves at most once.
        let mut can_move = [true; BondBalance::BUCKETS];
        for moved in 0..BondBalance::BUCKETS {
            let loads = enabled.iter().map(|member| (self.load_of(member), *member));
            let (Some(least), Some(most)) = (loads.clone().min(), loads.max()) else {
                return moved;
            };
            let difference = most.0.saturating_sub(least.0);
            if difference < DIFFERENCE_MIN.max(least.0 / 32) {
                return moved;
            }
            let buckets = self.members.iter().zip(&self.loads).zip(&can_move).enumerate();
            let candidates = buckets.filter_map(|(bucket, ((member, load), can_move))| {
                // The difference that would remain; it must be at most nine tenths of the present
                // difference.
                let remains = difference.abs_diff(load.saturating_mul(2));
                let is_candidate = *can_move
                    && member.as_deref() == Some(most.1)
                    && remains <= difference / 10 * 9;
                is_candidate.then_some((remains, bucket))
            });
            let Some((_, bucket)) = candidates.min() else { return moved };
            if let (Some(member), Some(own)) =
                (self.members.get_mut(bucket), can_move.get_mut(bucket))
            {
                (*member, *own) = (Some(least.1.to_owned()), false);
            }
        }
        BondBalance::BUCKETS
    }

    /// Returns the sum of the loads of a member's buckets.
    fn load_of(&self, member: &str) -> u64 {
        self.of_member(member).map(|(_, load)| load).fold(0, u64::saturating_add)
    }

    /// Returns the buckets of a member, with their loads in bytes.
    pub(crate) fn of_member<'a>(&'a self, member: &'a str) -> impl Iterator<Item = (u8, u64)> + 'a {
        let all = (0..=u8::MAX).zip(self.members.iter().zip(&self.loads));
        all.filter(move |(_, (own, _))| own.as_deref() == Some(member))
            .map(|(bucket, (_, load))| (bucket, *load))
    }

    /// Returns the assignment of buckets for the tables,
    /// with the port numbers of members.
    pub(crate) fn balance(
        &self,
        hash: BondHash,
        basis: u32,
        numbers: &BTreeMap<&str, PortNo>,
    ) -> BondBalance {
        let member = |bucket: usize| numbers.get(self.members.get(bucket)?.as_deref()?).copied();
        BondBalance::new(hash, basis, array::from_fn(member), self.counters.clone())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The members of the bond.
    const MEMBERS: [&str; 4] = ["p1", "p2", "p3", "p4"];

    /// Returns the load of each enabled member.
    fn loads(table: &BondBucketTable, enabled: &[&str]) -> Vec<u64> {
        enabled.iter().map(|member| table.load_of(member)).collect()
    }

    #[test]
    fn buckets_keep_their_members_while_these_are_enabled() {
        let mut table = BondBucketTable::new("b");
        assert_eq!(table.assign(&[]), 0);
        assert_eq!(table.assign(&["p1", "p2"]), 0);
        let before = table.members.clone();
        assert_eq!(table.of_member("p1").count(), 128);
        table.loads.fill(1);
        assert_eq!(table.assign(&["p1", "p2", "p3"]), 0, "a new member gets load by rebalancing");
        assert_eq!(table.members, before);
        assert_eq!(table.assign(&["p1", "p3"]), 128);
        let stays = |(old, new): (&Option<String>, &Option<String>)| {
            old.as_deref() != Some("p1") || old == new
        };
        assert!(before.iter().zip(&table.members).all(stays));
        assert_eq!(table.assign(&[]), 0, "no member is left that they could have");
        assert!(table.members.iter().all(Option::is_none));
    }

    #[test]
    fn new_member_gets_unused_buckets() {
        let mut table = BondBucketTable::new("b");
        table.assign(&["p1"]);
        table.loads[..2].fill(1);
        assert_eq!(table.assign(&["p1", "p2"]), 0, "no bucket has lost its member");
        let of = |member| table.of_member(member).count();
        assert_eq!((of("p1"), of("p2")), (129, 127));
        assert!(table.members[..2].iter().all(|own| own.as_deref() == Some("p1")));
        let before = table.members.clone();
        table.migrate(9, "p1");
        table.assign(&["p1", "p2"]);
        assert_eq!(table.members[9].as_deref(), Some("p1"), "without a new member all stay");
        assert_eq!(table.members[10..], before[10..]);
    }

    #[test]
    fn busy_bucket_gets_member_of_its_own() {
        let mut table = BondBucketTable::new("b");
        table.assign(&["p1", "p2"]);
        for (bucket, load) in [(0, 900_000), (2, 400_000), (4, 500_000)] {
            table.loads[bucket] = load;
        }
        assert_eq!(table.rebalance(&["p1", "p2"]), 1);
        assert_eq!(loads(&table, &["p1", "p2"]), [900_000, 900_000]);
        assert_eq!(table.rebalance(&["p1", "p2"]), 0);
        table.loads.fill(0);
        table.loads[0] = 1_000_000;
        assert_eq!(table.rebalance(&["p1", "p2"]), 0, "one bucket cannot be divided");
    }

    #[test]
    fn rebalancing_follows_its_interval() {
        let at = |ms| Time::ZERO.after(Duration::from_millis(ms));
        let interval = Duration::from_secs(1);
        let mut table = BondBucketTable::new("b");
        table.assign(&["p1", "p2"]);
        table.loads[..4].copy_from_slice(&[600_000, 0, 600_000, 0]);
        assert_eq!(table.run(&["p1", "p2"], interval, at(0)), 0);
        assert_eq!(table.rebalance_at(), Some(at(1000)));
        assert_eq!(table.run(&["p1", "p2"], interval, at(999)), 0);
        assert_eq!(table.run(&["p1", "p2"], interval, at(1000)), 1);
        assert_eq!(loads(&table, &["p1", "p2"]), [300_000, 300_000], "halved");
        assert_eq!(table.run(&["p1", "p2"], Duration::ZERO, at(2000)), 0);
        assert_eq!(table.rebalance_at(), None);
    }

    proptest! {
        /// Rebalancing lowers the highest load, loses no load, and then ends.
        #[test]
        fn rebalancing_makes_loads_more_alike(
            own in vec(prop_oneof![Just(0), 0u64..10_000, 0u64..5_000_000], 256),
            count in 1..MEMBERS.len(),
            turns in vec(0..MEMBERS.len(), 256),
        ) {
            let enabled = &MEMBERS[..count];
            let mut table = BondBucketTable::new("b");
            for (bucket, turn) in (0..=u8::MAX).zip(turns) {
                table.migrate(bucket, enabled[turn % count]);
            }
            table.loads.clone_from(&own);
            let before = loads(&table, enabled);
            let moved = table.rebalance(enabled);
            let after = loads(&table, enabled);
            prop_assert_eq!(before.iter().sum::<u64>(), after.iter().sum::<u64>());
            prop_assert!(after.iter().max() <= before.iter().max());
            prop_assert!(after.iter().min() >= before.iter().min());
            prop_assert!(moved > 0 || after == before);
            prop_assert_eq!(table.assign(enabled), 0, "every bucket has an enabled member");
        }
    }
}

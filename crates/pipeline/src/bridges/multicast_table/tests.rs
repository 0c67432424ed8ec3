//! Tests of the multicast table.

use std::net::Ipv4Addr;

use super::*;

/// Maximum number of groups of the table.
const GROUPS_MAX: usize = 2;

/// Returns the key of a group by its last byte.
fn key(last: u8) -> MulticastKey {
    MulticastKey::Group(0, IpAddr::V4(Ipv4Addr::new(239, 0, 0, last)))
}

/// Returns the time after some seconds.
fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

/// Learns a group on a port; returns the number of changes.
fn add(table: &mut MulticastTable, key: MulticastKey, port: u32, second: u64) -> usize {
    let (port, version) = (PortNo::new(port), Version::new(second + 1));
    table.add(key, port, &[port], GROUPS_MAX, version, at(second)).len()
}

/// Returns the entries that a version sees.
fn entries(table: &MulticastTable, version: u64) -> Vec<MulticastEntry> {
    let pages = table.page(None, Version::new(version), usize::MAX).values;
    in_order(pages.iter().map(|(key, ports)| ports.entries(*key)).collect())
}

/// Expires entries up to a time; returns their keys.
fn expire(table: &mut MulticastTable, second: u64) -> Vec<MulticastKey> {
    let ageing = Duration::from_secs(5);
    let expired = table.expire_some(ageing, Version::new(9), at(second), 10);
    assert!(expired.is_complete);
    expired.changed
}

/// Returns the groups and ports that a version sees.
fn groups(table: &MulticastTable, version: u64) -> Vec<(u8, u32)> {
    let entries = entries(table, version).into_iter();
    let last = |entry: &MulticastEntry| match entry.group {
        Some(IpAddr::V4(group)) => group.octets()[3],
        _ => 0,
    };
    entries.map(|entry| (last(&entry), entry.port.number())).collect()
}

#[test]
fn a_repeated_report_changes_no_group() {
    let mut table = MulticastTable::default();
    assert_eq!(add(&mut table, key(1), 1, 1), 1);
    assert_eq!(add(&mut table, key(1), 1, 2), 0, "known already");
    assert_eq!(add(&mut table, key(1), 2, 3), 1);
    assert_eq!(groups(&table, 4), [(1, 1), (1, 2)]);
    let old = table.find(key(1), Version::new(2)).unwrap();
    assert_eq!(old.numbers().collect::<Vec<_>>(), [PortNo::new(1)], "an older version");
}

#[test]
fn full_table_evicts_group_with_oldest_report() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 1, 1);
    add(&mut table, key(2), 1, 2);
    add(&mut table, key(1), 1, 3);
    assert_eq!(add(&mut table, key(3), 1, 4), 2);
    assert_eq!(groups(&table, 5), [(1, 1), (3, 1)]);
    assert_eq!(table.make_room(1, None, Version::new(6)), [key(1)]);
    assert_eq!(groups(&table, 6), [(3, 1)]);
}

#[test]
fn a_port_with_many_groups_evicts_its_own() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 1, 1);
    for last in 2..9 {
        add(&mut table, key(last), 2, last.into());
    }
    assert_eq!(groups(&table, 9), [(1, 1), (8, 2)]);
    let totals = LearnedTotals { learned: 8, evicted: 6, ..LearnedTotals::default() };
    assert_eq!(table.totals(), totals);
}

/// The port numbers do not matter, and neither does the order of the reports.
#[test]
fn equal_ports_take_no_groups_from_another() {
    for (small, large) in [(1, 2), (2, 1)] {
        let mut table = MulticastTable::default();
        add(&mut table, key(1), small, 1);
        for last in 2..9 {
            add(&mut table, key(last), large, last.into());
        }
        assert_eq!(groups(&table, 9), [(1, small), (8, large)]);
        // The first group of a port takes a place, and its second one does not.
        add(&mut table, key(9), 3, 9);
        let after = groups(&table, 10);
        assert!(after.contains(&(9, 3)), "{after:?}");
        add(&mut table, key(10), 3, 10);
        let others = |all: &[(u8, u32)]| all.iter().filter(|own| own.1 != 3).count();
        let last = groups(&table, 11);
        assert_eq!((others(&last), others(&after), last.len()), (1, 1, 2), "{last:?}");
    }
}

#[test]
fn a_shared_group_counts_for_its_first_port() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 2, 1);
    add(&mut table, key(1), 1, 2);
    add(&mut table, key(2), 2, 3);
    assert_eq!(add(&mut table, key(3), 3, 4), 3, "port 2 loses both, and port 1 stays");
    assert_eq!(groups(&table, 5), [(1, 1), (3, 3)]);
    assert_eq!(table.make_room(0, None, Version::new(6)).len(), 2);
    assert!(groups(&table, 6).is_empty());
}

/// Without a limit, one new group would take half of their groups from both ports.
#[test]
fn new_group_takes_few_shared_groups() {
    /// Number of groups that the test adds.
    const GROUPS: u8 = 200;
    let mut table = MulticastTable::default();
    let mut report = |last: u8, port: u32| {
        let (port, version) = (PortNo::new(port), Version::new(1));
        table.add(key(last), port, &[port], GROUPS.into(), version, at(last.into())).len()
    };
    for last in 0..GROUPS {
        report(last, 1);
        report(last, 2);
    }
    let departures = MulticastSnooping::DEPARTURES_MAX;
    assert_eq!(report(GROUPS, 3), departures + 1, "with the new group");
    let left = |port: u32| groups(&table, 1).iter().filter(|own| own.1 == port).count();
    let all = usize::from(GROUPS);
    assert_eq!((left(1), left(2), left(3)), (all - departures, all - 1, 1));
    assert_eq!((table.ages.len(), table.totals().evicted), (all, departures as u64 + 1));
}

#[test]
fn router_ports_are_not_counted_as_groups() {
    let mut table = MulticastTable::default();
    for vlan in 0..3 {
        add(&mut table, MulticastKey::Routers(vlan), 4, 1);
    }
    add(&mut table, key(1), 1, 2);
    add(&mut table, key(2), 1, 3);
    assert_eq!(groups(&table, 4), [(1, 1), (2, 1), (0, 4), (0, 4), (0, 4)]);
}

#[test]
fn moved_port_keeps_place_and_time() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 1, 1);
    add(&mut table, key(1), 2, 2);
    add(&mut table, MulticastKey::Routers(0), 1, 3);
    let to_3 = |port: PortNo| (port == PortNo::new(1)).then(|| PortNo::new(3));
    for key in [key(1), MulticastKey::Routers(0)] {
        table.move_ports(key, Version::new(5), to_3);
    }
    assert_eq!(groups(&table, 5), [(1, 3), (1, 2), (0, 3)]);
    assert_eq!((entries(&table, 5)[0].seen, table.totals().moved), (at(1), 2));
    add(&mut table, key(2), 3, 5);
    assert_eq!(add(&mut table, key(3), 4, 6), 3, "port 3 has two groups");
    assert_eq!(groups(&table, 7), [(1, 2), (3, 4), (0, 3)]);
}

#[test]
fn ports_that_expire_are_counted() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 1, 1);
    add(&mut table, key(1), 2, 2);
    add(&mut table, key(1), 3, 8);
    add(&mut table, MulticastKey::Routers(0), 4, 1);
    assert_eq!(expire(&mut table, 7), [key(1)]);
    assert_eq!(groups(&table, 9), [(1, 3), (0, 4)]);
    assert_eq!(expire(&mut table, 12), []);
    let totals = LearnedTotals { learned: 4, expired: 2, ..LearnedTotals::default() };
    assert_eq!(table.totals(), totals);
}

#[test]
fn a_group_ends_with_its_last_port() {
    let mut table = MulticastTable::default();
    add(&mut table, key(1), 1, 1);
    add(&mut table, key(1), 2, 2);
    let mut without = |version: u64, port: u32| {
        let stays = |entry: &MulticastEntry| entry.port != PortNo::new(port);
        table.retain_in(key(1), Version::new(version), stays)
    };
    assert_eq!([without(4, 1), without(5, 1), without(6, 2)], [1, 0, 1]);
    assert!(table.find(key(1), Version::new(5)).is_some());
    assert!(table.find(key(1), Version::new(6)).is_none() && groups(&table, 6).is_empty());
    assert!(table.reclaim(Version::new(6), &mut 10));
    assert!(table.is_empty());
}

#[test]
fn expiry_visits_no_young_group() {
    let mut table = MulticastTable::default();
    let version = Version::new(1);
    let mut report = |last: u16, port: u32, second: u64| {
        let [high, low] = last.to_be_bytes();
        let key = MulticastKey::Group(0, IpAddr::V4(Ipv4Addr::new(239, 0, high, low)));
        let port = PortNo::new(port);
        table.add(key, port, &[port], 10_000, version, at(second));
    };
    (0..7).for_each(|last| report(last, 1, 1));
    (7..1000).for_each(|last| report(last, 1, 50));
    // Group 2 loses a port, and group 3 none.
    report(2, 2, 60);
    report(3, 1, 60);
    let ageing = Duration::from_secs(30);
    let mut expire = |visits_max| {
        let expired = table.expire_some(ageing, Version::new(2), at(61), visits_max);
        (expired.changed.len(), expired.is_complete)
    };
    assert_eq!([expire(4), expire(4)], [(3, false), (3, true)]);
    assert_eq!((table.ages.len(), table.totals().expired), (995, 6));
    let expired = table.expire_some(ageing, Version::new(3), at(95), 10_000);
    assert_eq!((expired.changed.len(), expired.is_complete), (995, true));
    assert!(table.groups_expiry.pop_old(|_| true).is_none(), "an ended group is not queued");
}

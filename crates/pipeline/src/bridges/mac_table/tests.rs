//! Tests of the MAC table.

use super::*;

/// Maximum number of addresses in the table.
const ROOM: usize = 2;

/// Learns an address on a port; returns the number of changes.
fn seen(table: &mut MacTable, last: u8, port: u32, second: u64) -> usize {
    let mac = [2, 0, 0, 0, 0, last];
    let observation = MacObservation {
        bridge: BridgeId::new(1),
        vlan: 0,
        mac,
        port: PortNo::new(port),
        is_announcement: false,
        precedes_packet: false,
    };
    table.learn(&observation, ROOM, Version::new(second + 1), at(second)).len()
}

/// Returns the time after some seconds.
fn at(second: u64) -> Time {
    Time::ZERO.after(Duration::from_secs(second))
}

fn known_addresses(table: &MacTable, version: u64) -> Vec<(u8, u32)> {
    let page = table.page(None, Version::new(version), usize::MAX);
    page.values.iter().map(|(_, entry)| (entry.mac[5], entry.port.number())).collect()
}

/// Expires addresses at a time, and returns the number of changed ones.
fn expire(table: &mut MacTable, ageing: Duration, second: u64) -> usize {
    let expired = table.expire_some(ageing, Version::new(9), at(second), 10);
    assert!(expired.is_complete);
    expired.changed.len()
}

#[test]
fn newest_observation_wins_for_newer_versions() {
    let mut table = MacTable::default();
    assert_eq!(seen(&mut table, 1, 1, 1), 1);
    assert_eq!(seen(&mut table, 1, 1, 2), 0, "known already");
    assert_eq!(seen(&mut table, 1, 2, 3), 1);
    assert_eq!(
        (known_addresses(&table, 2), known_addresses(&table, 4)),
        (vec![(1, 1)], vec![(1, 2)])
    );
    let totals = LearnedTotals { learned: 1, moved: 1, ..LearnedTotals::default() };
    assert_eq!((table.len(), table.totals()), (1, totals));
}

#[test]
fn a_full_table_forgets_the_oldest_address() {
    let mut table = MacTable::default();
    seen(&mut table, 1, 1, 1);
    seen(&mut table, 2, 1, 2);
    seen(&mut table, 1, 1, 3);
    assert_eq!(seen(&mut table, 3, 1, 4), 2);
    assert_eq!(known_addresses(&table, 5), [(1, 1), (3, 1)]);
}

#[test]
fn a_flooding_port_loses_only_its_own_addresses() {
    let mut table = MacTable::default();
    seen(&mut table, 1, 1, 1);
    for last in 2..9 {
        seen(&mut table, last, 2, last.into());
    }
    assert_eq!(known_addresses(&table, 10), [(1, 1), (8, 2)]);
    let totals = LearnedTotals { learned: 8, evicted: 6, ..LearnedTotals::default() };
    assert_eq!((table.len(), table.totals()), (2, totals));
}

#[test]
fn an_address_expires_exactly_at_its_timeout() {
    let mut table = MacTable::default();
    seen(&mut table, 1, 1, 1);
    let ageing = Duration::from_secs(10);
    assert_eq!(expire(&mut table, ageing, 10), 0);
    seen(&mut table, 1, 1, 5);
    assert_eq!(expire(&mut table, ageing, 14), 0);
    assert_eq!(expire(&mut table, ageing, 15), 1);
    assert!(known_addresses(&table, 9).is_empty());
    let totals = LearnedTotals { learned: 1, expired: 1, ..LearnedTotals::default() };
    assert_eq!((table.len(), table.totals()), (0, totals));
}

#[test]
fn expiry_visits_no_young_address() {
    let mut table = MacTable::default();
    let learn = |table: &mut MacTable, last: u16, second: u64, is_announcement| {
        let [high, low] = last.to_be_bytes();
        let observation = MacObservation {
            bridge: BridgeId::new(1),
            vlan: 0,
            mac: [2, 0, 0, 0, high, low],
            port: PortNo::new(1),
            is_announcement,
            precedes_packet: false,
        };
        table.learn(&observation, 10_000, Version::new(1), at(second));
    };
    (0..7).for_each(|last| learn(&mut table, last, 1, false));
    (7..1000).for_each(|last| learn(&mut table, last, 50, last == 7));
    learn(&mut table, 3, 60, false);
    let ageing = Duration::from_secs(30);
    let mut expire = |visits_max| {
        let expired = table.expire_some(ageing, Version::new(2), at(61), visits_max);
        (expired.changed.len(), expired.is_complete)
    };
    // Seven old addresses, of which one was seen again, and one announcement.
    assert_eq!([expire(4), expire(4), expire(1)], [(3, false), (4, false), (0, true)]);
    assert_eq!((table.len(), table.totals().expired), (994, 6));
}

#[test]
fn an_announcement_ends_after_its_time() {
    let mut table = MacTable::default();
    let mac = [2, 0, 0, 0, 0, 1];
    let announce = MacObservation {
        bridge: BridgeId::new(1),
        vlan: 0,
        mac,
        port: PortNo::new(1),
        is_announcement: true,
        precedes_packet: false,
    };
    let moved = MacObservation { port: PortNo::new(2), ..announce };
    table.learn(&announce, ROOM, Version::new(1), at(1));
    table.learn(&moved, ROOM, Version::new(2), at(3));
    let is_announced = |table: &MacTable| {
        table.find(0, mac, Version::new(9)).is_some_and(|own| own.is_announced())
    };
    let ageing = Duration::from_secs(100);
    assert_eq!((expire(&mut table, ageing, 7), is_announced(&table)), (0, true));
    assert_eq!((expire(&mut table, ageing, 8), is_announced(&table)), (1, false));
    assert_eq!(expire(&mut table, ageing, 9), 0);
}

/// Packets have refreshed all addresses, so searches for the oldest one visit many.
#[test]
fn a_lowered_limit_visits_few_addresses_at_once() {
    /// Number of addresses in the table.
    const MANY: u16 = 2000;
    let (mut table, version) = (MacTable::default(), Version::new(1));
    for second in [1, 2] {
        for last in 0..MANY {
            let [high, low] = last.to_be_bytes();
            let observation = MacObservation {
                bridge: BridgeId::new(1),
                vlan: 0,
                mac: [2, 0, 0, 0, high, low],
                port: PortNo::new(1),
                is_announcement: false,
                precedes_packet: false,
            };
            table.learn(&observation, MANY.into(), version, at(second));
        }
    }
    let (mut steps, mut is_done) = (0_u16, false);
    while !is_done {
        let before = table.ages.visits();
        is_done = table.evict_some(10, Version::new(2), 64);
        let visits = table.ages.visits() - before;
        assert!(visits < 128, "{visits}");
        steps += 1;
    }
    assert_eq!((table.len(), table.totals().evicted), (10, u64::from(MANY) - 10));
    // Each address moves at most once.
    assert!(steps <= 2 * MANY / 64 + 2, "{steps}");
}

#[test]
fn a_port_loses_its_addresses_in_steps() {
    let mut table = MacTable::default();
    seen(&mut table, 1, 1, 1);
    seen(&mut table, 2, 2, 2);
    let version = Version::new(4);
    let mut left = 1;
    assert_eq!(table.forget_port(PortNo::new(1), version, &mut left).len(), 1);
    let others = table.forget_port(PortNo::new(2), version, &mut left);
    assert!(others.is_empty(), "no removal is left");
    assert_eq!((left, known_addresses(&table, 4)), (0, vec![(2, 2)]));
    assert_eq!(table.forget_some(version, 5).len(), 1);
    assert_eq!((table.len(), known_addresses(&table, 4)), (0, vec![]));
}

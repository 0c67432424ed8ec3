//! The limit of megaflows changes while packets flow.

use shunt_datapath::{
    Command, ThreadConfig,
    command::{Repair, Tuning},
};

use super::waiting::{flow, per_flow};
use crate::harness::Switch;

/// Number of flows, each with an entry of its own.
const FLOWS: u16 = 100;

/// Returns the settings with a limit of entries.
fn tuning(entries_max: usize) -> Tuning {
    let ThreadConfig { max_idle, translations_per_iteration, verify_one_in, caches, .. } =
        super::thread_config();
    Tuning {
        max_idle,
        translations_per_iteration,
        verify_one_in,
        repair: Repair::Off,
        wildcard: caches.wildcard,
        entries_max,
        sleep_max: ThreadConfig::default().sleep_max,
        vlan_limit: ThreadConfig::default().vlan_limit,
    }
}

#[test]
fn a_lower_limit_keeps_the_newest_flows() {
    let mut switch = Switch::new(1, 2, super::thread_config());
    switch.apply(&[per_flow(1, 2)]);
    let send = |switch: &mut Switch, numbers: std::ops::Range<u16>| {
        for number in numbers {
            assert!(switch.send(0, 1, &flow(number)));
            switch.settle();
            assert_eq!(switch.receive(0, 2).len(), 1, "flow {number} is forwarded");
        }
        let counters = switch.counters(0);
        [counters.upcalls.get(), counters.entries.get(), counters.refused_full.get()]
    };
    assert_eq!(send(&mut switch, 0..FLOWS), [100, 100, 0]);

    switch.controls[0].send(Command::Tune(tuning(10))).unwrap();
    switch.settle();
    assert_eq!((switch.counters(0).entries.get(), switch.coordinator.watched()), (10, 10));
    assert_eq!(send(&mut switch, 90..100), [100, 10, 0], "the newest flows still hit");
    assert_eq!(send(&mut switch, 0..3), [103, 10, 3], "the cache is full");

    switch.controls[0].send(Command::Tune(tuning(20))).unwrap();
    switch.settle();
    assert_eq!(send(&mut switch, 0..3), [106, 13, 3]);
    assert_eq!(send(&mut switch, 0..3), [106, 13, 3]);
}

//! The packet path allocates nothing once it is warm.

#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    path::Path,
};

use shunt_datapath::{
    BURST, ThreadConfig,
    cache::{CacheConfig, ExactConfig},
    port::{PortSpec, Repeat, open},
};
use shunt_flow::{FieldId, Match, PortNo};
use shunt_pipeline::Action;

use crate::{
    harness::{BRIDGE, Switch, output, port_info, rule},
    waiting::{flow, per_flow},
};

/// The system's allocator, which counts for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // A thread that is ending may have lost its counter; nobody asks it.
    let _ = ALLOCATIONS.try_with(|allocations| allocations.set(allocations.get() + 1));
}

// SAFETY: every call is the system allocator's, with the same arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `alloc` was the system's.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the contract of `realloc`, and `alloc` was the system's.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations(run: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    run();
    ALLOCATIONS.get() - before
}

/// Sends bursts through a switch that has seen them before, and counts what its turns allocate.
fn check(exact: ExactConfig) {
    let caches = CacheConfig { exact, ..CacheConfig::default() };
    let mut switch = Switch::new(1, 4, ThreadConfig { caches, ..ThreadConfig::default() });
    let set =
        Action::SetField { field: FieldId::EthSrc, value: 5, mask: FieldId::EthSrc.value_max() };
    let rewritten = rule(2, Match::any(), vec![output(2), set, output(3), output(4)]);
    switch.apply(&[per_flow(1, 2)]);
    for mods in [None, Some(rewritten)] {
        mods.into_iter().for_each(|changed| switch.apply(&[changed]));
        for warm in [false, true] {
            for _ in 0..20 {
                for number in 0..BURST {
                    assert!(switch.send(0, 1, &flow(u16::try_from(number).unwrap())));
                }
                let allocated = allocations(|| while switch.turn(0) {});
                assert!(!warm || allocated == 0, "{allocated} allocations in a warm burst");
                (2..=4).for_each(|port| drop(switch.receive(0, port)));
                switch.desk.turn();
            }
        }
    }
    assert_eq!(switch.counters(0).unaccounted(), 0);
}

#[test]
fn a_warm_burst_allocates_nothing_whichever_cache_answers() {
    check(ExactConfig { lines: 8192, insert_inverse: 1 });
    check(ExactConfig { lines: 8192, insert_inverse: 0 });
}

#[test]
fn a_warm_burst_from_a_file_into_the_void_allocates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("flows.pcap");
    let spec = |rx: Option<&Path>, tx: Option<&Path>| PortSpec::Pcap {
        rx: rx.map(Into::into),
        tx: tx.map(Into::into),
        repeat: Repeat::Endless,
    };
    // What port 1 sends is the file that port 2 replays to port 3.
    let mut switch = Switch::new(1, 1, ThreadConfig::default());
    switch.pipeline.set_ports(BRIDGE, (1..=3).map(port_info).collect()).unwrap();
    let mut writer = open(&spec(None, Some(&path)), 0).unwrap();
    switch.attach(2, BRIDGE, PortNo::new(2), writer.as_mut());
    switch.apply(&[per_flow(1, 2)]);
    (0..100).for_each(|number| assert!(switch.send(0, 1, &flow(number))));
    switch.settle();
    assert_eq!(switch.counters(0).sent.get(), 100);

    let set =
        Action::SetField { field: FieldId::EthSrc, value: 5, mask: FieldId::EthSrc.value_max() };
    for actions in [vec![output(3)], vec![output(3), set, output(3)]] {
        let mut switch = Switch::new(1, 0, ThreadConfig::default());
        switch.pipeline.set_ports(BRIDGE, (2..=3).map(port_info).collect()).unwrap();
        switch.apply(&[rule(1, Match::any(), actions)]);
        let mut reader = open(&spec(Some(&path), None), 0).unwrap();
        switch.attach(2, BRIDGE, PortNo::new(2), reader.as_mut());
        switch.attach(3, BRIDGE, PortNo::new(3), open(&PortSpec::Null, 0).unwrap().as_mut());
        let mut turn = |count| (0..count).for_each(|_| assert!(switch.turn(0)));
        turn(20);
        let allocated = allocations(|| turn(200));
        assert_eq!(allocated, 0);
        assert_eq!(switch.counters(0).received.get(), 220 * BURST as u64);
        assert!(switch.counters(0).sent.get() >= 220 * BURST as u64 - 100);
        assert_eq!(switch.counters(0).unaccounted(), 0);
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(5)))), 1);
}

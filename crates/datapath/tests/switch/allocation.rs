//! The packet path allocates nothing once it is warm.

#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use shunt_datapath::{
    BURST, ThreadConfig,
    cache::{CacheConfig, ExactConfig},
};
use shunt_flow::{FieldId, Match};
use shunt_pipeline::Action;

use crate::{
    harness::{Switch, output, rule},
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
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(5)))), 1);
}

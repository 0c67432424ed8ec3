//! A policy that is warm allocates nothing.

#![expect(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use shunt_gigaflow::{
    adaptive::{Adaptive, Capacity, Sight},
    partition::{Joint, Policy, PolicyName, StageSet, Stages},
    way::{Candidate, Coupling, Cut, FieldSet, Step, Way},
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

struct Empty(u8);

impl Stages for Empty {
    fn count(&self) -> u8 {
        self.0
    }

    fn holders(&self, _: &Candidate) -> StageSet {
        StageSet::EMPTY
    }

    fn room(&self) -> StageSet {
        StageSet::first_of(self.0)
    }
}

/// Builds the `number`-th way of so many steps in the memory of the one before.
fn build(way: &mut Way, number: u32, steps_count: u32) {
    way.begin(Cut::new(0));
    for step in 0..steps_count {
        way.cut(Cut::new(step));
        let fields = FieldSet::of(&[Coupling::ALL[step as usize / 4 % Coupling::ALL.len()]]);
        way.step(Step { fields, identity: u64::from(number % 17) << 32 | u64::from(step) });
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(1)))), 1);
}

#[test]
fn no_policy_allocates_once_warm() {
    for name in PolicyName::ALL {
        let (mut policy, mut way) = (name.policy(1), Way::new());
        let mut cut = |number: u32| {
            build(&mut way, number, 22 + number % 9);
            assert!(!policy.partition(&way, &Empty(4)).is_empty());
        };
        (0..20).for_each(&mut cut);
        assert_eq!(allocations(|| (0..300).for_each(&mut cut)), 0, "{name}");
    }
}

#[test]
fn the_duel_allocates_nothing_once_it_has_seen_its_ways() {
    let capacity = Capacity { stages_count: 4, stage_entries_max: 1000 };
    let (mut adaptive, mut way) = (Adaptive::new(Joint::default(), capacity), Way::new());
    let mut witness = |number| {
        build(&mut way, number, 30);
        adaptive.witness(&way, Sight::Sampled);
        assert!(!adaptive.partition(&way, &Empty(4)).is_empty());
    };
    (0..100).for_each(&mut witness);
    assert_eq!(allocations(|| (0..2000).for_each(&mut witness)), 0);
}

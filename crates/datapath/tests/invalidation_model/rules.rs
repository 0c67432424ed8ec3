//! One test for each rule of `shunt_datapath::evict::owner`.
//!
//! With all rules kept, no order of steps has a fault. With a broken rule, the model finds the
//! fault that the rule prevents.

use super::*;

fn check(model: Model) -> usize {
    let (states, faults) = explore(model);
    assert!(faults.is_empty(), "{faults:#?}");
    states
}

fn check_broken(rule: Rule, fault: ModelViolation) {
    let sleeps = matches!(rule, Rule::WakesBlindly | Rule::LooksBeforeItPosts);
    let model = Model { owners: 1, installs: 2, expires: !sleeps, sleeps, broken: Some(rule) };
    let (_, faults) = explore(model);
    assert!(faults.contains_key(&fault), "breaking {rule:?} leads to {faults:?}");
}

#[test]
fn three_installs_are_safe_in_every_interleaving() {
    let states =
        check(Model { owners: 1, installs: 3, expires: true, sleeps: false, broken: None });
    assert!(states > 10_000, "{states}");
}

#[test]
fn two_owners_are_safe_in_every_interleaving() {
    let states =
        check(Model { owners: 2, installs: 2, expires: false, sleeps: false, broken: None });
    assert!(states > 10_000, "{states}");
}

#[test]
fn owners_that_sleep_are_safe_in_every_interleaving() {
    let one = Model { owners: 1, installs: 2, expires: true, sleeps: true, broken: None };
    let two = Model { owners: 2, installs: 1, expires: false, sleeps: true, broken: None };
    let states = check(one).min(check(two));
    assert!(states > 1000, "{states}");
}

#[test]
fn rule_1_seq_counts_only_indexed_installs() {
    check_broken(Rule::SeqCoversWhatIsNotIndexed, ModelViolation::StaleHit);
}

#[test]
fn rule_2_install_older_than_engine_is_dropped() {
    check_broken(Rule::LateIsRecorded, ModelViolation::PhantomRow);
}

#[test]
fn rule_3_owner_reports_expiries_but_not_evictions() {
    // Every step of every model asserts that owners do not report entries evicted by invalidations.
    check_broken(Rule::ExpiryIsSilent, ModelViolation::PhantomRow);
}

#[test]
fn rule_4_merged_invalidations_carry_the_least_seq() {
    check_broken(Rule::MergeTakesNewestSeq, ModelViolation::StaleHit);
}

#[test]
fn rule_5_owner_installs_only_translations_of_version() {
    let mut owner_model = ModelSystem::new_owner(0).0;
    let invalidation = Invalidation {
        version: Version::new(1),
        evictions: Vec::new(),
        seq: InstallNo(0),
        learned: LearnSeq(0),
    };
    owner_model.owner.apply(&invalidation);
    for other in [Version::ZERO, Version::new(2)] {
        let refused = owner_model.owner.install(traversal(0, other.number(), other), Time::ZERO);
        let current = Version::new(1);
        assert_eq!(refused, Err(InstallError::OtherVersion { seen: other, current }));
    }
    assert_eq!((owner_model.owner.entries().len(), owner_model.owner.reported()), (0, 0));
    check_broken(Rule::OldTranslationIsInstalled, ModelViolation::StaleHit);
}

#[test]
fn rule_6_coordinator_takes_reports_before_computing() {
    let mut system = ModelSystem::new(Model {
        owners: 1,
        installs: 3,
        expires: false,
        sleeps: false,
        broken: None,
    });
    for _ in 0..3 {
        system.owners[0].install(1);
    }
    system.coordinator.take_reports();
    system.change();
    system.owners[0].invalidation();
    assert_eq!(system.owners[0].live().len(), 3, "version 1 does not concern flow 1");
    // The coordinator does not take the report of this install, so the invalidation evicts it too.
    system.owners[0].install(0);
    system.change();
    system.owners[0].invalidation();
    assert!(system.owners[0].live().is_empty());
}

#[test]
fn rule_7_slot_is_reused_after_removal_report() {
    let mut owner_model = ModelSystem::new_owner(0).0;
    owner_model.install(0);
    let first = owner_model.live()[0].0;
    owner_model.expire(first.slot, false);
    owner_model.install(0);
    let second = owner_model.live()[0].0;
    assert_eq!((first.slot, first.generation + 1), (second.slot, second.generation));
    check_broken(Rule::SlotIsReusedTooEarly, ModelViolation::StaleHit);
}

#[test]
fn rule_10_woken_owner_reads_mailbox_first() {
    let size = Model { owners: 2, installs: 1, expires: false, sleeps: true, broken: None };
    let mut system = ModelSystem::new(size);
    system.owners[0].prepare_park();
    system.change();
    assert_eq!(system.coordinator.acked_version(), Version::ZERO, "one is awake");
    system.owners[1].prepare_park();
    system.change();
    assert_eq!(
        system.coordinator.acked_version(),
        Version::ZERO,
        "one was awake, and has not acknowledged"
    );
    system.run(Step::Invalidation { owner: 1 });
    assert_eq!(system.coordinator.acked_version(), Version::new(2));
    check_broken(Rule::WakesBlindly, ModelViolation::AckedTooEarly);
    check_broken(Rule::LooksBeforeItPosts, ModelViolation::AckedTooEarly);
}

#[test]
fn a_full_report_ring_stops_installs_and_expiries() {
    let (reports, _receiver) = RingBuffer::new(1);
    let mut owner = Owner::new(OwnerId(0), Version::ZERO, 8, reports, RingBuffer::new(1).0);
    let entry = owner.install(traversal(0, 0, Version::ZERO), Time::ZERO).unwrap();
    let refused = owner.install(traversal(1, 0, Version::ZERO), Time::ZERO);
    assert_eq!(refused, Err(InstallError::RingFull));
    assert!(!owner.expire(entry) && owner.entries().is_live(entry));
    assert_eq!(owner.entries().len(), 1);
}

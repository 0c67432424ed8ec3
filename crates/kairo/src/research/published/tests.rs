//! Tests of gates, timers and faults of the published engine. The folder `tests` checks its
//! evictions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use shunt_flow::{FieldId, FlowKey, PortNo, text::NoPortNames};
use shunt_pipeline::{
    BridgeId, BridgeSettings, EntryId, Evictor, FlowModCommand, Installed, OwnerId, Pipeline,
    PortInfo, Time, Traversal, text::parse_rule,
};

use super::{PublishedKairo, PublishedSettings};

const BRIDGE: BridgeId = BridgeId::new(1);

/// Four tables in a row, with entries of packets to 0.0.0.0, 0.0.0.1, ...
struct GateFixture {
    pipeline: Pipeline,
    engine: PublishedKairo,
    seconds: Arc<AtomicU64>,
}

impl GateFixture {
    fn new(settings: PublishedSettings, entries: u32) -> Self {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        pipeline.set_ports(BRIDGE, vec![PortInfo::datapath(1)]).unwrap();
        let seconds = Arc::new(AtomicU64::new(0));
        let clock = Arc::clone(&seconds);
        let now = move || Time::ZERO.after(Duration::from_secs(clock.load(Ordering::Relaxed)));
        for table in 0..3 {
            let rule = format!("table={table},priority=1,actions=goto_table:{}", table + 1);
            apply(&pipeline, FlowModCommand::Add, &[&rule]);
        }
        let engine = PublishedKairo::new(&pipeline, &[BRIDGE], settings, now);
        let mut fixture = Self { pipeline, engine, seconds };
        (0..entries).for_each(|slot| fixture.install(slot));
        fixture.wait(60);
        fixture
    }

    /// Installs the entry of a slot.
    fn install(&mut self, slot: u32) {
        let traversal = self.traversal(slot);
        assert_eq!(self.engine.installed(entry(slot), &traversal), Installed::Recorded);
    }

    /// Returns the traversal of the entry in a slot.
    fn traversal(&self, slot: u32) -> Arc<Traversal> {
        let mut key = FlowKey::ZERO;
        key.set_bridge(u64::from(BRIDGE.number()));
        key.set_in_port(PortNo::new(1));
        key.set_field(FieldId::EthType, 0x0800);
        key.set_field(FieldId::Ipv4Dst, slot.into());
        Arc::new(self.pipeline.translate(&key, self.pipeline.version()))
    }

    /// Lets time pass, and runs the maintenance of the engine.
    fn wait(&mut self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
        while self.engine.run_maintenance() {}
    }

    /// Adds a rule for one packet to each of these tables.
    /// Returns the evicted entries.
    fn update(&mut self, rules: &[(u8, u32)]) -> Vec<u32> {
        let text = |(table, slot): &(u8, u32)| {
            format!(
                "table={table},priority=9,ip,nw_dst=0.0.0.{slot},actions=goto_table:{}",
                table + 1
            )
        };
        let texts: Vec<String> = rules.iter().map(text).collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let change = apply(&self.pipeline, FlowModCommand::Add, &texts);
        let mut evicted = self.engine.apply(&change.deltas, change.version);
        evicted.sort_unstable();
        evicted.iter().map(|id| id.slot).collect()
    }

    /// Returns the number of rows that each gate holds.
    fn held(&self) -> Vec<usize> {
        self.engine.shared().held.clone()
    }
}

/// Applies a command to some rules.
fn apply(pipeline: &Pipeline, command: FlowModCommand, rules: &[&str]) -> shunt_pipeline::Change {
    let parsed = |rule: &&str| parse_rule(command, rule, &NoPortNames).unwrap();
    let mods: Vec<_> = rules.iter().map(parsed).collect();
    pipeline.apply(BRIDGE, &mods, Time::ZERO).unwrap()
}

/// Returns the id of the entry in a slot.
const fn entry(slot: u32) -> EntryId {
    EntryId { owner: OwnerId(0), slot, generation: 0 }
}

/// Each test is a row of Table 4.2 of the paper.
mod gates {
    use super::*;

    /// Returns an engine with gates.
    fn fixture() -> GateFixture {
        GateFixture::new(PublishedSettings::default(), 4)
    }

    #[test]
    fn an_expired_timer_releases_held_rows_without_evictions() {
        let mut fixture = fixture();
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        assert_ne!(fixture.held()[1], 0);
        fixture.wait(1);
        assert_ne!(fixture.held()[1], 0);
        fixture.wait(1);
        assert_eq!(fixture.held(), [0; 4]);
        assert_eq!(fixture.engine.len(), 3);
    }

    #[test]
    fn a_complete_batch_releases_all_held_rows() {
        let settings =
            PublishedSettings { batch: 3, propagation: None, ..PublishedSettings::default() };
        let mut fixture = GateFixture::new(settings, 3);
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        fixture.install(3);
        assert_ne!(fixture.held()[1], 0);
        // The packet of the evicted entry also waits: it will be deleted.
        fixture.install(4);
        assert_eq!(fixture.held(), [0; 4]);
        assert_eq!(fixture.update(&[(2, 4)]), [4]);
    }

    #[test]
    fn updates_wait_at_the_gate_of_their_table() {
        let mut fixture = fixture();
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        let held = fixture.held();
        assert_eq!(fixture.update(&[(1, 1)]), [1]);
        assert!(fixture.held()[1] > held[1]);
        assert_eq!(fixture.held()[2..], [0, 0]);
    }

    #[test]
    fn updates_of_two_tables_are_held_separately() {
        let mut fixture = fixture();
        assert_eq!(fixture.update(&[(2, 0)]), [0]);
        assert_eq!(fixture.update(&[(1, 1)]), [1]);
        let held = fixture.held();
        assert!(held[1] > 0 && held[2] > 0, "{held:?}");
    }

    #[test]
    fn a_later_update_releases_earlier_held_rows() {
        let mut fixture = fixture();
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        assert_eq!(fixture.update(&[(2, 1)]), [1]);
        let held = fixture.held();
        assert!(held[1] == 0 && held[2] > 0, "{held:?}");
    }

    #[test]
    fn updates_of_two_tables_wait_at_the_later() {
        let mut fixture = fixture();
        assert_eq!(fixture.update(&[(0, 0), (2, 1)]), [0, 1]);
        let held = fixture.held();
        assert!(held[0] == 0 && held[2] > 0, "{held:?}");
    }

    #[test]
    fn without_gates_the_same_entries_are_evicted() {
        let settings = PublishedSettings { has_gates: false, ..PublishedSettings::default() };
        let mut fixture = GateFixture::new(settings, 4);
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        assert_eq!(fixture.held(), [0; 4]);
        assert_eq!(fixture.update(&[(0, 1), (2, 2)]), [1, 2]);
    }

    #[test]
    fn without_a_timer_held_rows_stay() {
        let settings =
            PublishedSettings { propagation: None, batch: 4, ..PublishedSettings::default() };
        let mut fixture = GateFixture::new(settings, 4);
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        fixture.wait(1000);
        assert_ne!(fixture.held()[1], 0);
    }
}

#[test]
fn a_new_tuple_needs_no_new_circuit() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 4);
    assert_eq!(fixture.update(&[(1, 0)]), [0]);
    fixture.wait(60);
    assert_eq!(fixture.update(&[(1, 1)]), [1]);
    assert_eq!(fixture.engine.stats().circuits, 1);
}

#[test]
fn new_path_rebuilds_circuit_after_evictions() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 4);
    // The new rule leads from the last table to a new table.
    assert_eq!(fixture.update(&[(3, 0)]), [0]);
    assert_eq!(fixture.engine.stats().circuits, 1);
    fixture.wait(60);
    assert_eq!((fixture.engine.stats().circuits, fixture.engine.stats().tables), (2, 5));
    fixture.install(0);
    fixture.wait(60);
    assert_eq!(fixture.update(&[(4, 0)]), [0]);
    assert_eq!(fixture.update(&[(0, 1)]), [1]);
}

#[test]
fn deleted_packet_leaves_every_table() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 2);
    fixture.engine.removed(entry(0));
    assert_eq!((fixture.engine.len(), fixture.engine.stats().waiting), (1, 1));
    fixture.wait(60);
    assert_eq!(fixture.engine.stats().waiting, 0);
    assert!(fixture.update(&[(1, 0)]).is_empty());
    assert_eq!(fixture.held(), [0; 4]);
}

#[test]
fn a_failed_step_evicts_all_entries_and_recovers() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 3);
    fixture.engine.shared().is_failing = true;
    assert_eq!(fixture.update(&[(1, 0)]), [0, 1, 2]);
    assert_eq!((fixture.engine.stats().errors, fixture.engine.len()), (1, 0));
    fixture.install(1);
    fixture.install(2);
    fixture.wait(60);
    assert_eq!(fixture.update(&[(2, 1)]), [1]);
    assert_eq!(fixture.engine.stats().errors, 1);
}

#[test]
fn the_change_after_a_fault_evicts_lost_entries() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 2);
    fixture.install(2);
    fixture.engine.shared().is_failing = true;
    fixture.wait(60);
    assert_eq!((fixture.engine.stats().errors, fixture.engine.len()), (1, 3));
    fixture.engine.removed(entry(1));
    assert_eq!(fixture.update(&[(3, 9)]), [0, 2]);
}

/// A later change with an older version does not make the install timely.
#[test]
fn a_late_install_stays_late() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 0);
    let late = fixture.traversal(0);
    fixture.engine.apply(&[], late.version.next());
    fixture.engine.apply(&[], late.version);
    assert_eq!(fixture.engine.installed(entry(0), &late), Installed::Late);
}

#[test]
fn removed_rules_leave_no_rows() {
    let mut fixture = GateFixture::new(PublishedSettings::default(), 2);
    for _ in 0..3 {
        assert_eq!(fixture.update(&[(1, 0)]), [0]);
        let rule = ["table=1,priority=9,ip,nw_dst=0.0.0.0"];
        fixture.install(0);
        fixture.wait(60);
        let change = apply(&fixture.pipeline, FlowModCommand::DeleteStrict, &rule);
        assert_eq!(fixture.engine.apply(&change.deltas, change.version), [entry(0)]);
        fixture.install(0);
        fixture.wait(60);
    }
    // Every table but the last has one rule, and one number is free.
    assert_eq!(fixture.engine.shared().rules.numbers().count(), 3);
    assert!(fixture.engine.shared().rules.get(4).is_none());
}

#[test]
fn the_seed_determines_the_order_of_evictions() {
    let order = |seed| {
        let mut fixture =
            GateFixture::new(PublishedSettings { seed, ..PublishedSettings::default() }, 100);
        let change = fixture.pipeline.set_settings(BRIDGE, BridgeSettings::default()).unwrap();
        let evicted = fixture.engine.apply(&change.deltas, change.version);
        evicted.iter().map(|id| id.slot).collect::<Vec<_>>()
    };
    assert_eq!((order(7).len(), order(7)), (100, order(7)));
    assert_ne!(order(7), order(8));
}

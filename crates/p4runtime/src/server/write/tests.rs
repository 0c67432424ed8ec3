//! Tests that a failed batch is rolled back completely.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use prost::Message;
use shunt_flow::{FieldId, FlowKey, FlowMask, Match};
use shunt_gigaflow::{
    ltm::{LtmRule, Next, Tag},
    partition::StageId,
};

use super::*;
use crate::{
    codec::{Ports, encode},
    entry::key_of,
    program::Program,
    schema::Schema,
    server::response_part::ResponsePart,
    testing::MemoryDevice,
    wire::p4::v1::{
        CounterData, DirectCounterEntry, Entity, TableAction, TableEntry, entity, table_entry,
        update::Type,
    },
};

/// Number of keys of the cases.
const KEYS: u8 = 4;

/// Returns an entry of a key with a `next` action.
fn entry(key: u8, next: u8) -> TableEntry {
    let (mut header, mut mask) = (FlowKey::ZERO, FlowMask::EMPTY);
    header.set_field(FieldId::Ipv4Dst, u32::from(key).into());
    mask.add_field(FieldId::Ipv4Dst);
    let rule = LtmRule {
        tag: Tag::new(0),
        matching: Match::new(&header, &mask),
        length: 1,
        actions: [].into(),
        rewrite: Match::any(),
        next: Next::Tag(Tag::new(next.into())),
    };
    let stage = StageId::new(0).unwrap();
    encode(&Program::default(), &Ports::default(), stage, &rule).unwrap()
}

/// An update of an existing key; a missing key is inserted instead.
#[derive(Clone, Copy, Debug)]
enum KeyUpdate {
    Modify { next: u8 },
    Rename { metadata: u64, timeout: bool },
    Recount { packets: i64 },
    Count { packets: i64 },
    Delete,
}

/// Generates an update of a key.
fn op() -> impl Strategy<Value = KeyUpdate> {
    prop_oneof![
        (1u8..9).prop_map(|next| KeyUpdate::Modify { next }),
        (1u64..9, any::<bool>())
            .prop_map(|(metadata, timeout)| KeyUpdate::Rename { metadata, timeout }),
        (0i64..99).prop_map(|packets| KeyUpdate::Recount { packets }),
        (0i64..99).prop_map(|packets| KeyUpdate::Count { packets }),
        Just(KeyUpdate::Delete),
    ]
}

fn data_of_counter(packets: i64) -> CounterData {
    CounterData { packet_count: packets, byte_count: packets * 64 }
}

/// Returns an update of an entity.
fn of(kind: Type, entity: entity::Entity) -> Update {
    Update { r#type: kind.into(), entity: Some(Entity { entity: Some(entity) }) }
}

/// Returns an update of a table entry.
fn update(kind: Type, entry: TableEntry) -> Update {
    of(kind, entity::Entity::TableEntry(Box::new(entry)))
}

impl KeyUpdate {
    fn update(self, key: u8) -> Update {
        let known = TableEntry { action: None, ..entry(key, 0) };
        match self {
            Self::Modify { next } => update(Type::Modify, entry(key, next)),
            Self::Rename { metadata, timeout } => {
                let idle_timeout_ns = i64::from(timeout) * 1_000_000_000;
                let controller_metadata = metadata;
                update(Type::Modify, TableEntry { controller_metadata, idle_timeout_ns, ..known })
            }
            Self::Recount { packets } => {
                let counter_data = Some(data_of_counter(packets));
                update(Type::Modify, TableEntry { counter_data, ..known })
            }
            Self::Count { packets } => {
                let data = Some(data_of_counter(packets));
                let counter = DirectCounterEntry { table_entry: Some(known), data };
                of(Type::Modify, entity::Entity::DirectCounterEntry(Box::new(counter)))
            }
            Self::Delete => update(Type::Delete, known),
        }
    }
}

/// An entry store and its device in memory.
struct StoreFixture {
    store: EntryStore,
    device: MemoryDevice,
}

impl StoreFixture {
    /// Inserts entries for some keys, and lets packets hit them.
    fn new(keys: &BTreeSet<u8>) -> Self {
        let schema = Schema::read(&Program::default().p4info()).unwrap();
        let mut fixture = Self { store: EntryStore::new(schema), device: MemoryDevice::default() };
        let timed = |key| TableEntry { idle_timeout_ns: 1_000_000_000, ..entry(key, 1) };
        let inserts = keys.iter().map(|key| update(Type::Insert, timed(*key))).collect();
        assert!(fixture.write(inserts, 0).iter().all(Result::is_ok));
        fixture.hit();
        fixture
    }

    /// Adds hits to each entry.
    fn hit(&self) {
        let memory = &mut *self.device.0.lock();
        for (packets, no) in (5..).zip(memory.entries.keys()) {
            let hits = memory.hits.entry(*no).or_default();
            hits.packets += packets;
            hits.bytes += packets * 64;
            hits.last = Some(Duration::from_millis(500));
        }
    }

    /// Reads all entries with counters and times.
    fn read(&mut self) -> Vec<Entity> {
        let selected = TableEntry {
            counter_data: Some(CounterData::default()),
            time_since_last_hit: Some(table_entry::IdleTimeout::default()),
            ..TableEntry::default()
        };
        let selected = Some(entity::Entity::TableEntry(Box::new(selected)));
        let mut query = self.store.check(selected).unwrap();
        let (mut part, now) = (ResponsePart::default(), Duration::from_secs(2));
        while !query.is_done() {
            self.store.read_next(&mut self.device, &mut query, now, 7, &mut part);
        }
        part.take().entities.iter().map(|entity| Entity::decode(&entity[..]).unwrap()).collect()
    }

    /// Returns the actions of the device by match and priority.
    fn installed_actions(&self) -> BTreeMap<(Vec<u8>, i32), Option<TableAction>> {
        let memory = self.device.0.lock();
        let installed = memory.entries.values().map(|entry| {
            ((key_of(&entry.r#match, entry.priority), entry.priority), entry.action.clone())
        });
        let (count, installed) = (memory.entries.len(), installed.collect::<BTreeMap<_, _>>());
        assert_eq!(installed.len(), count, "an entry exists twice");
        installed
    }

    /// Removes all entries and checks that nothing is left.
    fn empty(&mut self, keys: &BTreeSet<u8>) {
        let deletes = keys.iter().map(|key| KeyUpdate::Delete.update(*key)).collect();
        assert!(self.write(deletes, 3).iter().all(Result::is_ok));
        assert!(self.device.0.lock().entries.is_empty());
    }

    /// Writes updates at a time; returns their results.
    fn write(&mut self, updates: Vec<Update>, second: u64) -> Vec<Result<(), EntityError>> {
        let atomicity = Atomicity::RollbackOnError.into();
        let request = WriteRequest { updates, atomicity, ..WriteRequest::default() };
        let now = Duration::from_secs(second);
        write(&mut self.store, &mut self.device, request, now).unwrap()
    }
}

/// Returns an update that always fails: it modifies a missing key.
fn failing() -> Update {
    KeyUpdate::Delete.update(KEYS)
}

/// Returns the updates of a batch, which succeed in order.
fn batch(before: &BTreeSet<u8>, ops: &[(u8, KeyUpdate)]) -> Vec<Update> {
    let mut there = before.clone();
    let update_of = |(key, op): &(u8, KeyUpdate)| {
        if there.insert(*key) {
            return update(Type::Insert, entry(*key, 1));
        }
        if matches!(op, KeyUpdate::Delete) {
            there.remove(key);
        }
        op.update(*key)
    };
    ops.iter().map(update_of).chain([failing()]).collect()
}

/// Checks that a batch with a failing last update changes nothing.
fn check(before: &BTreeSet<u8>, ops: &[(u8, KeyUpdate)]) {
    let mut fixture = StoreFixture::new(before);
    let (read, installed) = (fixture.read(), fixture.installed_actions());
    let mut expected = vec![Err(EntityError::Aborted); ops.len()];
    expected.push(Err(EntityError::NotFound));
    assert_eq!(fixture.write(batch(before, ops), 2), expected);
    assert_eq!(fixture.read(), read);
    assert_eq!(fixture.installed_actions(), installed);
    let due = fixture.store.due(&mut fixture.device, Duration::from_secs(9), usize::MAX);
    assert_eq!(due.entries.len(), before.len(), "each entry has one deadline");
    fixture.empty(before);
}

proptest! {
    #[test]
    fn a_failed_batch_changes_nothing(
        before in prop::collection::btree_set(0..KEYS, 0..4),
        ops in prop::collection::vec((0..KEYS, op()), 0..16),
    ) {
        check(&before, &ops);
    }
}

#[test]
fn a_rolled_back_entry_can_be_removed() {
    let changes = [
        KeyUpdate::Modify { next: 7 },
        KeyUpdate::Count { packets: 50 },
        KeyUpdate::Recount { packets: 50 },
        KeyUpdate::Rename { metadata: 5, timeout: false },
    ];
    for change in changes {
        check(&BTreeSet::from([1]), &[(1, change), (1, KeyUpdate::Delete)]);
    }
}

#[test]
fn a_restored_entry_continues_counting() {
    let mut fixture = StoreFixture::new(&BTreeSet::from([1]));
    let ops = [(1, KeyUpdate::Modify { next: 7 }), (1, KeyUpdate::Delete)];
    fixture.write(batch(&BTreeSet::from([1]), &ops), 2);
    fixture.hit();
    let read = fixture.read();
    let Some(entity::Entity::TableEntry(entry)) = &read[0].entity else { panic!("{read:?}") };
    assert_eq!(entry.counter_data, Some(data_of_counter(10)));
}

#[test]
fn an_update_of_a_lost_entry_fails() {
    let mut fixture = StoreFixture::new(&BTreeSet::from([1]));
    fixture.device.0.lock().entries.clear();
    let results = fixture.write(vec![KeyUpdate::Modify { next: 7 }.update(1)], 2);
    assert_eq!(results, [Err(EntityError::Lost)]);
}

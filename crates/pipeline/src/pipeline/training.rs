//! The training of learned indexes over tables, in a thread of the caller.

use std::{
    mem,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
};

use shunt_classifier::Lifetime;
use shunt_flow::Match;
use shunt_nuevomatch::StartIndexKind;

use super::Pipeline;
use crate::{
    bridges::bridge::VersionedBridge,
    id::{BridgeId, TableId},
    tables::{
        flow_mod::TableSelector,
        learned::{
            learned_rules::LearnedRules,
            learned_table::{ChangeTime, LearnedTable, TrainingToken},
            masked::IndexedFrom,
        },
        rule::Rule,
    },
    time::Time,
};

/// The tables that get a learned index, and the lookups that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexedTables {
    /// Number of rules from which a table gets an index.
    rules_min: usize,
    /// The lookups that use the index.
    lookups: IndexedLookups,
    /// The kind of the indexes.
    kind: StartIndexKind,
}

/// The lookups that use a learned index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IndexedLookups {
    /// Decisions of packets without a cache, which use any index.
    Decisions,
    /// Translations, which only use an index with a short remainder.
    Translations,
}

impl IndexedTables {
    /// No table has an index: all indexes are removed.
    pub const NONE: Self = Self::for_translations(usize::MAX);

    /// Returns the tables with at least `rules_min` rules, to decide packets.
    ///
    /// Packets of computational flows have no cache. The indexes find buckets by a tree.
    #[must_use]
    pub const fn for_decisions(rules_min: usize) -> Self {
        Self { rules_min, lookups: IndexedLookups::Decisions, kind: StartIndexKind::Tree }
    }

    /// Returns the tables with at least `rules_min` rules, for translations alone.
    ///
    /// A table has no index while the remainder of its index would be too long. The indexes find
    /// buckets by a tree.
    #[must_use]
    pub const fn for_translations(rules_min: usize) -> Self {
        Self { rules_min, lookups: IndexedLookups::Translations, kind: StartIndexKind::Tree }
    }

    /// Returns the same tables with indexes of another kind.
    #[must_use]
    pub const fn by(self, kind: StartIndexKind) -> Self {
        Self { kind, ..self }
    }

    /// Returns whether no table gets an index.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.rules_min == usize::MAX
    }

    /// Returns whether a table with this number of rules is large enough.
    pub(crate) fn includes(self, rules: usize) -> bool {
        rules >= self.rules_min.max(1)
    }

    /// Returns whether an index has the kind of these tables.
    pub(crate) fn has_kind_of(self, index: &LearnedRules) -> bool {
        index.kind() == self.kind
    }

    /// Returns whether lookups use an index.
    pub(crate) fn uses(self, index: &LearnedRules) -> bool {
        match self.lookups {
            IndexedLookups::Decisions => true,
            IndexedLookups::Translations => index.has_short_remainder(),
        }
    }

    /// Returns whether a new index may be one that lookups use.
    ///
    /// `changes` is the number of changes since the last training, after which lookups used no
    /// index. The remainder of a new index is shorter only if enough of the rules are new.
    pub(crate) fn may_use_next(self, rules: usize, changes: Option<usize>) -> bool {
        match self.lookups {
            IndexedLookups::Decisions => true,
            IndexedLookups::Translations => {
                changes.is_none_or(|changes| changes >= CHANGES_MIN.max(rules / 10))
            }
        }
    }
}

/// Fewest changes after which a table without an index is trained again.
///
/// After as many changes, all rules of a short remainder may be new.
const CHANGES_MIN: usize = 64;

/// The index of a table cannot hold its rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnindexableTable;

/// The result of the trainings of all tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrainingReport {
    /// Number of tables with an index that cannot hold their rules.
    pub unindexable: usize,
    /// Number of tables with a training that panicked.
    pub panicked: usize,
    /// The earliest time of another training of a table that failed.
    pub retry_at: Option<Time>,
}

/// A table with the next step for its learned index.
struct TableStep {
    id: BridgeId,
    table: TableId,
    /// The next step of its training.
    step: TrainingStep,
    /// The earliest time of a training, if the last one failed.
    retry_at: Option<Time>,
}

/// A training that has begun.
///
/// Without an end, it is abandoned when this value is dropped.
pub(super) struct OpenTraining<'a> {
    pipeline: &'a Pipeline,
    id: BridgeId,
    table: TableId,
    /// The identity of this training.
    token: TrainingToken,
    /// The rules to index, with the versions that see them.
    rules: Vec<(Lifetime, Arc<Rule>)>,
}

impl TrainingReport {
    /// Notes the time of the next training of a table that failed.
    fn delay(&mut self, retry_at: Option<Time>) {
        self.retry_at = self.retry_at.into_iter().chain(retry_at).min();
    }
}

impl OpenTraining<'_> {
    /// Takes the rules that a published version sees.
    pub(super) fn take_rules(&mut self) -> Vec<(Lifetime, Arc<Rule>)> {
        mem::take(&mut self.rules)
    }

    /// Repeats the changes since the start of the training, and replaces the index.
    ///
    /// Returns an index to be freed without a lock.
    pub(super) fn end(
        self,
        trained: Box<LearnedRules>,
    ) -> Result<Option<Box<LearnedRules>>, UnindexableTable> {
        let mut trained = Some(trained);
        let mut repeat = || {
            let log = self.hold(LearnedTable::take_log).unwrap_or_default();
            let is_held = |index: &mut Box<LearnedRules>| {
                log.iter().all(|own| own.apply(index, ChangeTime::Unbounded))
            };
            if trained.as_mut().is_some_and(|index| !is_held(index)) {
                trained = None;
            }
        };
        // Changes wait only while the few changes since the first round are repeated.
        repeat();
        let control = self.pipeline.control.lock();
        repeat();
        let is_held = trained.is_some();
        let former = self.hold(|own, token| own.end_training(token, trained)).flatten();
        drop(control);
        if is_held { Ok(former) } else { Err(UnindexableTable) }
    }

    /// Calls `change` with the table of this training under the lock.
    fn hold<T>(&self, change: impl FnOnce(&mut LearnedTable, &TrainingToken) -> T) -> Option<T> {
        let Self { pipeline, id, table, token, .. } = self;
        pipeline.hold_learned(*id, *table, |own| change(own, token))
    }
}

impl Drop for OpenTraining<'_> {
    fn drop(&mut self) {
        drop(self.hold(LearnedTable::abandon_training));
    }
}

impl Pipeline {
    /// Fewest rules of a table in which translations use a learned index, if there is
    /// one.
    ///
    /// The index is used while few of its rules are in no iSet: 64, and up to 192 of a large table.
    /// A table with clauses of conjunctions is searched by tuple space search.
    pub const INDEXED_RULES_MIN: usize = 1_000;

    /// Replaces [`Self::INDEXED_RULES_MIN`], so that small tables of tests use their
    /// indexes.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_indexed_rules_min(&self, rules_min: usize) {
        self.indexed_rules_min.store(rules_min, Ordering::Relaxed);
    }

    /// Returns the tables in which translations use learned indexes.
    pub(super) fn indexed_from(&self) -> IndexedFrom {
        IndexedFrom(self.indexed_rules_min.load(Ordering::Relaxed))
    }

    /// Returns whether translations use the learned index of a table.
    #[cfg(test)]
    pub(crate) fn is_indexed(&self, id: BridgeId, table: TableId) -> bool {
        let (bridges, from) = (self.bridges.read(), self.indexed_from());
        bridges.iter().filter(|(own, _)| **own == id).any(|(_, bridge)| {
            bridge
                .tables()
                .filter(|(own, _)| *own == table)
                .filter_map(|(_, own)| own.learned())
                .any(|index| index.is_fast_with_masks(from))
        })
    }

    /// Trains the learned indexes of the tables that need a training.
    ///
    /// A large table without an index needs one, and so does an index of another kind, or one that
    /// changes have made slow.
    /// Other tables lose their index. A table that fails is trained again after a pause, and does
    /// not delay the others: a training that panics is abandoned. Takes milliseconds for each ten
    /// thousand rules, mostly without a lock.
    pub fn train_tables(&self, tables: IndexedTables, now: Time) -> TrainingReport {
        self.train_tables_by(tables, now, |id, table| self.train_table(id, table, tables.kind))
    }

    /// Trains the tables that need a training by `train`.
    fn train_tables_by(
        &self,
        tables: IndexedTables,
        now: Time,
        train: impl Fn(BridgeId, TableId) -> Result<(), UnindexableTable>,
    ) -> TrainingReport {
        let (mut report, mut is_trained) = (TrainingReport::default(), false);
        for TableStep { id, table, step, retry_at } in self.training_steps(tables) {
            if step == TrainingStep::Keep {
                continue;
            }
            // Indexes are dropped without a lock, because that may free many rules.
            drop(self.hold_learned(id, table, LearnedTable::take_retired));
            match step {
                TrainingStep::Keep | TrainingStep::Free => {}
                TrainingStep::Forget => drop(self.hold_learned(id, table, LearnedTable::clear)),
                TrainingStep::Train if retry_at.is_some_and(|time| now < time) => {
                    report.delay(retry_at);
                }
                TrainingStep::Train => {
                    match catch_unwind(AssertUnwindSafe(|| train(id, table))) {
                        Ok(Ok(())) => {
                            is_trained = true;
                            continue;
                        }
                        Ok(Err(UnindexableTable)) => report.unindexable += 1,
                        Err(_) => report.panicked += 1,
                    }
                    report.delay(self.hold_learned(id, table, |own| own.pause_after_failure(now)));
                }
            }
        }
        // Lookups do not use a new index with a long remainder, so such an index is dropped.
        let steps = if is_trained { self.training_steps(tables) } else { Vec::new() };
        for own in steps.into_iter().filter(|own| own.step == TrainingStep::Forget) {
            drop(self.hold_learned(own.id, own.table, LearnedTable::clear));
        }
        report
    }

    /// Returns the next step for the learned index of each table.
    fn training_steps(&self, tables: IndexedTables) -> Vec<TableStep> {
        let bridges = self.bridges.read();
        let of_bridge = |(id, bridge): (&BridgeId, &VersionedBridge)| {
            let id = *id;
            let steps = bridge.tables().map(move |(table, own)| {
                let (step, retry_at) = (own.learns_from(tables), own.retry_at());
                TableStep { id, table, step, retry_at }
            });
            steps.collect::<Vec<_>>()
        };
        bridges.iter().flat_map(of_bridge).collect()
    }

    /// Trains the index of a table, unless its training is in progress.
    fn train_table(
        &self,
        id: BridgeId,
        table: TableId,
        kind: StartIndexKind,
    ) -> Result<(), UnindexableTable> {
        let Some(mut open) = self.begin_training(id, table) else { return Ok(()) };
        let trained = LearnedRules::train(open.take_rules(), kind).map(Box::new);
        let trained = trained.ok_or(UnindexableTable)?;
        open.end(trained).map(drop)
    }

    /// Begins a training with the rules that a published version sees.
    ///
    /// Returns `None` if a training of the table is in progress.
    pub(super) fn begin_training(&self, id: BridgeId, table: TableId) -> Option<OpenTraining<'_>> {
        // No change is in progress when the log begins. So the log has all changes of each later
        // version, and no change of the retained one.
        let control = self.control.lock();
        let retained = self.retain_newest();
        let begun = self.hold_learned(id, table, LearnedTable::begin_training);
        drop(control);
        let token = begun.flatten()?;
        let mut open = OpenTraining { pipeline: self, id, table, token, rules: Vec::new() };
        let newest = retained.version();
        self.scan_lifetimes(id, TableSelector::One(table), &Match::any(), |lifetime, rule| {
            if lifetime.added <= newest && !rule.instructions.is_clause() {
                let removed = lifetime.removed().filter(|removed| *removed <= newest);
                let mut until_newest = Lifetime::since(lifetime.added);
                until_newest.end(removed);
                open.rules.push((until_newest, Arc::clone(rule)));
            }
        });
        Some(open)
    }

    /// Changes the learned index of a table under one exclusive lock.
    ///
    /// Returns `None` without such a table.
    fn hold_learned<T>(
        &self,
        id: BridgeId,
        table: TableId,
        change: impl FnOnce(&mut LearnedTable) -> T,
    ) -> Option<T> {
        self.hold(id, |bridge| bridge.table_mut(table).map(|own| change(own.learned_mut())))
            .flatten()
    }
}

/// The next step for the learned index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TrainingStep {
    /// Change nothing of the index.
    Keep,
    /// Free indexes that changes have made useless.
    Free,
    /// Train an index for the table.
    Train,
    /// Remove the index of the table.
    Forget,
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, net::Ipv4Addr, time::Duration};

    use shunt_flow::text::NoPortNames;

    use super::*;
    use crate::{
        bridges::settings::BridgeSettings,
        tables::flow_mod::{FlowMod, FlowModCommand},
        text::parse_rule,
    };

    const BRIDGE: BridgeId = BridgeId::new(1);
    /// The selection of all tables, for translations.
    const TRANSLATIONS: IndexedTables = IndexedTables::for_translations(1);
    /// The selection of all tables, for packets without a cache.
    const DECISIONS: IndexedTables = IndexedTables::for_decisions(1);

    /// Returns a match of all packets between two networks with the address 10.0.0.0.
    fn nested_match(source: u32, destination: u32) -> String {
        let network = |length| Ipv4Addr::from(0x0a00_0000 & (u32::MAX << (32 - length)));
        let [from, to] = [source, destination].map(network);
        format!("ip,nw_src={from}/{source},nw_dst={to}/{destination}")
    }

    /// Returns 576 matches with a common packet, so an iSet holds few of them.
    fn all_nested() -> Vec<String> {
        let lengths = (1..=24).flat_map(|source| (1..=24).map(move |own| (source, own)));
        lengths.map(|(source, destination)| nested_match(source, destination)).collect()
    }

    /// Applies a command to rules with some matches.
    fn change(pipeline: &Pipeline, command: FlowModCommand, matches: &[String]) {
        let actions = if command == FlowModCommand::Add { ",actions=drop" } else { "" };
        let request =
            |own: &String| parse_rule(command, &format!("{own}{actions}"), &NoPortNames).unwrap();
        let requests: Vec<FlowMod> = matches.iter().map(request).collect();
        pipeline.apply(BRIDGE, &requests, Time::ZERO).unwrap();
    }

    /// Returns a pipeline with one table of these rules.
    fn pipeline_of(matches: &[String]) -> Pipeline {
        let pipeline = Pipeline::new(1);
        pipeline.add_bridge(BRIDGE, BridgeSettings::default());
        change(&pipeline, FlowModCommand::Add, matches);
        pipeline
    }

    fn of_table<T>(pipeline: &Pipeline, read: impl FnOnce(&mut LearnedTable) -> T) -> T {
        pipeline.hold_learned(BRIDGE, TableId::FIRST, read).unwrap()
    }

    /// Trains all tables, none of which fails.
    fn train(pipeline: &Pipeline, tables: IndexedTables) {
        assert_eq!(pipeline.train_tables(tables, Time::ZERO), TrainingReport::default());
    }

    fn has_index(pipeline: &Pipeline) -> bool {
        of_table(pipeline, |own| own.index().is_some())
    }

    /// The former index stays until the new one replaces it.
    #[test]
    fn another_kind_of_index_is_trained() {
        let pipeline = pipeline_of(&all_nested());
        let kind = |pipeline| of_table(pipeline, |own| own.index().map(LearnedRules::kind));
        assert_eq!(kind(&pipeline), None);
        for own in [StartIndexKind::Tree, StartIndexKind::Rqrmi, StartIndexKind::Segments] {
            let failed = pipeline.train_tables_by(DECISIONS.by(own), Time::ZERO, |_, _| Ok(()));
            assert_eq!(failed, TrainingReport::default());
            assert_ne!(kind(&pipeline), Some(own));
            train(&pipeline, DECISIONS.by(own));
            assert_eq!(kind(&pipeline), Some(own));
            let keeps = pipeline.training_steps(DECISIONS.by(own));
            assert!(keeps.iter().all(|own| own.step == TrainingStep::Keep));
        }
    }

    /// Translations do not use the index, so rule changes need not keep it up to date.
    #[test]
    fn translations_keep_no_index_with_a_long_remainder() {
        let pipeline = pipeline_of(&all_nested());
        for _ in 0..2 {
            train(&pipeline, TRANSLATIONS);
            assert!(!has_index(&pipeline));
            train(&pipeline, DECISIONS);
            assert!(has_index(&pipeline), "decisions use any index");
        }
    }

    #[test]
    fn dropped_index_is_retrained_after_changes() {
        let all = all_nested();
        let pipeline = pipeline_of(&all);
        train(&pipeline, TRANSLATIONS);
        let (few, rest) = all.split_at(CHANGES_MIN - 1);
        change(&pipeline, FlowModCommand::DeleteStrict, few);
        train(&pipeline, TRANSLATIONS);
        let changes = of_table(&pipeline, |own| own.changes());
        assert_eq!(changes, Some(few.len()), "a training would not pay yet");
        change(&pipeline, FlowModCommand::DeleteStrict, &rest[1..]);
        pipeline.reclaim(pipeline.version());
        train(&pipeline, TRANSLATIONS);
        assert!(has_index(&pipeline));
    }

    /// An older version still sees the removed rules at the first training.
    #[test]
    fn reclaimed_rules_make_another_training_useful() {
        let all = all_nested();
        let pipeline = pipeline_of(&all);
        change(&pipeline, FlowModCommand::DeleteStrict, &all[1..]);
        train(&pipeline, TRANSLATIONS);
        assert!(!has_index(&pipeline), "all rules were trained");
        let version = pipeline.version();
        assert!(pipeline.reclaimed_version() < version);
        pipeline.reclaim(version);
        assert_eq!(pipeline.reclaimed_version(), version);
        train(&pipeline, TRANSLATIONS);
        assert!(has_index(&pipeline));
    }

    /// A rule that moves a long remainder makes the index useless.
    ///
    /// The change neither moves the rules nor frees the index, because lookups wait for it.
    #[test]
    fn the_next_training_frees_a_useless_index() {
        let pipeline = pipeline_of(&all_nested());
        train(&pipeline, DECISIONS);
        // No prefix: a remainder of such rules needs a wider layout.
        change(&pipeline, FlowModCommand::Add, &["ip,nw_src=0.0.0.5/0.0.0.255".to_owned()]);
        assert!(!has_index(&pipeline));
        assert!(of_table(&pipeline, |own| own.has_retired()));
        train(&pipeline, DECISIONS);
        assert!(has_index(&pipeline));
        assert!(!of_table(&pipeline, |own| own.has_retired()));
    }

    /// Two tables need a training, and that of the first fails.
    #[test]
    fn a_failing_table_delays_no_other_table() {
        let pipeline = pipeline_of(&all_nested());
        change(&pipeline, FlowModCommand::Add, &["table=1,arp".to_owned()]);
        let trained = RefCell::new(Vec::new());
        let run = |milliseconds, outcome: fn() -> Result<(), UnindexableTable>| {
            let now = Time::ZERO.after(Duration::from_millis(milliseconds));
            let report = pipeline.train_tables_by(DECISIONS, now, |_, table| {
                trained.borrow_mut().push(table.number());
                if table == TableId::FIRST { outcome() } else { Ok(()) }
            });
            let retry_at = report.retry_at.map(|time| time.since(Time::ZERO).as_millis());
            (trained.take(), report.unindexable, report.panicked, retry_at)
        };
        let panics = || -> Result<(), UnindexableTable> { panic!("the test requests this panic") };
        let unindexable = || Err(UnindexableTable);
        assert_eq!(run(0, panics), (vec![0, 1], 0, 1, Some(1_000)));
        assert_eq!(run(999, unindexable), (vec![1], 0, 0, Some(1_000)), "a pause");
        assert_eq!(run(1_000, unindexable), (vec![0, 1], 1, 0, Some(3_000)));
        // The pauses are bounded.
        let mut now = 3_000;
        for pause in [4_000, 8_000, 16_000, 32_000, 64_000, 64_000] {
            assert_eq!(run(now, unindexable), (vec![0, 1], 1, 0, Some(u128::from(now + pause))));
            now += pause;
        }
        let end = Time::ZERO.after(Duration::from_millis(now));
        assert_eq!(pipeline.train_tables(DECISIONS, end), TrainingReport::default());
        assert!(has_index(&pipeline));
        assert_eq!(of_table(&pipeline, |own| own.retry_at()), None, "a success ends the pauses");
    }

    /// A training that panics leaves a table that can be trained again.
    #[test]
    fn a_training_without_an_end_is_abandoned() {
        let (pipeline, table) = (pipeline_of(&all_nested()), TableId::FIRST);
        let open = pipeline.begin_training(BRIDGE, table).unwrap();
        assert!(pipeline.begin_training(BRIDGE, table).is_none());
        drop(open);
        change(&pipeline, FlowModCommand::Add, &["arp".to_owned()]);
        let next = pipeline.begin_training(BRIDGE, table).unwrap();
        let log = of_table(&pipeline, |own| own.take_log(&next.token));
        assert!(log.is_empty(), "no change was logged between the trainings");
    }
}

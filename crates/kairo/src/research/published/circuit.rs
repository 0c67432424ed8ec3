//! The circuit of the published engine: the tables of a plan as operators of dbsp.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use dbsp::{
    DBSPHandle, Error, IndexedZSetHandle, IndexedZSetReader, NumEntries, OrdIndexedZSet, OrdZSet,
    RootCircuit, Runtime, Stream, ZSetHandle, ZWeight,
    algebra::AddByRef,
    circuit::{CircuitConfig, StepSize},
    utils::{Tup2, Tup3, Tup4},
};
use shunt_pipeline::BridgeId;

use crate::{bound::TableKey, positions::position as row_position, research::lock::locked};

use super::{
    plan::{CircuitPlan, PlanNode},
    rules::{MISS, RankedRule, TupleRow},
    shared_tables::SharedTables,
    state::PacketState,
};

/// A packet as a row: the number and the state of the packet.
pub(super) type PacketRow = Tup2<u64, PacketState>;

/// A match as a row: the rule as a [`RankedRule`], and the packet that it matches.
type MatchRow = Tup4<u16, u64, u32, PacketState>;

/// A packet after the actions of a rule: its next table, its number and its state.
type OnwardRow = Tup3<u8, u64, PacketState>;

/// The packets at a table, added or removed in a step.
type PacketStream = Stream<RootCircuit, OrdZSet<PacketRow>>;
/// The rules of a table, by the fingerprint of their matches.
type RulesByFingerprint = Stream<RootCircuit, OrdIndexedZSet<u64, RankedRule>>;
type MatchRows = OrdIndexedZSet<u64, MatchRow>;

/// The tuples of each table: the masks of its rules, by number.
pub(super) type Tuples = BTreeMap<TableKey, BTreeSet<u32>>;

/// The circuit of the published engine, and its inputs.
pub(super) struct TableCircuit {
    /// The handle of the thread that runs the circuit.
    handle: DBSPHandle,
    inputs: TableInputs,
    /// The tuples of each table, including those added after the build.
    tuples: Tuples,
}

/// The inputs of the circuit.
#[derive(Default)]
struct TableInputs {
    /// The packets that enter each bridge.
    packets: BTreeMap<BridgeId, ZSetHandle<PacketRow>>,
    /// The rules of each table.
    rules: BTreeMap<TableKey, ZSetHandle<TupleRow>>,
    /// Tuples added after the build, all under one key.
    tuples: BTreeMap<TableKey, IndexedZSetHandle<u32, u32>>,
}

/// Rows for the next step of the circuit, each with its weight.
#[derive(Default)]
pub(super) struct TableStepRows {
    packets: BTreeMap<BridgeId, Vec<Tup2<PacketRow, ZWeight>>>,
    rules: BTreeMap<TableKey, Vec<Tup2<TupleRow, ZWeight>>>,
}

/// The rules of a table, which all copies of the table share.
struct CircuitTable {
    /// Rules by fingerprint, one stream per tuple.
    tuples: Vec<(u32, RulesByFingerprint)>,
    /// Tuples added after the build, and their rules.
    later: (Stream<RootCircuit, OrdIndexedZSet<u32, u32>>, RulesByFingerprint),
}

impl TableStepRows {
    /// Adds a packet to the input of the step, or removes it.
    pub(super) fn push_packet(&mut self, bridge: BridgeId, packet: PacketRow, weight: ZWeight) {
        self.packets.entry(bridge).or_default().push(Tup2(packet, weight));
    }

    /// Adds a rule to the input of the step, or removes it.
    pub(super) fn push_rule(&mut self, table_key: TableKey, row: TupleRow, weight: ZWeight) {
        self.rules.entry(table_key).or_default().push(Tup2(row, weight));
    }
}

impl TableCircuit {
    /// Builds the circuit of a plan in its own thread, with a join for each tuple.
    pub(super) fn build(
        shared: &Arc<Mutex<SharedTables>>,
        plan: &CircuitPlan,
        tuples: Tuples,
    ) -> Result<Self, Error> {
        let config = CircuitConfig::with_workers(1).with_step_size(StepSize::FullSteps);
        let (shared, plan, own) = (Arc::clone(shared), plan.clone(), tuples.clone());
        let connect = move |circuit: &mut RootCircuit| Ok(connect(circuit, &shared, &plan, &own));
        let (handle, inputs) = Runtime::init_circuit(config, connect)?;
        Ok(Self { handle, inputs, tuples })
    }

    /// Runs a step with these rows.
    /// Rows for tables that are not in the circuit are dropped.
    pub(super) fn step(&mut self, rows: &mut TableStepRows) -> Result<(), Error> {
        for (bridge, mut packets) in std::mem::take(&mut rows.packets) {
            if let Some(input) = self.inputs.packets.get(&bridge) {
                input.append(&mut packets);
            }
        }
        for (table_key, mut rules) in std::mem::take(&mut rows.rules) {
            let Some(input) = self.inputs.rules.get(&table_key) else { continue };
            let tuples = self.tuples.entry(table_key).or_default();
            for Tup2(Tup3(tuple, ..), _) in &rules {
                if tuples.insert(*tuple)
                    && let Some(later) = self.inputs.tuples.get(&table_key)
                {
                    later.push(0, (*tuple, 1));
                }
            }
            input.append(&mut rules);
        }
        self.handle.transaction()
    }
}

/// Connects the operators of all tables along the plan.
fn connect(
    circuit: &mut RootCircuit,
    shared: &Arc<Mutex<SharedTables>>,
    plan: &CircuitPlan,
    tuples: &Tuples,
) -> TableInputs {
    let mut inputs = TableInputs::default();
    let mut tables: BTreeMap<TableKey, CircuitTable> = BTreeMap::new();
    let mut entering: Vec<Vec<PacketStream>> = plan.nodes.iter().map(|_| Vec::new()).collect();
    for (position, node) in plan.nodes.iter().enumerate() {
        let PlanNode { table_key, next } = node;
        let table = tables.entry(*table_key).or_insert_with(|| {
            let own = tuples.get(table_key).cloned().unwrap_or_default();
            add_table(circuit, *table_key, own, &mut inputs)
        });
        if plan.receives_packets(row_position(position)) {
            let (stream, input) = circuit.add_input_zset::<PacketRow>();
            inputs.packets.insert(table_key.0, input);
            entering[position].push(stream);
        }
        let Some((first, others)) = entering[position].split_first() else { continue };
        let packets = first.sum(others);
        let winners = look_up(&packets, table, shared);
        record_stale(&winners, row_position(position), shared);
        let next_step = apply_actions(&gate(&winners, row_position(position), shared), shared);
        for (table, target) in next {
            let number = table.number();
            let own = next_step.flat_map(move |Tup3(next, id, state)| {
                (*next == number).then(|| Tup2(*id, PacketState::clone(state)))
            });
            entering[*target as usize].push(own);
        }
    }
    inputs
}

/// Adds the input for the rules of a table, split by tuple.
fn add_table(
    circuit: &mut RootCircuit,
    table_key: TableKey,
    tuples: BTreeSet<u32>,
    inputs: &mut TableInputs,
) -> CircuitTable {
    let (rules, rules_input) = circuit.add_input_zset::<TupleRow>();
    let (masks, masks_input) = circuit.add_input_indexed_zset::<u32, u32>();
    inputs.rules.insert(table_key, rules_input);
    inputs.tuples.insert(table_key, masks_input);
    let by_print = |Tup3(_, fingerprint, row): &TupleRow| (*fingerprint, *row);
    let of_tuple = |own: &u32| {
        let number = *own;
        let split = rules.filter(move |Tup3(tuple, ..)| *tuple == number);
        (number, split.map_index(by_print))
    };
    let split = tuples.iter().map(of_tuple).collect();
    let later = rules.filter(move |Tup3(tuple, ..)| !tuples.contains(tuple)).map_index(by_print);
    CircuitTable { tuples: split, later: (masks, later) }
}

/// Finds the rule of the highest rank that each packet matches, or a table miss.
fn look_up(
    packets: &PacketStream,
    table: &CircuitTable,
    shared: &Arc<Mutex<SharedTables>>,
) -> Stream<RootCircuit, MatchRows> {
    let of_tuple = |(tuple, rules): &(u32, RulesByFingerprint)| {
        let (tuple, printing) = (*tuple, Arc::clone(shared));
        let fingerprint =
            move |state: &PacketState| locked(&printing).rules.fingerprint_of(tuple, state);
        let keyed = packets.map_index(move |packet| (fingerprint(&packet.1), packet.clone()));
        join(&keyed, rules, shared)
    };
    let mut matches: Vec<_> = table.tuples.iter().map(of_tuple).collect();
    let (tuples, rules) = &table.later;
    let printing = Arc::clone(shared);
    let keyed = packets.map_index(|packet| (0, packet.clone())).join_index(
        tuples,
        move |_, packet: &PacketRow, tuple| {
            let fingerprint = locked(&printing).rules.fingerprint_of(*tuple, &packet.1);
            Some((fingerprint, packet.clone()))
        },
    );
    matches.push(join(&keyed, rules, shared));
    let (priority, lateness, number) = MISS;
    let misses = packets.map_index(move |Tup2(id, state)| {
        (*id, Tup4(priority, lateness, number, PacketState::clone(state)))
    });
    misses.sum(&matches).topk_desc(1)
}

/// Joins packets and rules by fingerprint, and keeps the pairs that match.
fn join(
    packets: &Stream<RootCircuit, OrdIndexedZSet<u64, PacketRow>>,
    rules: &RulesByFingerprint,
    shared: &Arc<Mutex<SharedTables>>,
) -> Stream<RootCircuit, MatchRows> {
    let shared = Arc::clone(shared);
    packets.join_index(rules, move |_, Tup2(id, state), Tup3(priority, lateness, number)| {
        let matches = locked(&shared).rules.matches(*number, state);
        matches.then(|| (*id, Tup4(*priority, *lateness, *number, PacketState::clone(state))))
    })
}

/// Records the packets that no longer match their rule, while rules change.
fn record_stale(
    winners: &Stream<RootCircuit, MatchRows>,
    position: u32,
    shared: &Arc<Mutex<SharedTables>>,
) {
    let shared = Arc::clone(shared);
    winners.inspect(move |changes: &MatchRows| {
        let mut shared = locked(&shared);
        #[cfg(test)]
        assert!(!std::mem::take(&mut shared.is_failing), "the test asks for a fault");
        if shared.records_stale {
            let lost = changes.iter().filter(|(_, _, weight)| *weight < 0);
            shared.stale.extend(lost.map(|(id, ..)| (id, position)));
        }
    });
}

/// Passes on new and held changes of matches, or holds all of them.
fn gate(
    winners: &Stream<RootCircuit, MatchRows>,
    position: u32,
    shared: &Arc<Mutex<SharedTables>>,
) -> Stream<RootCircuit, MatchRows> {
    let shared = Arc::clone(shared);
    let mut held = MatchRows::default();
    winners.apply_mut(move |changes| {
        let mut shared = locked(&shared);
        let is_open = position < shared.open_below;
        let all = match held.num_entries_shallow() {
            0 => changes.clone(),
            _ => held.add_by_ref(changes),
        };
        let (out, kept) =
            if is_open { (all, MatchRows::default()) } else { (MatchRows::default(), all) };
        shared.held[position as usize] = kept.num_entries_deep();
        held = kept;
        out
    })
}

/// Applies to each packet the actions of the rule that it matched.
fn apply_actions(
    winners: &Stream<RootCircuit, MatchRows>,
    shared: &Arc<Mutex<SharedTables>>,
) -> Stream<RootCircuit, OrdZSet<OnwardRow>> {
    let shared = Arc::clone(shared);
    winners.flat_map(move |(id, Tup4(_, _, number, state))| {
        let next_step = locked(&shared).apply_actions(*number, state);
        next_step.map(|(table, state)| Tup3(table, *id, state))
    })
}

//! The circuit: the tables of a plan in operators of dbsp.

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

use super::{
    plan::{Node, Place, Plan},
    relation::{Relation, locked},
    rules::{MISS, RuleRow, TupleRow},
    state::State,
};

/// A packet: its number, and how it is.
pub(super) type PacketRow = Tup2<u64, State>;

/// A rule that a packet matches: its rank and number as in [`RuleRow`], and the packet before it.
type MatchRow = Tup4<u16, u64, u32, State>;

/// A packet on its way: the table that it enters, its number, and how it is.
type OnwardRow = Tup3<u8, u64, State>;

type Packets = Stream<RootCircuit, OrdZSet<PacketRow>>;
type ByPrint = Stream<RootCircuit, OrdIndexedZSet<u64, RuleRow>>;
type Matches = OrdIndexedZSet<u64, MatchRow>;

/// The tuples that a table has.
pub(super) type Tuples = BTreeMap<Place, BTreeSet<u32>>;

/// A circuit and its inputs.
pub(super) struct Circuit {
    handle: DBSPHandle,
    inputs: Inputs,
    /// The tuples of each table, those that came later included.
    tuples: Tuples,
}

#[derive(Default)]
struct Inputs {
    packets: BTreeMap<BridgeId, ZSetHandle<PacketRow>>,
    rules: BTreeMap<Place, ZSetHandle<TupleRow>>,
    /// Tuples that came later, all under one key.
    tuples: BTreeMap<Place, IndexedZSetHandle<u32, u32>>,
}

/// Rows that wait for the next step, each with its weight.
#[derive(Default)]
pub(super) struct Rows {
    packets: BTreeMap<BridgeId, Vec<Tup2<PacketRow, ZWeight>>>,
    rules: BTreeMap<Place, Vec<Tup2<TupleRow, ZWeight>>>,
}

/// The rules of a table, as its copies meet them.
struct Table {
    /// By print, for each tuple.
    tuples: Vec<(u32, ByPrint)>,
    /// Tuples that came later, and their rules.
    later: (Stream<RootCircuit, OrdIndexedZSet<u32, u32>>, ByPrint),
}

impl Rows {
    pub(super) fn push_packet(&mut self, bridge: BridgeId, packet: PacketRow, weight: ZWeight) {
        self.packets.entry(bridge).or_default().push(Tup2(packet, weight));
    }

    pub(super) fn push_rule(&mut self, place: Place, row: TupleRow, weight: ZWeight) {
        self.rules.entry(place).or_default().push(Tup2(row, weight));
    }
}

impl Circuit {
    /// The circuit of a plan, in a thread of its own, with a join for each of these tuples.
    pub(super) fn build(
        relation: &Arc<Mutex<Relation>>,
        plan: &Plan,
        tuples: Tuples,
    ) -> Result<Self, Error> {
        let config = CircuitConfig::with_workers(1).with_step_size(StepSize::FullSteps);
        let (relation, plan, own) = (Arc::clone(relation), plan.clone(), tuples.clone());
        let connect = move |circuit: &mut RootCircuit| Ok(connect(circuit, &relation, &plan, &own));
        let (handle, inputs) = Runtime::init_circuit(config, connect)?;
        Ok(Self { handle, inputs, tuples })
    }

    /// Makes a step with these rows. What no table of the circuit is for is left out.
    pub(super) fn step(&mut self, rows: &mut Rows) -> Result<(), Error> {
        for (bridge, mut packets) in std::mem::take(&mut rows.packets) {
            if let Some(input) = self.inputs.packets.get(&bridge) {
                input.append(&mut packets);
            }
        }
        for (place, mut rules) in std::mem::take(&mut rows.rules) {
            let Some(input) = self.inputs.rules.get(&place) else { continue };
            let tuples = self.tuples.entry(place).or_default();
            for Tup2(Tup3(tuple, ..), _) in &rules {
                if tuples.insert(*tuple)
                    && let Some(later) = self.inputs.tuples.get(&place)
                {
                    later.push(0, (*tuple, 1));
                }
            }
            input.append(&mut rules);
        }
        self.handle.transaction()
    }
}

fn connect(
    circuit: &mut RootCircuit,
    relation: &Arc<Mutex<Relation>>,
    plan: &Plan,
    tuples: &Tuples,
) -> Inputs {
    let mut inputs = Inputs::default();
    let mut tables: BTreeMap<Place, Table> = BTreeMap::new();
    let mut entering: Vec<Vec<Packets>> = plan.nodes.iter().map(|_| Vec::new()).collect();
    for (position, node) in plan.nodes.iter().enumerate() {
        let Node { place, next } = node;
        let table = tables.entry(*place).or_insert_with(|| {
            let own = tuples.get(place).cloned().unwrap_or_default();
            add_table(circuit, *place, own, &mut inputs)
        });
        if plan.is_entrance(index(position)) {
            let (stream, input) = circuit.add_input_zset::<PacketRow>();
            inputs.packets.insert(place.0, input);
            entering[position].push(stream);
        }
        let Some((first, others)) = entering[position].split_first() else { continue };
        let packets = first.sum(others);
        let winners = look_up(&packets, table, relation);
        listen(&winners, index(position), relation);
        let onward = act(&gate(&winners, index(position), relation), relation);
        for (table, target) in next {
            let number = table.number();
            let own = onward.flat_map(move |Tup3(next, id, state)| {
                (*next == number).then(|| Tup2(*id, State::clone(state)))
            });
            entering[*target as usize].push(own);
        }
    }
    inputs
}

/// The input of a table's rules, split by tuple.
fn add_table(
    circuit: &mut RootCircuit,
    place: Place,
    tuples: BTreeSet<u32>,
    inputs: &mut Inputs,
) -> Table {
    let (rules, rules_input) = circuit.add_input_zset::<TupleRow>();
    let (masks, masks_input) = circuit.add_input_indexed_zset::<u32, u32>();
    inputs.rules.insert(place, rules_input);
    inputs.tuples.insert(place, masks_input);
    let by_print = |Tup3(_, print, row): &TupleRow| (*print, *row);
    let of_tuple = |own: &u32| {
        let number = *own;
        let split = rules.filter(move |Tup3(tuple, ..)| *tuple == number);
        (number, split.map_index(by_print))
    };
    let split = tuples.iter().map(of_tuple).collect();
    let later = rules.filter(move |Tup3(tuple, ..)| !tuples.contains(tuple)).map_index(by_print);
    Table { tuples: split, later: (masks, later) }
}

/// The rule of the top rank that each packet matches, or its miss.
fn look_up(
    packets: &Packets,
    table: &Table,
    relation: &Arc<Mutex<Relation>>,
) -> Stream<RootCircuit, Matches> {
    let of_tuple = |(tuple, rules): &(u32, ByPrint)| {
        let (tuple, printing) = (*tuple, Arc::clone(relation));
        let print = move |state: &State| locked(&printing).rules.print_of(tuple, state);
        let keyed = packets.map_index(move |packet| (print(&packet.1), packet.clone()));
        join(&keyed, rules, relation)
    };
    let mut matches: Vec<_> = table.tuples.iter().map(of_tuple).collect();
    let (tuples, rules) = &table.later;
    let printing = Arc::clone(relation);
    let keyed = packets.map_index(|packet| (0, packet.clone())).join_index(
        tuples,
        move |_, packet: &PacketRow, tuple| {
            let print = locked(&printing).rules.print_of(*tuple, &packet.1);
            Some((print, packet.clone()))
        },
    );
    matches.push(join(&keyed, rules, relation));
    let (priority, lateness, number) = MISS;
    let misses = packets.map_index(move |Tup2(id, state)| {
        (*id, Tup4(priority, lateness, number, State::clone(state)))
    });
    misses.sum(&matches).topk_desc(1)
}

/// Packets and rules of one print, where the rule matches.
fn join(
    packets: &Stream<RootCircuit, OrdIndexedZSet<u64, PacketRow>>,
    rules: &ByPrint,
    relation: &Arc<Mutex<Relation>>,
) -> Stream<RootCircuit, Matches> {
    let relation = Arc::clone(relation);
    packets.join_index(rules, move |_, Tup2(id, state), Tup3(priority, lateness, number)| {
        let is_met = locked(&relation).rules.is_met(*number, state);
        is_met.then(|| (*id, Tup4(*priority, *lateness, *number, State::clone(state))))
    })
}

/// Notes packets that lose their rule, while rules change.
fn listen(winners: &Stream<RootCircuit, Matches>, position: u32, relation: &Arc<Mutex<Relation>>) {
    let relation = Arc::clone(relation);
    winners.inspect(move |changes: &Matches| {
        let mut relation = locked(&relation);
        #[cfg(test)]
        assert!(!std::mem::take(&mut relation.is_failing), "a fault was asked for");
        if relation.is_listening {
            let lost = changes.iter().filter(|(_, _, weight)| *weight < 0);
            relation.stale.extend(lost.map(|(id, ..)| (id, position)));
        }
    });
}

/// Lets changes through, and what it has held with them; or holds them.
fn gate(
    winners: &Stream<RootCircuit, Matches>,
    position: u32,
    relation: &Arc<Mutex<Relation>>,
) -> Stream<RootCircuit, Matches> {
    let relation = Arc::clone(relation);
    let mut held = Matches::default();
    winners.apply_mut(move |changes| {
        let mut relation = locked(&relation);
        let is_open = position < relation.open_below;
        let all = match held.num_entries_shallow() {
            0 => changes.clone(),
            _ => held.add_by_ref(changes),
        };
        let (out, kept) =
            if is_open { (all, Matches::default()) } else { (Matches::default(), all) };
        relation.held[position as usize] = kept.num_entries_deep();
        held = kept;
        out
    })
}

/// Does what each packet's rule says.
fn act(
    winners: &Stream<RootCircuit, Matches>,
    relation: &Arc<Mutex<Relation>>,
) -> Stream<RootCircuit, OrdZSet<OnwardRow>> {
    let relation = Arc::clone(relation);
    winners.flat_map(move |(id, Tup4(_, _, number, state))| {
        let onward = locked(&relation).act(*number, state);
        onward.map(|(table, state)| Tup3(table, *id, state))
    })
}

fn index(position: usize) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}

//! The plan of a circuit: its tables, in the order in which packets pass them.
//!
//! Rules lead from table to table, and some rules lead back. Tables that lead to each other form a
//! strongly connected component. The components are put in topological order. A component with a
//! cycle is unrolled: its tables have a copy in each layer. An edge inside the component leads to
//! the next layer, and an edge to another component leaves from any layer. So every edge leads to a
//! higher position, and the position of a table alone decides whether its gate is open.

use std::collections::{BTreeMap, BTreeSet};

use shunt_pipeline::{BridgeId, TableId};

use crate::{bound::TableKey, positions::position};

/// For each table, the tables that its rules lead to.
pub(super) type TableEdges = BTreeMap<TableKey, BTreeSet<TableId>>;

/// A table of the plan, or one copy of a table in a layer.
#[derive(Clone, Debug)]
pub(super) struct PlanNode {
    /// The bridge and the id of the table.
    pub(super) table_key: TableKey,
    /// Position of the next table, by its id.
    pub(super) next: BTreeMap<TableId, u32>,
}

/// All tables that packets can enter, each copy with a position.
#[derive(Clone, Debug, Default)]
pub(super) struct CircuitPlan {
    /// The copies by their positions.
    pub(super) nodes: Vec<PlanNode>,
    /// The positions of the copies of each table.
    copies: BTreeMap<TableKey, Vec<u32>>,
}

impl CircuitPlan {
    /// Creates the plan for packets that arrive on these bridges.
    pub(super) fn new(bridges: &BTreeSet<BridgeId>, edges: &TableEdges, layers: usize) -> Self {
        let mut plan = Self::default();
        bridges.iter().for_each(|bridge| plan.add_bridge(*bridge, edges, layers));
        plan
    }

    /// Returns whether packets of a bridge can enter the circuit.
    pub(super) fn has_bridge(&self, bridge: BridgeId) -> bool {
        self.copies.contains_key(&(bridge, TableId::FIRST))
    }

    /// Returns whether packets enter the circuit at this position.
    /// Packets enter at the first copy of the first table of a bridge.
    pub(super) fn receives_packets(&self, position: u32) -> bool {
        let table_key = self.nodes.get(position as usize).map(|node| node.table_key);
        table_key.is_some_and(|table_key| {
            table_key.1 == TableId::FIRST && self.copies(table_key).first() == Some(&position)
        })
    }

    /// Returns whether the plan has an edge from a table to `next`.
    pub(super) fn has_edge(&self, table_key: TableKey, next: TableId) -> bool {
        // The last layer of a component has no edge inside the component.
        let successors = |position: &u32| self.nodes[*position as usize].next.contains_key(&next);
        self.copies(table_key).is_empty() || self.copies(table_key).iter().any(successors)
    }

    /// Returns the positions of a table, the lowest first.
    pub(super) fn copies(&self, table_key: TableKey) -> &[u32] {
        self.copies.get(&table_key).map_or(&[], Vec::as_slice)
    }

    /// Returns the positions of a packet that passes these tables of a bridge in order.
    ///
    /// The result is `None` if the packet passes a table more often than there are layers, or if an
    /// edge is missing.
    pub(super) fn path(
        &self,
        bridge: BridgeId,
        tables: impl Iterator<Item = TableId>,
    ) -> Option<Vec<u32>> {
        let mut path: Vec<u32> = Vec::new();
        for table in tables {
            let position = match path.last() {
                Some(last) => *self.nodes[*last as usize].next.get(&table)?,
                None => *self.copies((bridge, table)).first()?,
            };
            path.push(position);
        }
        Some(path)
    }

    /// Adds the tables of a bridge; a cycle of tables is repeated in layers.
    fn add_bridge(&mut self, bridge: BridgeId, edges: &TableEdges, layers: usize) {
        let successors =
            |table: TableId| edges.get(&(bridge, table)).into_iter().flatten().copied();
        let mut entered = BTreeSet::from([TableId::FIRST]);
        let mut at = BTreeMap::new();
        for (number, component) in components(TableId::FIRST, successors).into_iter().enumerate() {
            let is_cycle =
                component.iter().any(|table| successors(*table).any(|to| component.contains(&to)));
            let mut layer: BTreeSet<TableId> = component.intersection(&entered).copied().collect();
            for depth in 0..if is_cycle { layers.max(1) } else { 1 } {
                let mut deeper = BTreeSet::new();
                for table in &layer {
                    at.insert((number, depth, *table), self.add_node((bridge, *table)));
                    let (within, out): (Vec<_>, Vec<_>) =
                        successors(*table).partition(|to| component.contains(to));
                    deeper.extend(within);
                    entered.extend(out);
                }
                layer = deeper;
            }
        }
        let first: BTreeMap<TableId, usize> = at
            .keys()
            .filter(|(_, depth, _)| *depth == 0)
            .map(|(own, _, table)| (*table, *own))
            .collect();
        let component_of = |table: TableId| {
            at.keys().find(|(_, _, own)| *own == table).map(|(number, ..)| *number)
        };
        for ((number, depth, table), position) in &at {
            for to in successors(*table) {
                let target = if component_of(to) == Some(*number) {
                    (*number, depth + 1, to)
                } else {
                    // No component has the number `usize::MAX`, so the table is not found.
                    (first.get(&to).copied().unwrap_or(usize::MAX), 0, to)
                };
                if let Some(target) = at.get(&target) {
                    self.nodes[*position as usize].next.insert(to, *target);
                }
            }
        }
    }

    /// Adds a node for a table, and returns its number.
    fn add_node(&mut self, table_key: TableKey) -> u32 {
        let position = position(self.nodes.len());
        self.nodes.push(PlanNode { table_key, next: BTreeMap::new() });
        self.copies.entry(table_key).or_default().push(position);
        position
    }
}

/// Returns the strongly connected components that `start` reaches.
/// The components are in topological order.
///
/// The algorithm of S. R. Kosaraju uses two searches: the backward search begins with the tables
/// that the forward search finishes last.
fn components<I: Iterator<Item = TableId>>(
    start: TableId,
    successors: impl Fn(TableId) -> I,
) -> Vec<BTreeSet<TableId>> {
    let finished = finish_order(start, |table| successors(table).collect(), &mut BTreeSet::new());
    let mut back: BTreeMap<TableId, Vec<TableId>> = BTreeMap::new();
    for table in &finished {
        successors(*table).for_each(|to| back.entry(to).or_default().push(*table));
    }
    let (mut seen, mut components) = (BTreeSet::new(), Vec::new());
    for table in finished.iter().rev() {
        if !seen.contains(table) {
            let before = |table| back.get(&table).cloned().unwrap_or_default();
            components.push(finish_order(*table, before, &mut seen).into_iter().collect());
        }
    }
    components
}

/// Returns the tables that a depth-first search from `start` visits.
/// The tables are in the order in which the search finishes them.
///
/// The search skips the tables in `seen`, and adds visited tables to `seen`.
fn finish_order(
    start: TableId,
    successors: impl Fn(TableId) -> Vec<TableId>,
    seen: &mut BTreeSet<TableId>,
) -> Vec<TableId> {
    let mut finished = Vec::new();
    let mut open = vec![(start, successors(start).into_iter())];
    seen.insert(start);
    while let Some((table, rest)) = open.last_mut() {
        match rest.next() {
            Some(to) if seen.insert(to) => open.push((to, successors(to).into_iter())),
            Some(_) => {}
            None => {
                finished.push(*table);
                open.pop();
            }
        }
    }
    finished
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BRIDGE: BridgeId = BridgeId::new(1);

    /// Returns the id of a table.
    fn table(number: u8) -> TableId {
        TableId::new(number).unwrap()
    }

    /// Returns the plan of a circuit for some edges.
    fn plan(edges: &[(u8, u8)], layers: usize) -> CircuitPlan {
        let mut all = TableEdges::new();
        for (from, to) in edges {
            all.entry((BRIDGE, table(*from))).or_default().insert(table(*to));
        }
        CircuitPlan::new(&BTreeSet::from([BRIDGE]), &all, layers)
    }

    /// Returns the nodes of a path through the tables.
    fn path(plan: &CircuitPlan, tables: &[u8]) -> Option<Vec<u32>> {
        plan.path(BRIDGE, tables.iter().map(|number| table(*number)))
    }

    #[test]
    fn unreachable_tables_are_left_out() {
        let plan = plan(&[(0, 2), (1, 2)], 4);
        let places: Vec<_> = plan.nodes.iter().map(|node| node.table_key.1.number()).collect();
        assert_eq!(places, [0, 2]);
    }

    #[test]
    fn a_cycle_has_one_entry_layer() {
        let plan = plan(&[(0, 5), (5, 3), (3, 5), (3, 9)], 2);
        // The packet passes table 5 in the first layer, and table 3 in the second.
        assert_eq!(path(&plan, &[0, 5, 3, 9]), Some(vec![0, 1, 2, 3]));
        assert_eq!(path(&plan, &[0, 5, 3, 5]), None);
    }

    #[test]
    fn a_table_that_leads_to_itself_is_copied() {
        let plan = plan(&[(0, 0), (0, 1)], 3);
        assert_eq!(path(&plan, &[0, 0, 0, 1]), Some(vec![0, 1, 2, 3]));
        assert_eq!(path(&plan, &[0, 1]), Some(vec![0, 3]));
        assert_eq!(path(&plan, &[0, 0, 0, 0]), None);
    }

    proptest! {
        #[test]
        fn every_short_path_is_in_the_plan(
            edges in prop::collection::vec((0u8..6, 0u8..6), 0..12),
            turns in prop::collection::vec(any::<prop::sample::Index>(), 3),
        ) {
            let plan = plan(&edges, 4);
            for (position, node) in (0..).zip(&plan.nodes) {
                prop_assert!(node.next.values().all(|next| *next > position));
            }
            // The packet passes as many tables of the cycle as there are layers.
            let mut walk = vec![0];
            for turn in turns {
                let here = *walk.last().unwrap();
                let next: Vec<u8> =
                    edges.iter().filter(|(from, _)| *from == here).map(|(_, to)| *to).collect();
                if next.is_empty() {
                    break;
                }
                walk.push(*turn.get(&next));
            }
            let path = path(&plan, &walk);
            prop_assert!(path.is_some(), "{walk:?}");
            let places = path.unwrap().into_iter().map(|own| plan.nodes[own as usize].table_key.1);
            prop_assert!(places.map(TableId::number).eq(walk));
        }
    }
}

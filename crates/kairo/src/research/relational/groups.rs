//! Groups of visits, and the masks under which each group is projected.
//!
//! The lists of groups and masks only grow, because rows in the circuit refer to them by number.
//! The lists of groups and masks are bounded.

use dbsp::ZWeight;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowMask, SparseMask};

use crate::{
    bound::TableKey,
    masks::{common, in_bytes},
    positions::position,
};

/// A projection: the numbers of its group and of its mask.
pub(super) type ProjectionId = (u32, u32);

/// All groups and masks.
pub(super) struct ProjectedGroups {
    /// The groups by their numbers.
    groups: Vec<ProjectedGroup>,
    /// The numbers of the groups of each table.
    tables: HashMap<TableKey, Vec<u32>, FixedState>,
    /// The number of the group of each table and mask.
    by_mask: HashMap<(TableKey, SparseMask), u32, FixedState>,
    /// The masks of projections, by their numbers.
    masks: Vec<SparseMask>,
    /// The number of each mask of a projection.
    numbers: HashMap<SparseMask, u32, FixedState>,
}

/// A plan to search a group for the visits that a rule overlaps.
#[derive(Debug)]
pub(super) struct GroupSearch {
    /// The best projection for the mask of the rule, if there is one.
    pub(super) projection: Option<ProjectionId>,
    /// True if the projection has all bits of the rule.
    /// If it is exact, every visit that a query finds overlaps the rule.
    pub(super) is_exact: bool,
    /// The mask of a better projection, if the group has room for one more.
    pub(super) missing_mask: Option<SparseMask>,
}

/// A group: the visits of one table that consulted the same bits.
struct ProjectedGroup {
    mask: SparseMask,
    /// The numbers of the masks of the projections.
    projections: Vec<u32>,
    /// Number of rows of the group, in the circuit or waiting for a step.
    rows: ZWeight,
}

/// The sizes of the relations of groups in the circuit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct GroupRows {
    /// Number of groups of visits that are not empty.
    pub(super) groups: usize,
    /// Number of visits of all groups.
    pub(super) visits: usize,
    /// Number of projections, summed over all groups.
    pub(super) projections: usize,
    /// Number of fingerprints: one per visit and projection of its group.
    pub(super) fingerprints: usize,
}

/// Number of groups of a table that have exactly the mask of their visits.
const GROUPS_EXACT: usize = 16;

/// Maximum number of groups of a table.
///
/// Beyond [`GROUPS_EXACT`], masks of groups are cut to whole bytes. At [`GROUPS_MAX`], a visit with
/// another mask is added to a group with an empty mask.
const GROUPS_MAX: usize = 64;

/// Maximum number of projections of a group.
/// Rules with other masks use the best of these projections.
const PROJECTIONS_MAX: usize = 16;

impl ProjectedGroups {
    /// Creates an empty set; its hash tables use `hashes`.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            groups: Vec::new(),
            tables: HashMap::with_hasher(hashes.clone()),
            by_mask: HashMap::with_hasher(hashes.clone()),
            masks: Vec::new(),
            numbers: HashMap::with_hasher(hashes.clone()),
        }
    }

    /// Returns the group for a visit of a table that consulted `mask`.
    pub(super) fn group_for(&mut self, table: TableKey, mask: &SparseMask) -> u32 {
        if let Some(number) = self.by_mask.get(&(table, mask.clone())) {
            return *number;
        }
        let mask = match self.tables.get(&table).map_or(0, Vec::len) {
            0..GROUPS_EXACT => mask.clone(),
            GROUPS_EXACT..GROUPS_MAX => in_bytes(mask),
            _ => SparseMask::from(&FlowMask::EMPTY),
        };
        let number = self.groups.len();
        *self.by_mask.entry((table, mask.clone())).or_insert_with(|| {
            let number = position(number);
            self.groups.push(ProjectedGroup { mask, projections: Vec::new(), rows: 0 });
            self.tables.entry(table).or_default().push(number);
            number
        })
    }

    /// Returns the groups of a table.
    pub(super) fn of(&self, table: TableKey) -> &[u32] {
        self.tables.get(&table).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the plan to find the visits of a group that a rule with a mask overlaps.
    pub(super) fn group_search(&self, group: u32, mask: &SparseMask) -> GroupSearch {
        let own = &self.groups[group as usize];
        let wanted = common(&own.mask, mask);
        let mask_of = |number: &u32| &self.masks[*number as usize];
        let usable = own.projections.iter().filter(|own| mask.has_all_of(mask_of(own)));
        let best = usable.max_by_key(|own| mask_of(own).bits_count()).copied();
        let best_bits = best.map_or(0, |best| mask_of(&best).bits_count());
        let has_room = own.projections.len() < PROJECTIONS_MAX;
        let missing_mask = (best_bits < wanted.bits_count() && has_room).then_some(wanted);
        let is_exact = best_bits == mask.bits_count();
        GroupSearch { projection: best.map(|best| (group, best)), is_exact, missing_mask }
    }

    /// Adds a projection of a group under a mask, from the next step on.
    /// Does nothing if the group has this projection already, or has [`PROJECTIONS_MAX`]
    /// projections.
    pub(super) fn project(&mut self, group: u32, mask: &SparseMask) -> Option<ProjectionId> {
        let number = self.number(mask.clone());
        let own = &mut self.groups[group as usize].projections;
        if own.len() >= PROJECTIONS_MAX || own.contains(&number) {
            return None;
        }
        own.push(number);
        Some((group, number))
    }

    /// Counts a row that is added to a group or removed from it.
    pub(super) fn add_weight(&mut self, group: u32, weight: ZWeight) {
        self.groups[group as usize].rows += weight;
    }

    /// Returns the numbers of rows, in time linear in the number of groups.
    pub(super) fn rows(&self) -> GroupRows {
        self.groups.iter().fold(GroupRows::default(), |all, group| {
            let (rows, projections) = (row_count(group.rows), group.projections.len());
            GroupRows {
                groups: all.groups + usize::from(rows > 0),
                visits: all.visits + rows,
                projections: all.projections + projections,
                fingerprints: all.fingerprints + rows * projections,
            }
        })
    }

    /// Returns a mask by its number.
    pub(super) fn mask(&self, number: u32) -> Option<&SparseMask> {
        self.masks.get(number as usize)
    }

    /// Returns the number of a projection; adds it if it is new.
    fn number(&mut self, mask: SparseMask) -> u32 {
        let next = position(self.masks.len());
        *self.numbers.entry(mask).or_insert_with_key(|mask| {
            self.masks.push(mask.clone());
            next
        })
    }
}

/// Returns the number of rows for a sum of weights.
pub(super) fn row_count(weight: ZWeight) -> usize {
    usize::try_from(weight).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use shunt_flow::FieldId;
    use shunt_pipeline::{BridgeId, TableId};

    use super::*;

    /// Returns a mask of some bits.
    fn mask(bits: u128) -> SparseMask {
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::Ipv6Dst, bits);
        SparseMask::from(&mask)
    }

    #[test]
    fn rules_with_many_masks_keep_memory_bounded() {
        let mut groups = ProjectedGroups::new(&FixedState::default());
        let table = (BridgeId::new(1), TableId::FIRST);
        assert_eq!(groups.group_for(table, &mask(u128::MAX)), 0);
        for bits in 1..1000 {
            if let Some(mask) = groups.group_search(0, &mask(bits)).missing_mask {
                assert!(groups.project(0, &mask).is_some());
            }
        }
        assert_eq!(groups.masks.len(), PROJECTIONS_MAX);
    }
}

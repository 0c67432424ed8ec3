//! Groups of visits, and the masks under which each is projected.
//!
//! Both only grow, as rows in the circuit name them by number; and both are bounded.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use shunt_flow::{FlowMask, SparseMask};
use shunt_pipeline::{BridgeId, TableId};

use crate::masks::{common, in_bytes};

/// A table of a bridge.
pub(super) type Place = (BridgeId, TableId);

/// A group and a mask under which it is projected, by number.
pub(super) type Projection = (u32, u32);

/// All groups and masks.
pub(super) struct Groups {
    groups: Vec<Group>,
    places: HashMap<Place, Vec<u32>, FixedState>,
    by_mask: HashMap<(Place, SparseMask), u32, FixedState>,
    masks: Vec<SparseMask>,
    numbers: HashMap<SparseMask, u32, FixedState>,
}

/// Visits of one table that consulted the same bits.
struct Group {
    mask: SparseMask,
    projections: Vec<u32>,
}

/// Groups of a table whose masks are those of visits.
const GROUPS_USUAL: usize = 16;

/// Groups of a table: beyond the usual, their masks are in whole bytes; a visit with yet another mask
/// goes where nothing is known of its bits.
const GROUPS_MAX: usize = 64;

/// Masks under which a group is projected, besides that of no bits. Rules of other masks go by the
/// best of these.
const PROJECTIONS_MAX: usize = 16;

impl Groups {
    /// None, and the hashes that they are to have.
    pub(super) fn new(hashes: &FixedState) -> Self {
        Self {
            groups: Vec::new(),
            places: HashMap::with_hasher(hashes.clone()),
            by_mask: HashMap::with_hasher(hashes.clone()),
            masks: Vec::new(),
            numbers: HashMap::with_hasher(hashes.clone()),
        }
    }

    /// The group for a visit of a table that consulted `mask`.
    pub(super) fn group_for(&mut self, place: Place, mask: &SparseMask) -> u32 {
        if let Some(number) = self.by_mask.get(&(place, mask.clone())) {
            return *number;
        }
        let mask = match self.places.get(&place).map_or(0, Vec::len) {
            0..GROUPS_USUAL => mask.clone(),
            GROUPS_USUAL..GROUPS_MAX => in_bytes(mask),
            _ => SparseMask::from(&FlowMask::EMPTY),
        };
        let number = self.groups.len();
        *self.by_mask.entry((place, mask.clone())).or_insert_with(|| {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            self.groups.push(Group { mask, projections: Vec::new() });
            self.places.entry(place).or_default().push(number);
            number
        })
    }

    /// The projections of the groups of a table by which a rule of a mask finds what it overlaps;
    /// those that are new are put to `added`.
    pub(super) fn search(
        &mut self,
        place: Place,
        mask: &SparseMask,
        added: &mut Vec<Projection>,
    ) -> Vec<Projection> {
        let groups = self.places.get(&place).cloned().unwrap_or_default();
        let mut projected = |group| (group, self.project(group, mask, added));
        groups.into_iter().map(&mut projected).collect()
    }

    /// A mask, by its number.
    pub(super) fn mask(&self, number: u32) -> Option<&SparseMask> {
        self.masks.get(number as usize)
    }

    /// The mask under which a rule of `mask` looks at a group.
    fn project(&mut self, group: u32, mask: &SparseMask, added: &mut Vec<Projection>) -> u32 {
        let own = &self.groups[group as usize];
        let wanted = common(&own.mask, mask);
        let known = self.numbers.get(&wanted).filter(|known| own.projections.contains(known));
        if let Some(known) = known {
            return *known;
        }
        let mask_of = |number: &u32| &self.masks[*number as usize];
        let usable = own.projections.iter().filter(|own| mask.has_all_of(mask_of(own)));
        let best = usable.max_by_key(|own| mask_of(own).bits_count()).copied();
        let chosen = match best {
            Some(best) if own.projections.len() >= PROJECTIONS_MAX => return best,
            None if own.projections.len() >= PROJECTIONS_MAX => {
                self.number(SparseMask::from(&FlowMask::EMPTY))
            }
            _ => self.number(wanted),
        };
        self.groups[group as usize].projections.push(chosen);
        added.push((group, chosen));
        chosen
    }

    fn number(&mut self, mask: SparseMask) -> u32 {
        let next = u32::try_from(self.masks.len()).unwrap_or(u32::MAX);
        *self.numbers.entry(mask).or_insert_with_key(|mask| {
            self.masks.push(mask.clone());
            next
        })
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FieldId;

    use super::*;

    fn mask(bits: u128) -> SparseMask {
        let mut mask = FlowMask::EMPTY;
        mask.add_bits(FieldId::Ipv6Dst, bits);
        SparseMask::from(&mask)
    }

    #[test]
    fn rules_that_come_with_ever_new_masks_take_no_memory_for_ever() {
        let mut groups = Groups::new(&FixedState::default());
        let place = (BridgeId::new(1), TableId::FIRST);
        groups.group_for(place, &mask(u128::MAX));
        for bits in 1..1000 {
            assert_eq!(groups.search(place, &mask(bits), &mut Vec::new()).len(), 1);
        }
        assert!(groups.masks.len() <= PROJECTIONS_MAX + 1, "{}", groups.masks.len());
    }
}

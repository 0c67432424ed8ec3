//! `multipath`: a hash of the packet as the number of a link (`nx_action_multipath`).

use super::{context::Translation, hash::Hash};
use crate::{MultipathAction, MultipathAlgorithm};

/// Links up to which `hrw` compares them all; of more, as in Open vSwitch, it takes a remainder.
const HRW_LINKS_MAX: u32 = 64;
/// How often `iter_hash` hashes again: half of the numbers or more are links, so it hits long
/// before.
const ITERATIONS_MAX: u128 = 64;

impl Translation<'_> {
    /// Writes the number of a link that the packet's hash chooses.
    pub(super) fn multipath(&mut self, action: &MultipathAction) {
        let hash = self.hash_fields(action.fields, action.basis);
        let link = choose(action, hash);
        let value = u128::from(link) << action.target.offset;
        self.set_field(action.target.field, value, action.target.bits());
    }
}

/// The number of a link, from 0 to `link_max`.
fn choose(action: &MultipathAction, hash: Hash) -> u32 {
    let links_count = u32::from(action.link_max) + 1;
    match action.algorithm {
        MultipathAlgorithm::HighestRandomWeight if links_count <= HRW_LINKS_MAX => (0..links_count)
            .max_by_key(|link| hash.with(u128::from(*link)).whole())
            .unwrap_or_default(),
        MultipathAlgorithm::ModuloN | MultipathAlgorithm::HighestRandomWeight => {
            hash.short() % links_count
        }
        // Each link has a range of one length; the last one takes what is left.
        MultipathAlgorithm::HashThreshold if links_count > 1 => {
            hash.short() / (u32::MAX / links_count + 1)
        }
        MultipathAlgorithm::HashThreshold => 0,
        MultipathAlgorithm::IterativeHash => iterate(hash, links_count, action.argument),
    }
}

/// Hashes again until the remainder is a link.
///
/// The modulus is the argument, if that is no less than the links and no more than twice as many;
/// else the next power of two.
fn iterate(hash: Hash, links_count: u32, argument: u32) -> u32 {
    let fits = argument >= links_count && argument / 2 <= links_count;
    let modulus = if fits { argument } else { links_count.next_power_of_two() };
    let candidates = (0..ITERATIONS_MAX).map(|round| hash.with(round).short() % modulus);
    let mut links = candidates.filter(|link| *link < links_count);
    links.next().unwrap_or_else(|| hash.short() % links_count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HashFields, Subfield};
    use shunt_flow::FieldId;

    const ALGORITHMS: [MultipathAlgorithm; 4] = [
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::HighestRandomWeight,
        MultipathAlgorithm::IterativeHash,
    ];

    fn action(algorithm: MultipathAlgorithm, link_max: u16, argument: u32) -> MultipathAction {
        let target = Subfield::whole(FieldId::Reg0);
        let fields = HashFields::EthSrc;
        MultipathAction { fields, basis: 0, algorithm, link_max, argument, target }
    }

    #[test]
    fn each_link_is_chosen_about_as_often_as_any_other() {
        for algorithm in ALGORITHMS {
            for (link_max, argument) in [(0, 0), (2, 5), (4, 5), (6, 0), (6, 14), (99, 130)] {
                let action = action(algorithm, link_max, argument);
                let mut counts = vec![0; usize::from(link_max) + 1];
                let share = 1000;
                for packet in 0..share * counts.len() {
                    let hash = Hash::of(7).with(packet as u128);
                    counts[choose(&action, hash) as usize] += 1;
                }
                let fair = share * 7 / 8..share * 9 / 8 + 1;
                assert!(counts.iter().all(|count| fair.contains(count)), "{action:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn with_highest_random_weight_one_more_link_takes_only_what_becomes_its_own() {
        let algorithm = MultipathAlgorithm::HighestRandomWeight;
        let (few, many) = (action(algorithm, 5, 0), action(algorithm, 6, 0));
        for packet in 0..1000_u64 {
            let hash = Hash::of(packet);
            let now = choose(&many, hash);
            assert!(now == 6 || now == choose(&few, hash));
        }
    }

    #[test]
    fn links_of_the_widest_number_are_counted() {
        for algorithm in ALGORITHMS {
            let action = action(algorithm, u16::MAX, u32::MAX);
            assert!((0..100).all(|packet| choose(&action, Hash::of(packet)) <= u16::MAX.into()));
        }
    }
}

//! `multipath`: a hash of the packet as the number of a link (`nx_action_multipath`).

use super::hash::{Hash, hash_fields};
use crate::{
    action::{MultipathAction, MultipathAlgorithm},
    translate::working_packet::WorkingPacket,
};

/// The most links that `hrw` compares.
/// With more links, `hrw` takes a remainder, as Open vSwitch does.
const HRW_LINKS_MAX: u32 = 64;
/// The most iterations of `iter_hash`.
/// At least half of the numbers are links, so the search ends long before this limit.
const ITERATIONS_MAX: u128 = 64;

/// Writes the number of the link that the packet's hash chooses.
pub(in crate::translate) fn multipath(packet: &mut WorkingPacket, action: &MultipathAction) {
    let hash = hash_fields(packet, action.fields, action.basis);
    let link = choose_link(action, hash);
    let value = u128::from(link) << action.target.offset;
    packet.set_field(action.target.field, value, action.target.bits());
}

/// Returns the number of a link, from 0 to `link_max`.
fn choose_link(action: &MultipathAction, hash: Hash) -> u32 {
    let links_count = u32::from(action.link_max) + 1;
    match action.algorithm {
        MultipathAlgorithm::HighestRandomWeight if links_count <= HRW_LINKS_MAX => (0..links_count)
            .max_by_key(|link| hash.with(u128::from(*link)).whole())
            .unwrap_or_default(),
        MultipathAlgorithm::ModuloN | MultipathAlgorithm::HighestRandomWeight => {
            hash.short() % links_count
        }
        // Each link has a range of the same length; the last link gets the remainder.
        MultipathAlgorithm::HashThreshold if links_count > 1 => {
            hash.short() / (u32::MAX / links_count + 1)
        }
        MultipathAlgorithm::HashThreshold => 0,
        MultipathAlgorithm::IterativeHash => iterate(hash, links_count, action.argument),
    }
}

/// Hashes again until the remainder is a link.
///
/// The modulus is the argument, if it is between the number of links and twice this number.
/// Otherwise the modulus is the next power of two.
fn iterate(hash: Hash, links_count: u32, argument: u32) -> u32 {
    let fits = argument >= links_count && argument / 2 <= links_count;
    let modulus = if fits { argument } else { links_count.next_power_of_two() };
    let mut candidates = (0..ITERATIONS_MAX).map(|round| hash.with(round).short() % modulus);
    candidates.find(|link| *link < links_count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{HashFields, Subfield};
    use shunt_flow::FieldId;

    /// All algorithms of `multipath`.
    const ALGORITHMS: [MultipathAlgorithm; 4] = [
        MultipathAlgorithm::ModuloN,
        MultipathAlgorithm::HashThreshold,
        MultipathAlgorithm::HighestRandomWeight,
        MultipathAlgorithm::IterativeHash,
    ];

    /// Returns a `multipath` action.
    fn action(algorithm: MultipathAlgorithm, link_max: u16, argument: u32) -> MultipathAction {
        let target = Subfield::whole(FieldId::Reg0);
        let fields = HashFields::EthSrc;
        MultipathAction { fields, basis: 0, algorithm, link_max, argument, target }
    }

    #[test]
    fn links_are_chosen_equally_often() {
        for algorithm in ALGORITHMS {
            for (link_max, argument) in [(0, 0), (2, 5), (4, 5), (6, 0), (6, 14), (99, 130)] {
                let action = action(algorithm, link_max, argument);
                let mut counts = vec![0; usize::from(link_max) + 1];
                let share = 1000;
                for packet in 0..share * counts.len() {
                    let hash = Hash::of(7).with(packet as u128);
                    counts[choose_link(&action, hash) as usize] += 1;
                }
                let fair = share * 7 / 8..share * 9 / 8 + 1;
                assert!(counts.iter().all(|count| fair.contains(count)), "{action:?}: {counts:?}");
            }
        }
    }

    #[test]
    fn an_added_link_takes_only_its_own_flows() {
        let algorithm = MultipathAlgorithm::HighestRandomWeight;
        let (few, many) = (action(algorithm, 5, 0), action(algorithm, 6, 0));
        for packet in 0..1000_u64 {
            let hash = Hash::of(packet);
            let now = choose_link(&many, hash);
            assert!(now == 6 || now == choose_link(&few, hash));
        }
    }

    #[test]
    fn many_links_are_chosen_by_modulo() {
        let hashes = || (0..100).map(|packet| Hash::of(7).with(packet));
        let choice = |links_count: u16| {
            [MultipathAlgorithm::HighestRandomWeight, MultipathAlgorithm::ModuloN].map(
                |algorithm| {
                    let action = action(algorithm, links_count - 1, 0);
                    hashes().map(|hash| choose_link(&action, hash)).collect::<Vec<_>>()
                },
            )
        };
        let ([few, few_by_remainder], [many, many_by_remainder]) = (choice(64), choice(65));
        assert_ne!(few, few_by_remainder);
        assert_eq!(many, many_by_remainder);
    }

    #[test]
    fn multipath_maps_highest_hash_to_last_link() {
        for link_max in [0, 1, 2, 4, 6, 99] {
            let action = action(MultipathAlgorithm::HashThreshold, link_max, 0);
            assert_eq!(choose_link(&action, Hash::of(u64::MAX)), u32::from(link_max));
            assert_eq!(choose_link(&action, Hash::of(0)), 0);
        }
    }

    #[test]
    fn iter_hash_uses_a_large_argument_as_modulus() {
        for (argument, modulus) in [(4, 8), (5, 5), (6, 6), (10, 10), (11, 11), (12, 8), (0, 8)] {
            let action = action(MultipathAlgorithm::IterativeHash, 4, argument);
            for hash in (0..100).map(|packet| Hash::of(7).with(packet)) {
                let mut hashes = (0..).map(|round| hash.with(round).short() % modulus);
                assert_eq!(
                    Some(choose_link(&action, hash)),
                    hashes.find(|link| *link < 5),
                    "{argument}"
                );
            }
        }
    }

    #[test]
    fn links_with_the_largest_number_are_counted() {
        for algorithm in ALGORITHMS {
            let action = action(algorithm, u16::MAX, u32::MAX);
            assert!(
                (0..100).all(|packet| choose_link(&action, Hash::of(packet)) <= u16::MAX.into())
            );
        }
    }
}

//! Pieces do what their whole does, and each of them for every packet of its region.

use super::laws;
use crate::testing::{
    Twin, cases,
    generate::{self, BRIDGES},
    merged, runner, traversals, visible,
};
use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, FlowMask, PortNo};

/// Which points are cut: all of them, or some.
fn choice() -> impl Strategy<Value = u64> {
    prop_oneof![Just(u64::MAX), any::<u64>()]
}

proptest! {
    #![proptest_config(cases(96))]

    #[test]
    fn pieces_do_what_the_whole_does(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let twin = Twin::new(&world);
        for key in packets {
            let expected = twin.world.translate(&key);
            let whole = twin.translate(&key);
            let noted = twin.pipeline.translate_noting(&visible(&key), None, whole.version);
            prop_assert!(whole.says_as(&noted.traversal) || !whole.learnings.is_empty());
            // What teaches is not cached, and the pieces know nothing of its teacher.
            if expected.error.is_none() && whole.learnings.is_empty() {
                let pieces = laws::pieces(&twin, &visible(&key), choice);
                prop_assert_eq!(twin.fate(&merged(traversals(&pieces)), &key), expected);
            }
        }
    }

    #[test]
    fn a_piece_is_that_of_every_packet_of_its_region(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let (twin, mut runner) = (Twin::new(&world), runner());
        for key in packets {
            let pieces = laws::pieces(&twin, &visible(&key), choice);
            laws::pieces_are_uniform(&twin, &pieces, &mut runner)?;
        }
    }

    #[test]
    fn a_piece_that_is_known_is_the_one_that_is_looked_up(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let twin = Twin::new(&world);
        for key in packets.iter().map(visible) {
            let pieces = laws::pieces(&twin, &key, choice);
            if pieces.iter().any(|piece| !piece.traversal.learnings.is_empty())
                || pieces.iter().any(|piece| piece.traversal.error.is_some())
            {
                continue;
            }
            // What ends plainly is translated at first and put together from then on.
            for _ in 0..2 {
                laws::known_pieces_are_those_of_the_tables(&twin, &pieces)?;
            }
        }
    }

    #[test]
    fn a_piece_of_a_way_that_leads_on_is_the_one_that_is_looked_up(
        world in generate::leading_world(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
    ) {
        let twin = Twin::new(&world);
        for key in packets.iter().map(visible) {
            let pieces = laws::pieces(&twin, &key, choice);
            if pieces.iter().all(|piece| piece.traversal.learnings.is_empty()) {
                for _ in 0..2 {
                    laws::known_pieces_are_those_of_the_tables(&twin, &pieces)?;
                }
            }
        }
    }

    #[test]
    fn what_changes_a_piece_is_in_its_visits_or_its_reads(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
        op in generate::op(),
    ) {
        let mut twin = Twin::new(&world);
        let pieces: Vec<_> =
            packets.iter().flat_map(|key| laws::pieces(&twin, &visible(key), choice)).collect();
        laws::changes_of_pieces_are_named(&mut twin, &pieces, &op)?;
    }

    #[test]
    fn what_comes_later_or_is_refused_changes_no_piece_of_an_earlier_version(
        world in prop_oneof![generate::world().boxed(), generate::leading_world().boxed()],
        packets in prop::collection::vec(generate::packet(), 1..4),
        choice in choice(),
        ops in prop::collection::vec(generate::op(), 1..5),
    ) {
        let mut twin = Twin::new(&world);
        let pieces: Vec<_> =
            packets.iter().flat_map(|key| laws::pieces(&twin, &visible(key), choice)).collect();
        for op in &ops {
            twin.apply(op);
            laws::pieces_keep_to_their_version(&twin, &pieces)?;
        }
    }
}

/// What a tail has written before it looks at it is nothing of the packet: neither what is put together
/// nor what is translated looks at it there.
#[test]
fn what_is_put_together_does_not_look_at_what_its_tail_wrote() -> Result<(), TestCaseError> {
    let twin = Twin::with_rules(
        BRIDGES[0],
        &[
            "table=0,actions=goto_table:1",
            "table=1,actions=load:3->NXM_OF_IN_PORT[],mod_dl_dst:00:00:00:00:00:07,goto_table:2",
            "table=2,in_port=3,dl_dst=00:00:00:00:00:07,actions=output:2",
        ],
    );
    let mut key = FlowKey::ZERO;
    key.set_bridge(BRIDGES[0].number().into());
    key.set_in_port(PortNo::new(1));
    // As one, and cut in front of the tail.
    for choice in [0, 1] {
        let pieces = laws::pieces(&twin, &key, choice);
        for _ in 0..2 {
            laws::known_pieces_are_those_of_the_tables(&twin, &pieces)?;
        }
        for piece in &pieces {
            let mask = FlowMask::from(&piece.traversal.mask);
            assert_eq!((mask.field(FieldId::InPort), mask.field(FieldId::EthDst)), (0, 0));
        }
    }
    Ok(())
}

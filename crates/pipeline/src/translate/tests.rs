//! The laws of translation, against the oracle.

use proptest::prelude::*;
use shunt_flow::PortNo;

use crate::testing::{Twin, draw, generate, runner};

proptest! {
    #![proptest_config(crate::testing::cases(300))]

    #[test]
    fn a_traversal_does_what_the_tables_say(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 8),
    ) {
        let twin = Twin::new(&world);
        for key in &packets {
            let traversal = twin.translate(key);
            prop_assert_eq!(twin.fate(&traversal, key), twin.world.translate(key));
        }
    }

    #[test]
    fn packets_that_agree_under_the_mask_fare_alike(
        world in generate::world(),
        packets in prop::collection::vec(generate::packet(), 4),
    ) {
        let twin = Twin::new(&world);
        let mut runner = runner();
        for key in &packets {
            let traversal = twin.translate(key);
            for _ in 0..4 {
                let sibling = draw(&mut runner, &generate::sibling(key, &traversal.mask));
                prop_assert!(sibling.agrees_with(key, &traversal.mask));
                let other = twin.translate(&sibling);
                prop_assert_eq!(&other.actions, &traversal.actions, "sibling {:?}", sibling);
                prop_assert_eq!(&other.reads, &traversal.reads);
                prop_assert_eq!(twin.fate(&traversal, &sibling), twin.world.translate(&sibling));
            }
        }
    }

    #[test]
    fn each_visit_is_uniform_under_its_own_mask(
        world in generate::world(),
        packet in generate::packet(),
    ) {
        let twin = Twin::new(&world);
        let mut runner = runner();
        for visit in twin.translate(&packet).visits {
            let sibling = draw(&mut runner, &generate::sibling(&visit.key, &visit.mask));
            prop_assume!(sibling.agrees_with(&visit.key, &visit.mask));
            let rule = twin.world.look_up(visit.bridge, visit.table, &sibling);
            prop_assert_eq!(rule.map(|rule| rule.id), visit.rule.map(|rule| rule.id));
        }
    }

    #[test]
    fn a_packet_out_does_what_its_actions_say(
        world in generate::world(),
        mut packet in generate::packet(),
        actions in prop::collection::vec(generate::action(), 0..5),
        port in prop::sample::select(vec![1, 2, 4, 0xffff_fffd, 0xffff_fffe, 0xffff_ffff]),
    ) {
        let twin = Twin::new(&world);
        packet.set_in_port(PortNo::new(port));
        let traversal =
            twin.pipeline.translate_actions(&packet, &actions, twin.pipeline.version());
        prop_assert_eq!(twin.fate(&traversal, &packet), twin.world.packet_out(&packet, &actions));
    }
}

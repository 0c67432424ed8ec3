//! Tests that the NIC and the bmv2 program agree on the outcome of frames.

use proptest::{collection::vec, prelude::*};
use shunt_flow::testing::PacketBuilder;
use shunt_gigaflow::ltm::Tag;
use shunt_nic::{
    NicChain, NicLimits,
    testing::{NicOutcome, outcome_of},
};
use shunt_p4runtime::{
    codec::decode,
    program::{CPU_PORT, Program},
    server::EntryNo,
    wire::p4::v1::TableEntry,
};

use crate::{
    entries::{Arrival, PORTS, TAGS, for_all, matchless_entry},
    frames::{frames, vary},
    switch::Switch,
};

/// Creates a NIC and a switch with the bmv2 program, with the same entries.
fn nic_and_switch(entries: &[TableEntry], start: u16) -> (NicChain, Switch) {
    let program = Program::default();
    let (mut chain, mut switch) = (NicChain::new(program, NicLimits::default(), 7), Switch::new());
    chain.set_start(Tag::new(start.into()));
    switch.set_start(start);
    for (number, entry) in (0..).zip(entries) {
        chain.insert(EntryNo(number), decode(&program, entry).unwrap()).unwrap();
        switch.insert(entry);
    }
    (chain, switch)
}

/// Returns the packet-out that sends a frame through the tables.
fn packet_out_of((port, frame): &Arrival) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    [&[0, 0, high, low, 1], frame.as_slice()].concat()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn the_program_and_the_nic_process_frames_alike(
        arrivals in vec((0..PORTS, frames()), 1..6),
        matchless_entry in vec(matchless_entry(), 0..24),
        start in 0..TAGS,
    ) {
        // All priorities differ, because between equal priorities any choice is correct.
        let numbered = (1..).zip(&matchless_entry);
        let entries: Vec<_> =
            numbered.map(|(priority, matchless_entry)| matchless_entry.entry(&arrivals, priority)).collect();
        let (chain, switch) = nic_and_switch(&entries, start);
        for arrival in &arrivals {
            let (port, frame) = arrival;
            let expected = outcome_of(&chain, *port, frame);
            prop_assert_eq!(&switch.outcome_of(*port, frame), &expected, "{:02x?}", frame);
            let again = switch.outcome_of(CPU_PORT, &packet_out_of(arrival));
            prop_assert_eq!(again, expected, "resubmitted: {:02x?}", frame);
        }
    }

    #[test]
    fn tag_pushed_after_pop_is_new_in_both(
        came_in in prop::option::of(any::<u16>()), kind: u8,
        written in any::<[(bool, bool, u16); 3]>(),
    ) {
        let packet = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2);
        let packet = came_in.into_iter().fold(packet, |packet, tci| packet.tag(0x8100, tci));
        let names = [["set_ethernet", "rewrite"], ["set_ethernet_forward", "rewrite_forward"]];
        let entries: Vec<_> = (0..).zip(written).map(|(stage, (is_wide, is_tagged, tci))| {
            let is_last = usize::from(stage == 2);
            let action = names[is_last][usize::from(is_wide)];
            // Packets that continue in the next stage keep the first tag.
            for_all(stage, action, is_last as u16, |field| match field.name {
                "vlan_tci" => ((tci & 0xefff | u16::from(is_tagged) << 12).into(), u128::MAX),
                _ => (0, 0),
            })
        }).collect();
        let (chain, switch) = nic_and_switch(&entries, 0);
        let mut frame = packet.build();
        vary(&mut frame, kind);
        prop_assert_eq!(switch.outcome_of(0, &frame), outcome_of(&chain, 0, &frame));
    }

    #[test]
    fn a_packet_out_leaves_its_port_unchanged(
        frame in frames(), port in 0..PORTS,
    ) {
        let [high, low] = port.to_be_bytes();
        let bytes = [&[high, low, 0, 9, 0], frame.as_slice()].concat();
        prop_assert_eq!(Switch::new().outcome_of(CPU_PORT, &bytes), NicOutcome::Sent { port, frame });
    }
}

/// Greatest distance of the tested checksums from zero, where carries occur.
const EDGE: i16 = 40;

/// Generates packets with a checksum, and the offset of the checksum.
fn packet_with_checksum() -> impl Strategy<Value = (PacketBuilder, usize)> {
    let v4 = PacketBuilder::ipv4([10, 0, 0, 1], [10, 0, 0, 2]);
    let v6 = PacketBuilder::ipv6([1; 16], [2; 16]);
    let packets = vec![
        (v4.clone().protocol(50), 24),
        (v4.clone().tcp(1, 2), 50),
        (v4.clone().udp(1, 2), 40),
        (v4.icmp(8, 0), 36),
        (v6.clone().tcp(1, 2), 70),
        (v6.clone().udp(1, 2), 60),
        (v6.icmp(128, 0), 56),
    ];
    prop::sample::select(packets)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn checksums_near_zero_are_equal(
        (packet, checksum) in packet_with_checksum(), values in any::<[u128; 18]>(),
    ) {
        let all = for_all(0, "rewrite_forward", 1, |field| {
            let mask = if field.name == "vlan_tci" { 0 } else { u128::MAX };
            (values[field.id as usize], mask)
        });
        let (chain, switch) = nic_and_switch(&[all], 0);
        let mut frame = packet.build();
        let NicOutcome::Sent { frame: left, .. } = outcome_of(&chain, 0, &frame) else { panic!("no output") };
        let place = checksum..checksum + 2;
        let sum = |frame: &[u8]| u16::from_be_bytes(frame[place.clone()].try_into().unwrap());
        // If this value is subtracted from the received checksum, the sent checksum is zero.
        let zero = sum(&frame).wrapping_sub(sum(&left));
        for near in -EDGE..=EDGE {
            frame[place.clone()].copy_from_slice(&zero.wrapping_add_signed(near).to_be_bytes());
            prop_assert_eq!(switch.outcome_of(0, &frame), outcome_of(&chain, 0, &frame), "{:02x?}", &frame);
        }
    }
}

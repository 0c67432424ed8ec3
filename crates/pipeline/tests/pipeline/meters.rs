//! Tests of meters: their rates, and their position in a traversal.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Duration,
};

use proptest::prelude::*;
use shunt_flow::{FieldId, FlowKey, layout::word};
use shunt_pipeline::{
    Action, ControllerAction, GroupKind, MeterBand, MeterBandKind, MeterCommand, MeterConfig,
    MeterId, MeterUnit, MeterVerdict, PacketInReason, Time, raise_drop_precedence,
};

use crate::{
    build::{add_group, bucket, config, drop_band, group, meter, meter_mod, output, rule},
    switch::{Switch, describe, key},
};

fn after_us(microseconds: u64) -> Time {
    Time::ZERO.after(Duration::from_micros(microseconds))
}

pub(crate) fn remark_band(rate: u32, burst_size: u32, precedence: u8) -> MeterBand {
    MeterBand { kind: MeterBandKind::DscpRemark { precedence }, rate, burst_size }
}

#[test]
fn band_passes_burst_and_then_rate() {
    let meter = meter(1, config(MeterUnit::Packets, vec![drop_band(3, 5)]));
    let passed = |now| (0..100).filter(|_| meter.admit(now, 60) == MeterVerdict::Pass).count();
    assert_eq!(
        (passed(after_us(0)), passed(after_us(333_333)), passed(after_us(333_334))),
        (5, 0, 1)
    );
    assert_eq!(passed(after_us(1_400_000)), 3);
    assert_eq!(passed(after_us(100_000_000)), 5, "a full bucket does not grow");
}

#[test]
fn kilobits_are_a_thousand_bits_of_frames() {
    let meter = meter(1, config(MeterUnit::Kilobits, vec![drop_band(8, 12)]));
    let admit = |now, bytes| meter.admit(now, bytes) == MeterVerdict::Pass;
    assert!(admit(after_us(0), 1000) && admit(after_us(0), 500) && !admit(after_us(0), 1));
    assert!(!admit(after_us(59_000), 60) && admit(after_us(60_000), 60));
}

#[test]
fn without_a_burst_a_band_passes_one_second() {
    let mut of_flag = config(MeterUnit::Packets, vec![drop_band(7, 2)]);
    of_flag.burst = false;
    for config in [of_flag, config(MeterUnit::Packets, vec![drop_band(7, 0)])] {
        let meter = meter(1, config);
        let passed = (0..100).filter(|_| meter.admit(Time::ZERO, 60) == MeterVerdict::Pass);
        assert_eq!(passed.count(), 7);
    }
}

#[test]
fn the_exceeded_band_with_the_highest_rate_acts() {
    let bands = vec![drop_band(1, 1), remark_band(2, 2, 1), drop_band(4, 3)];
    let meter = meter(1, config(MeterUnit::Packets, bands));
    let verdicts: Vec<_> = (0..4).map(|_| meter.admit(Time::ZERO, 100)).collect();
    use MeterVerdict::{Drop, Pass, Remark};
    assert_eq!(verdicts, [Pass, Drop, Remark(1), Drop]);
    let acted: Vec<_> = meter.band_totals().iter().map(|band| (band.packets, band.bytes)).collect();
    assert_eq!(acted, [(1, 100), (1, 100), (1, 100)]);
    assert_eq!((meter.totals().packets, meter.totals().bytes), (4, 400));
}

#[test]
fn a_meter_shared_by_threads_keeps_its_rate() {
    let meter = meter(1, config(MeterUnit::Packets, vec![drop_band(1000, 5000)]));
    let passed = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..4 {
            let (meter, passed) = (&meter, &passed);
            scope.spawn(move || {
                for packet in 0..10_000_u64 {
                    // The clock of every thread ends at one second, and each clock runs at its own
                    // pace.
                    let now =
                        after_us(if packet == 9_999 { 1_000_000 } else { packet * 10 * thread });
                    let is_passed = meter.admit(now, 60) == MeterVerdict::Pass;
                    passed.fetch_add(is_passed.into(), Ordering::Relaxed);
                }
            });
        }
    });
    let mut passed = passed.into_inner();
    while meter.admit(after_us(1_000_000), 60) == MeterVerdict::Pass {
        passed += 1;
    }
    assert_eq!(passed, 6000);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Compares a band with a bucket that counts exactly.
    ///
    /// The results differ by at most one tick per packet.
    #[test]
    fn a_meter_band_fills_at_its_rate(
        rate in 1_u32..100_000_000,
        burst in 1_u32..1_000_000,
        arrivals in prop::collection::vec((0_u64..2_000_000, 60_usize..1600), 1..200),
    ) {
        let meter = meter(1, config(MeterUnit::Kilobits, vec![drop_band(rate, burst)]));
        // The level is in millionths of a bit: a nanosecond adds `rate` millionths.
        let full = i128::from(burst) * 1_000 * 1_000_000;
        let (mut level, mut now, mut packets) = (full, 0_u64, 0_i128);
        for (gap, bytes) in arrivals {
            now += gap;
            packets += 1;
            level = full.min(level + i128::from(gap) * i128::from(rate));
            let cost = i128::try_from(bytes).unwrap() * 8 * 1_000_000;
            let slack = packets * i128::from(rate) / 32 + packets;
            let verdict = meter.admit(Time::from_nanoseconds(now), bytes);
            if (level - cost).abs() <= slack {
                // Rounding allows either verdict here, and later verdicts depend on it, so the
                // comparison ends.
                return Ok(());
            }
            prop_assert_eq!(verdict == MeterVerdict::Pass, level >= cost);
            level -= if level >= cost { cost } else { 0 };
        }
    }

    #[test]
    fn no_rate_or_time_overflows_a_meter(
        rate in any::<u32>(),
        burst_size in any::<u32>(),
        packets in any::<bool>(),
        moments in prop::collection::vec((any::<u64>(), any::<u32>()), 1..8),
    ) {
        let unit = if packets { MeterUnit::Packets } else { MeterUnit::Kilobits };
        let bands = [drop_band(rate, burst_size), remark_band(burst_size, rate, 255)].into();
        let meter = meter(1, MeterConfig { unit, burst: true, stats: false, bands });
        for (now, bytes) in moments {
            meter.admit(Time::from_nanoseconds(now), bytes as usize);
        }
    }
}

#[test]
fn only_assured_forwarding_raises_drop_precedence() {
    let raised = |dscp, levels| raise_drop_precedence(dscp, levels);
    assert_eq!((raised(10, 1), raised(10, 2), raised(10, 9), raised(38, 1)), (12, 14, 14, 38));
    assert_eq!((raised(26, 0), raised(26, 1), raised(34, 1)), (26, 28, 36));
    for other in [0, 8, 16, 11, 46, 40, 42, 48, 63] {
        assert_eq!(raised(other, 1), other);
    }
}

fn switch_with_meter(actions: Vec<Action>) -> Switch {
    let switch = Switch::new(&[]);
    let add = meter_mod(MeterCommand::Add, 1, vec![drop_band(1, 0)]);
    switch.make([add, rule("tcp", actions).into()]);
    switch
}

fn meter_action() -> Action {
    Action::Meter(MeterId::new(1))
}

fn set_ttl(ttl: u8) -> Action {
    Action::SetField { field: FieldId::NwTtl, value: ttl.into(), mask: 0xff }
}

#[test]
fn a_rule_passes_its_meter_before_its_actions() {
    let switch = switch_with_meter(vec![output(2), meter_action(), output(3)]);
    assert_eq!(switch.run("tcp"), "2 meter(1) 3");
    let mut instructed = rule("udp", vec![output(2)]);
    instructed.instructions.meter = Some(MeterId::new(1));
    switch.make([instructed.into()]);
    assert_eq!(switch.run("udp"), "meter(1) 2");
}

#[test]
fn a_meter_drops_only_its_own_copy() {
    let clone = Action::Clone([set_ttl(9), meter_action(), output(2)].into());
    let switch = switch_with_meter(vec![clone, output(3)]);
    assert_eq!(switch.run("tcp,nw_ttl=64"), "copy(set(nw_ttl=9) meter(1) 2) 3");
    let resubmit = Action::Resubmit { port: None, table: shunt_pipeline::TableId::new(1) };
    switch.make([
        add_group(1, GroupKind::All, vec![bucket(vec![resubmit]), bucket(vec![output(3)])]),
        rule("table=1", vec![meter_action(), output(2)]).into(),
        rule("udp", vec![group(1)]).into(),
    ]);
    assert_eq!(switch.run("udp"), "copy(meter(1) 2) 3");
}

#[test]
fn dscp_written_in_clone_affects_copy_only() {
    let dscp = Action::SetField { field: FieldId::IpDscp, value: 0, mask: 0x3f };
    let clone = Action::Clone([dscp, set_ttl(9), output(2)].into());
    let switch = switch_with_meter(vec![meter_action(), clone, output(3)]);
    assert_eq!(switch.run("tcp,nw_ttl=64"), "meter(1) set(nw_ttl=9) 2 set(nw_ttl=40) 3");
    switch.make([meter_mod(MeterCommand::Modify, 1, vec![remark_band(1, 0, 1)])]);
    assert_eq!(switch.run("tcp,nw_ttl=64"), "meter(1) copy(set(nw_ttl=9) 2) 3");
}

#[test]
fn copies_nest_up_to_the_datapath_limit() {
    let nested = |depth| {
        let inner = vec![meter_action(), output(2)];
        (0..depth).fold(inner, |list, _| vec![Action::Clone(list.into()), meter_action()])
    };
    assert!(switch_with_meter(nested(64)).run("tcp").starts_with("copy("));
    let bound = "the packet goes through more than 64 nested resubmits, buckets, patch ports or \
                 copies, which is the limit";
    assert_eq!(switch_with_meter(nested(65)).run("tcp"), bound);
}

#[test]
fn a_meter_of_packet_ins_ends_no_packet() {
    let controller = Action::Controller(Box::new(ControllerAction {
        meter: Some(MeterId::new(1)),
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    }));
    let switch = switch_with_meter(vec![controller, output(2)]);
    assert!(switch.run("tcp").starts_with("copy(meter(1) punt("));
    switch.make([meter_mod(MeterCommand::Delete, 1, vec![])]);
    assert!(switch.run("tcp").starts_with("punt("), "without a meter they are not limited");
}

#[test]
fn copies_for_metered_packet_ins_count_as_nesting() {
    let packet_in = ControllerAction {
        meter: Some(MeterId::new(1)),
        pause: false,
        max_len: 0xffff,
        controller_id: 0,
        reason: PacketInReason::Action,
        userdata: Box::new([]),
    };
    let nested = |depth, innermost: Vec<Action>| {
        (0..depth).fold(innermost, |list, _| vec![Action::Clone(list.into()), meter_action()])
    };
    let metered_punt = || vec![meter_action(), Action::Controller(Box::new(packet_in.clone()))];
    assert!(switch_with_meter(nested(63, metered_punt())).run("tcp").starts_with("copy("));
    let bound = "the packet goes through more than 64 nested resubmits, buckets, patch ports or \
                 copies, which is the limit";
    assert_eq!(switch_with_meter(nested(64, metered_punt())).run("tcp"), bound);
    // A clone without a meter lies between the copies and the end of the outer clone.
    let around = |depth| {
        let copies = nested(depth, vec![meter_action(), output(2)]);
        let idle = Action::Clone([output(3)].into());
        switch_with_meter(vec![Action::Clone([copies, vec![idle]].concat().into())]).run("tcp")
    };
    assert!(around(63).starts_with("copy("));
    assert_eq!(around(64), bound);
}

#[test]
fn a_copy_adds_no_headers_to_the_original() {
    let set = |field: FieldId, value| Action::SetField { field, value, mask: field.value_max() };
    let copy = |inner: &[Action]| Action::Clone([&[meter_action()], inner].concat().into());
    let (source, target) = (set(FieldId::EthSrc, 5), set(FieldId::EthDst, 6));
    let run = |actions: Vec<Action>, packet: &FlowKey| {
        let switch = Switch::new(&[]);
        let add = meter_mod(MeterCommand::Add, 1, vec![drop_band(1, 0)]);
        switch.make([add, rule("", actions).into()]);
        describe(&switch.pipeline.translate(packet, switch.pipeline.version()).actions)
    };
    let plain = key("in_port=1");
    assert_eq!(
        run(vec![source.clone(), copy(&[output(2)]), output(3)], &plain),
        "copy(set(eth_src=5) meter(1) 2) set(eth_src=5) 3"
    );
    let inside = Action::Clone([source, output(2), copy(&[target, output(2)])].into());
    assert_eq!(
        run(vec![inside, output(3)], &plain),
        "set(eth_src=5) 2 copy(meter(1) set(eth_dst=6) 2) set(eth_src=0) 3"
    );
    let (mut tagged, mut labelled) = (plain, key("in_port=1,dl_type=0x8847"));
    tagged.words_mut()[usize::from(word::VLAN)] = 0x8100_1007 << 32;
    labelled.words_mut()[usize::from(word::MPLS)] = 0x1_0140 << 32;
    let popped = copy(&[Action::PopVlan, output(2)]);
    assert_eq!(run(vec![popped, output(3)], &tagged), "copy(meter(1) pop 2) 3");
    let popped = copy(&[Action::PopMpls { ethertype: 0x0800 }, output(2)]);
    assert_eq!(run(vec![popped, output(3)], &labelled), "copy(meter(1) pop(800) 2) 3");
}

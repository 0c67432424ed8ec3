//! LACPDUs of Open vSwitch 3.1 (`tests/data/README.md` describes how they were recorded).
#![expect(clippy::unwrap_used, reason = "the recorded file is whole")]

use std::{fs, num::NonZeroU16, time::Duration};

use shunt_lacp::{
    Aggregator, AggregatorSettings, LacpInfo, LacpMode, LacpState, LacpTime, MemberId,
    MemberSettings, MuxState, ReceiveState, SlowFrame, SystemId,
};

/// The MAC address of the port of the first switch.
const A0: [u8; 6] = [2, 0, 0, 0, 0x0a, 0];
/// The MAC address of the port of the second switch.
const B0: [u8; 6] = [2, 0, 0, 0, 0x0b, 0];

fn read(name: &str) -> Vec<u8> {
    fs::read(format!("{}/tests/data/open-vswitch/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Returns the recorded frames, each with its time since the first frame.
fn recorded_frames() -> Vec<(Duration, Vec<u8>)> {
    let file = read("negotiation.pcap");
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap());
    assert_eq!(number(&file[..4]), 0xa1b2_c3d4, "little-endian, microseconds");
    let mut rest = &file[24..];
    let mut frames: Vec<(Duration, Vec<u8>)> = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let seconds = Duration::from_secs(number(&header[..4]).into());
        let time = seconds + Duration::from_micros(number(&header[4..8]).into());
        let (frame, after) = after.split_at(usize::try_from(number(&header[8..12])).unwrap());
        frames.push((time, frame.to_vec()));
        rest = after;
    }
    let start = frames[0].0;
    frames.into_iter().map(|(time, frame)| (time - start, frame)).collect()
}

/// Returns the lines that `tcpdump` prints for one end of a link.
fn as_tcpdump(info: &LacpInfo) -> [String; 2] {
    let LacpInfo { system: SystemId { priority, mac }, key, port_priority, port, state } = *info;
    let mac = mac.map(|octet| format!("{octet:02x}")).join(":");
    let names = [
        (LacpState::ACTIVITY, "Activity"),
        (LacpState::TIMEOUT, "Timeout"),
        (LacpState::AGGREGATION, "Aggregation"),
        (LacpState::SYNCHRONIZATION, "Synchronization"),
        (LacpState::COLLECTING, "Collecting"),
        (LacpState::DISTRIBUTING, "Distributing"),
        (LacpState::DEFAULTED, "Default"),
        (LacpState::EXPIRED, "Expired"),
    ];
    let set = names.iter().filter(|(flag, _)| state.contains(*flag));
    let flags = set.map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    let flags = if flags.is_empty() { "none" } else { &flags };
    [
        format!(
            "System {mac}, System Priority {priority}, Key {key}, Port {port}, \
             Port Priority {port_priority}"
        ),
        format!("State Flags [{flags}]"),
    ]
}

#[test]
fn recorded_lacpdus_parse_as_tcpdump_prints_them() {
    let text = String::from_utf8(read("negotiation.txt")).unwrap();
    let is_info = |line: &&str| line.starts_with("System ") || line.starts_with("State Flags");
    let expected: Vec<&str> = text.lines().map(str::trim).filter(is_info).collect();
    let frames = recorded_frames();
    let parsed = frames.iter().flat_map(|(_, frame)| {
        let Ok(SlowFrame::Lacpdu(pdu)) = SlowFrame::parse(frame) else {
            panic!("not a LACPDU: {frame:?}")
        };
        [as_tcpdump(&pdu.actor), as_tcpdump(&pdu.partner)].concat()
    });
    assert_eq!(parsed.collect::<Vec<_>>(), expected);
    assert_eq!((frames.len(), expected.len()), (10, 40));
}

#[test]
fn emitted_lacpdus_have_the_recorded_octets() {
    for (_, frame) in recorded_frames() {
        let source = frame[6..12].try_into().unwrap();
        assert_eq!(SlowFrame::parse(&frame).unwrap().emit(source), frame);
    }
}

/// Passes the recorded frames from one address to an aggregator.
///
/// The aggregator takes the place of the bond at the other end.
///
/// Returns the changes of its only member, with times in milliseconds.
fn replay(mode: LacpMode, time: LacpTime, own: LacpInfo, from: [u8; 6]) -> Vec<Change> {
    let id = MemberId(1);
    let mut aggregator = Aggregator::new(AggregatorSettings {
        mode,
        time,
        system: own.system,
        key: NonZeroU16::new(own.key).unwrap(),
        fallback_ab: false,
    });
    let member = MemberSettings {
        mac: [2; 6],
        port: NonZeroU16::new(own.port).unwrap(),
        port_priority: own.port_priority,
        key: None,
    };
    aggregator.set_member(id, member, Duration::ZERO);
    aggregator.on_link(id, true, Duration::ZERO);
    let mut frames =
        recorded_frames().into_iter().filter(|(_, frame)| frame[6..12] == from).peekable();
    let mut changes = Vec::new();
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(14) {
        for event in aggregator.poll(now).events {
            changes.push((now.as_millis(), event.receive, event.mux));
        }
        let deadline = aggregator.next_deadline().unwrap();
        now = frames.peek().map_or(deadline, |(time, _)| deadline.min(*time));
        while let Some((_, frame)) = frames.next_if(|(time, _)| *time <= now) {
            aggregator.on_frame(id, &frame, now).unwrap();
        }
    }
    changes
}

/// A change of the member: time in milliseconds, and the new states.
type Change = (u128, ReceiveState, MuxState);

#[test]
fn a_passive_end_follows_the_recorded_active_one() {
    let system = SystemId { priority: 65_534, mac: [2, 0, 0, 0, 0, 0x0b] };
    let own = LacpInfo { system, key: 1, port: 77, port_priority: 5, ..LacpInfo::default() };
    let changes = replay(LacpMode::Passive, LacpTime::Slow, own, A0);
    let expected = [
        (0, ReceiveState::Expired, MuxState::Detached),
        // The first LACPDU is in synchronization, but names no partner: it proves nothing.
        (0, ReceiveState::Current, MuxState::Waiting),
        // The second LACPDU names this end as its partner.
        (2000, ReceiveState::Current, MuxState::CollectingDistributing),
        // The sender of the third LACPDU has forgotten this end.
        (12_004, ReceiveState::Current, MuxState::Waiting),
    ];
    assert_eq!(changes, expected);
}

#[test]
fn an_active_end_follows_the_recorded_passive_one() {
    let system = SystemId { priority: 100, mac: [2, 0, 0, 0, 0, 0x0a] };
    let own = LacpInfo { system, key: 1, port: 1, port_priority: 65_535, ..LacpInfo::default() };
    let changes = replay(LacpMode::Active, LacpTime::Fast, own, B0);
    let expected = [
        (0, ReceiveState::Expired, MuxState::Detached),
        (1, ReceiveState::Current, MuxState::Waiting),
        (2001, ReceiveState::Current, MuxState::CollectingDistributing),
        // The last LACPDU arrived after six seconds.
        (9003, ReceiveState::Expired, MuxState::Waiting),
        (11_003, ReceiveState::Expired, MuxState::Attached),
        (12_003, ReceiveState::Defaulted, MuxState::Detached),
    ];
    assert_eq!(changes, expected);
}

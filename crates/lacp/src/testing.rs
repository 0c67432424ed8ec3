//! The function of the fuzz target.

use std::{num::NonZeroU16, time::Duration};

use crate::{
    Aggregator, AggregatorSettings, FRAME_BYTES, LacpMode, LacpTime, Lacpdu, MemberId,
    MemberSettings, SlowFrame, SystemId,
};

/// Checks the promises of an aggregator, with events that `data` describes.
///
/// Each step is an operation octet, an octet of time and, for a frame, its length and its octets. A short
/// frame is completed by those of a valid one, so that single octets reach every field.
///
/// # Panics
///
/// One of these promises is broken:
///
/// - A frame that parses survives its emission.
/// - A member sends at most three LACPDUs and five marker responses in a second.
/// - No deadline has passed after a poll.
/// - A member without a link is detached.
pub fn fuzz_lacp(data: &[u8]) {
    let mut unread = data.iter().copied();
    let mut now = Duration::ZERO;
    let mut aggregator = aggregator(unread.next().unwrap_or_default());
    let mut is_up = [false; MEMBERS];
    let mut sent: Vec<(MemberId, Duration)> = Vec::new();
    while let (Some(operation), Some(pause)) = (unread.next(), unread.next()) {
        now = now.saturating_add(Duration::from_millis(u64::from(pause).pow(2)));
        let index = usize::from(operation) % MEMBERS;
        let member = MemberId(u32::try_from(index).unwrap_or_default());
        match operation >> 4 {
            0..8 => {
                let length = usize::from(unread.next().unwrap_or_default());
                let octets: Vec<u8> = unread.by_ref().take(length).collect();
                let frame = completed(&octets);
                if let Ok(parsed) = SlowFrame::parse(&frame) {
                    let emitted = parsed.emit([2; 6]);
                    assert_eq!(emitted.len(), FRAME_BYTES);
                    assert_eq!(SlowFrame::parse(&emitted), Ok(parsed));
                }
                // A refusal is a legal answer.
                let _refused = aggregator.on_frame(member, &frame, now);
            }
            8..12 => {
                if let Some(link) = is_up.get_mut(index) {
                    *link = operation & 0x10 == 0;
                    aggregator.on_link(member, *link, now);
                }
            }
            _ => {}
        }
        let frames = aggregator.poll(now).frames;
        sent.retain(|(_, time)| now.saturating_sub(*time) < Duration::from_secs(1));
        sent.extend(frames.iter().map(|(member, _)| (*member, now)));
        for (member, link) in (0..).map(MemberId).zip(is_up) {
            let frames = sent.iter().filter(|(sender, _)| *sender == member).count();
            assert!(frames <= FRAMES_PER_SECOND, "{member:?} sent {frames} in a second");
            assert!(link || !aggregator.mux(member).is_attached(), "{member:?} has no link");
        }
        let deadline = aggregator.next_deadline();
        assert!(deadline.is_none_or(|deadline| deadline > now), "{deadline:?} at {now:?}");
    }
}

/// Returns an aggregator with the settings that an octet describes.
fn aggregator(octet: u8) -> Aggregator {
    let mut aggregator = Aggregator::new(AggregatorSettings {
        mode: if octet & 1 == 0 { LacpMode::Active } else { LacpMode::Passive },
        time: if octet & 2 == 0 { LacpTime::Fast } else { LacpTime::Slow },
        system: SystemId { priority: 1, mac: [2; 6] },
        key: NonZeroU16::MIN,
        fallback_ab: octet & 4 != 0,
    });
    let ports = std::iter::successors(Some(NonZeroU16::MIN), |port| port.checked_add(1));
    for (member, port) in (0..).map(MemberId).zip(ports).take(MEMBERS) {
        let port_priority = MemberSettings::PORT_PRIORITY;
        let settings = MemberSettings { mac: [2; 6], port, port_priority, key: None };
        aggregator.set_member(member, settings, Duration::ZERO);
    }
    aggregator
}

/// Returns a frame that begins with `octets`, and ends like a LACPDU.
fn completed(octets: &[u8]) -> Vec<u8> {
    let valid = SlowFrame::Lacpdu(Lacpdu::default()).emit([4; 6]);
    let (header, body) = valid.split_at(HEADER_BYTES);
    let rest = body.get(octets.len()..).filter(|_| octets.len() >= SHORTEST).unwrap_or_default();
    [header, octets, rest].concat()
}

/// Destination, source and Ethernet type.
const HEADER_BYTES: usize = 14;

/// Members of the aggregator under test.
const MEMBERS: usize = 3;

/// Three LACPDUs and five marker responses.
const FRAMES_PER_SECOND: usize = 8;

/// Frames with fewer octets are not completed.
const SHORTEST: usize = 4;

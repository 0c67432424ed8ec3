//! The function of the fuzz target.

use std::{num::NonZeroU16, time::Duration};

use crate::{
    Aggregator, AggregatorSettings, FRAME_BYTES, LacpMode, LacpTime, Lacpdu, MemberId,
    MemberSettings, SlowFrame, SystemId,
};

/// Checks properties of an aggregator under events that `data` describes.
///
/// Each step is an octet for the operation and an octet for the time. For a frame, its length and
/// its octets follow. A short frame is completed with octets of a valid frame, so that single
/// octets reach every field.
///
/// # Panics
///
/// If one of these properties does not hold:
///
/// - A frame that was parsed is equal after emitting and parsing it again.
/// - A member sends at most three LACPDUs and five marker responses in a second.
/// - After a poll, the next deadline is not in the past.
/// - A member with a link that is down is detached.
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
                let frame = complete_frame(&octets);
                if let Ok(parsed) = SlowFrame::parse(&frame) {
                    let emitted = parsed.emit([2; 6]);
                    assert_eq!(emitted.len(), FRAME_BYTES);
                    assert_eq!(SlowFrame::parse(&emitted), Ok(parsed));
                }
                // A frame may be refused.
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
            assert!(
                link || !aggregator.mux(member).is_attached(),
                "{member:?} is attached without a link"
            );
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
fn complete_frame(octets: &[u8]) -> Vec<u8> {
    let valid = SlowFrame::Lacpdu(Lacpdu::default()).emit([4; 6]);
    let (header, body) = valid.split_at(HEADER_BYTES);
    let rest = body.get(octets.len()..).filter(|_| octets.len() >= SHORTEST).unwrap_or_default();
    [header, octets, rest].concat()
}

/// Length of destination, source and Ethernet type, in octets.
const HEADER_BYTES: usize = 14;

/// Number of members of the tested aggregator.
const MEMBERS: usize = 3;

/// Maximum number of frames in a second: three LACPDUs and five marker responses.
const FRAMES_PER_SECOND: usize = 8;

/// Frames with fewer octets than this are not completed.
const SHORTEST: usize = 4;

//! The function of the fuzz target, and generators for tests.

use std::{
    num::{NonZeroU8, NonZeroU32},
    time::Duration,
};

use crate::{
    BfdAddresses, BfdDiagnostic, BfdError, BfdFlags, BfdSession, BfdSettings, BfdState,
    ControlPacket, FRAME_BYTES, parse_frame,
};

/// Checks properties of a session under events that `data` describes.
///
/// Each step is an octet for the operation and an octet for the time. For a frame, pairs of a
/// position and an octet follow, which change a valid frame.
///
/// # Panics
///
/// If one of these properties does not hold:
///
/// - A packet that was parsed is equal after emitting and parsing it again.
/// - Poll and Final are never in one packet, and a session that is not up requests an interval of
///   at least a second.
/// - After a poll, the next deadline is not in the past.
/// - A session is up only if the other end has stated `init` with the discriminator of this end, or
///   `up`. This packet must be within the detection time.
/// - Without `forwarding_if_rx`, only a session that is up is forwarding.
pub fn fuzz_bfd(data: &[u8]) {
    let mut unread = data.iter().copied();
    let mut now = Duration::ZERO;
    let mut settings = settings(unread.next().unwrap_or_default());
    let own = NonZeroU32::MIN.saturating_add(6);
    let mut session = BfdSession::new(settings, own, 1, now);
    let mut received = 0_u64;
    while let (Some(operation), Some(pause)) = (unread.next(), unread.next()) {
        now = now.saturating_add(Duration::from_millis(u64::from(pause).pow(2)));
        match operation >> 4 {
            0..10 => {
                received = received.saturating_add(1);
                let mut frame = valid_frame(operation, own);
                let changes = usize::from(unread.next().unwrap_or_default() & 7);
                for _change in 0..changes {
                    let position = usize::from(unread.next().unwrap_or_default());
                    let octet = unread.next().unwrap_or_default();
                    if let Some(changed) = frame.get_mut(position) {
                        *changed = octet;
                    }
                }
                let take = match operation >> 4 {
                    9 => BfdSession::on_packet_after_loss,
                    _ => BfdSession::on_packet,
                };
                take_frame(&mut session, &frame, |own, packet| take(own, packet, now));
            }
            10 => {
                settings = self::settings(unread.next().unwrap_or_default());
                session.set_settings(settings, now);
            }
            11 => session.set_admin_down(operation & 1 == 0, now),
            12 => received = received.saturating_add(u64::from(operation)),
            _ => {}
        }
        check_poll(&mut session, settings, received, now);
    }
}

/// Gives the control packet of a frame to the session, or counts a bad frame.
fn take_frame(
    session: &mut BfdSession,
    frame: &[u8],
    take: impl Fn(&mut BfdSession, &ControlPacket) -> Result<(), BfdError>,
) {
    let Ok(packet) = parse_frame(frame) else {
        session.count_bad_packets(1);
        return;
    };
    assert_eq!(ControlPacket::parse(&packet.emit()), Ok(packet));
    let was_connected = session.state().is_connected();
    let is_taken = take(session, &packet).is_ok();
    let state = session.state();
    if is_taken && state == BfdState::Up {
        assert!(packet.state.is_connected(), "{packet:?} keeps a session up");
        let is_known = packet.your_discriminator == session.discriminator().get();
        assert!(is_known, "{packet:?} is not for this session");
    }
    let is_new = !was_connected && state.is_connected();
    assert!(is_taken || !is_new, "{packet:?} was refused, and changed the session");
}

/// Polls a session, and checks its packet and its state.
fn check_poll(session: &mut BfdSession, settings: BfdSettings, received: u64, now: Duration) {
    let output = session.poll(received, now);
    if let Some(packet) = output.packet {
        let both = BfdFlags::POLL.with(BfdFlags::FINAL);
        assert!(!packet.flags.contains(both), "{packet:?}");
        let is_slow = packet.desired_min_tx_us >= 1_000_000;
        assert!(packet.state == BfdState::Up || is_slow, "{packet:?}");
        assert_eq!((packet.state, packet.diagnostic), (session.state(), session.diagnostic()));
    }
    let status = session.status(now);
    let is_late = status.detect_at.is_some_and(|end| end <= now);
    assert!(!is_late, "the session has not expired at its time: {status:?}");
    assert!(!status.state.is_connected() || status.detect_at.is_some(), "{status:?}");
    let is_up = status.state == BfdState::Up;
    assert!(!status.forwarding || is_up || settings.forwarding_if_rx, "{status:?}");
    let deadline = session.next_deadline(now);
    assert!(deadline.is_none_or(|deadline| deadline > now), "{deadline:?} at {now:?}");
    assert_eq!(session.poll(received, now).packet, None, "no second packet is due at once");
}

/// Returns the settings that an octet describes.
fn settings(octet: u8) -> BfdSettings {
    let interval =
        |bit: u8, short, long| Duration::from_millis(if octet & bit == 0 { short } else { long });
    BfdSettings {
        min_tx: interval(1, 100, 3000),
        min_rx: interval(2, 50, 2000),
        decay_min_rx: (octet & 4 != 0).then_some(Duration::from_secs(4)),
        multiplier: NonZeroU8::MIN.saturating_add(octet >> 6),
        cpath_down: octet & 8 != 0,
        forwarding_if_rx: octet & 16 != 0,
    }
}

/// Returns a frame for the session `own`.
///
/// The octet determines the state and flags in the frame.
fn valid_frame(octet: u8, own: NonZeroU32) -> Vec<u8> {
    let state = BfdState::from_bits(octet);
    let flags = if octet & 4 == 0 { BfdFlags::default() } else { BfdFlags::POLL };
    let flags = if octet & 8 == 0 { flags } else { flags.with(BfdFlags::FINAL) };
    let packet = ControlPacket {
        diagnostic: BfdDiagnostic::NONE,
        state,
        flags,
        multiplier: NonZeroU8::MIN.saturating_add(2),
        my_discriminator: NonZeroU32::MIN,
        your_discriminator: own.get(),
        desired_min_tx_us: 100_000,
        required_min_rx_us: 100_000,
        required_min_echo_rx_us: 0,
    };
    let frame = BfdAddresses {
        source_mac: [2; 6],
        destination_mac: BfdAddresses::DESTINATION_MAC,
        source_ip: BfdAddresses::SOURCE_IP,
        destination_ip: BfdAddresses::DESTINATION_IP,
        source_port: BfdAddresses::FIRST_SOURCE_PORT,
    }
    .emit(&packet);
    assert_eq!(frame.len(), FRAME_BYTES);
    frame
}

/// Returns a packet with plain values.
#[cfg(test)]
pub(crate) fn packet(state: BfdState, mine: u32, yours: u32) -> ControlPacket {
    ControlPacket {
        diagnostic: BfdDiagnostic::NONE,
        state,
        flags: BfdFlags::default(),
        multiplier: NonZeroU8::new(3).unwrap(),
        my_discriminator: NonZeroU32::new(mine).unwrap(),
        your_discriminator: yours,
        desired_min_tx_us: 100_000,
        required_min_rx_us: 100_000,
        required_min_echo_rx_us: 0,
    }
}

/// Generates all packets that are accepted by a parser without a session.
#[cfg(test)]
pub(crate) fn any_packet() -> impl proptest::prelude::Strategy<Value = ControlPacket> {
    use proptest::prelude::*;

    let bits = any::<(u8, u8, u8)>();
    let numbers = (any::<NonZeroU8>(), any::<NonZeroU32>(), any::<NonZeroU32>());
    (bits, numbers, any::<(u32, u32, u32)>(), any::<bool>()).prop_map(
        |((diagnostic, state, flags), (multiplier, mine, yours), (tx, rx, echo), is_known)| {
            let state = BfdState::from_bits(state);
            let is_known = is_known || state.is_connected();
            ControlPacket {
                diagnostic: BfdDiagnostic::from_bits(diagnostic),
                state,
                // The flags Authentication and Multipoint are excluded.
                flags: BfdFlags::from_bits(flags & !5),
                multiplier,
                my_discriminator: mine,
                your_discriminator: if is_known { yours.get() } else { 0 },
                desired_min_tx_us: tx,
                required_min_rx_us: rx,
                required_min_echo_rx_us: echo,
            }
        },
    )
}

//! The BFD sessions of ports, printed as by `ovs-vswitchd`.

use std::time::Duration;

use shunt_bfd::BfdStatus;
use shunt_switch::BfdPortStatus;

use super::{command::commands, methods::DaemonMethods};

commands! {
    "bfd/set-forwarding" "[interface] normal|false|true", 1..=2, Change, set_forwarding,
        "Use ports with BFD as their sessions decide (normal), never (false), or always (true)";
    "bfd/show" "[interface]", 0..=1, Read, show,
        "Show the BFD session of one port, or of all ports";
}

/// Handles `bfd/set-forwarding`: decides if a port is used, or lets BFD decide.
async fn set_forwarding(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let (port, word) = match arguments {
        [port, word] => (Some(port.as_str()), word),
        [word] => (None, word),
        // The number of arguments was checked before.
        _ => return Err("unknown fault string".to_owned()),
    };
    let is_forwarding = match word.as_str() {
        "normal" => None,
        "true" => Some(true),
        "false" => Some(false),
        _ => return Err("unknown fault string".to_owned()),
    };
    match methods.switch.force_bfd_forwarding(port, is_forwarding) {
        true => Ok("OK\n".to_owned()),
        false => Err("no such BFD object".to_owned()),
    }
}

/// Handles `bfd/show`: shows the BFD session of one port, or of all ports.
async fn show(methods: &DaemonMethods, arguments: &[String]) -> Result<String, String> {
    let bridges = methods.switch.bridges().into_iter();
    let ports = bridges.flat_map(|bridge| bridge.ports);
    let mut sessions: Vec<_> = ports.filter_map(|port| Some((port.name, port.bfd?))).collect();
    sessions.sort_by(|(one, _), (other, _)| one.cmp(other));
    let Some(name) = arguments.first() else {
        let text =
            |(name, own): &(String, BfdPortStatus)| format!("---- {name} ----\n{}", text(own));
        return Ok(sessions.iter().map(text).collect());
    };
    let found = sessions.iter().find(|(own, _)| own == name);
    found.map(|(_, own)| text(own)).ok_or_else(|| "no such bfd object".to_owned())
}

/// Returns the lines of a session.
fn text(status: &BfdPortStatus) -> String {
    let BfdPortStatus { session, now } = status;
    let BfdStatus { remote, .. } = session;
    let time = |time: Option<Duration>| {
        // `ovs-vswitchd` has no text for an unknown time, so the answer has `none`.
        time.map_or_else(|| "none".to_owned(), |time| relative(time, *now))
    };
    format!(
        "  Forwarding: {}\n  Detect Multiplier: {}\n  Concatenated Path Down: {}\n  \
         TX Interval: Approx {}ms\n  RX Interval: Approx {}ms\n  Detect Time: {}\n  \
         Next TX Time: {}\n  Last TX Time: {}\n\n  \
         Local Flags: {}\n  Local Session State: {}\n  Local Diagnostic: {}\n  \
         Local Discriminator: {:#x}\n  Local Minimum TX Interval: {}ms\n  \
         Local Minimum RX Interval: {}ms\n\n  \
         Remote Flags: {}\n  Remote Session State: {}\n  Remote Diagnostic: {}\n  \
         Remote Discriminator: {:#x}\n  Remote Minimum TX Interval: {}ms\n  \
         Remote Minimum RX Interval: {}ms\n  Remote Detect Multiplier: {}\n",
        session.forwarding,
        session.multiplier,
        session.cpath_down,
        session.tx_interval.unwrap_or_default().as_millis(),
        session.rx_interval.as_millis(),
        time(session.detect_at),
        time(session.next_tx),
        time(session.last_tx),
        session.flags,
        session.state,
        session.diagnostic,
        session.discriminator,
        session.min_tx.as_millis(),
        session.min_rx.as_millis(),
        remote.flags,
        remote.state,
        remote.diagnostic,
        remote.discriminator,
        remote.min_tx.as_millis(),
        remote.min_rx.as_millis(),
        remote.multiplier,
    )
}

/// Returns a time as its distance from `now`.
fn relative(time: Duration, now: Duration) -> String {
    match time.checked_sub(now) {
        Some(later) => format!("now +{}ms", later.as_millis()),
        None => format!("now -{}ms", now.saturating_sub(time).as_millis()),
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use shunt_bfd::{BfdSession, BfdSettings};

    use super::*;

    #[test]
    fn a_session_is_shown_as_open_vswitch_does() {
        let mut session =
            BfdSession::new(BfdSettings::default(), NonZeroU32::MIN, 0, Duration::ZERO);
        session.poll(0, Duration::ZERO);
        let now = Duration::from_millis(125);
        let shown = text(&BfdPortStatus { session: session.status(now), now });
        let first = "  Forwarding: false\n  Detect Multiplier: 3\n  Concatenated Path Down: false\n  \
                     TX Interval: Approx 1000ms\n  RX Interval: Approx 1000ms\n  Detect Time: none\n  \
                     Next TX Time: now +";
        assert!(shown.starts_with(first), "{shown}");
        let rest = "ms\n  Last TX Time: now -125ms\n\n  Local Flags: none\n  \
                    Local Session State: down\n  Local Diagnostic: No Diagnostic\n  \
                    Local Discriminator: 0x1\n  Local Minimum TX Interval: 1000ms\n  \
                    Local Minimum RX Interval: 1000ms\n\n  Remote Flags: none\n  \
                    Remote Session State: down\n  Remote Diagnostic: No Diagnostic\n  \
                    Remote Discriminator: 0x0\n  Remote Minimum TX Interval: 0ms\n  \
                    Remote Minimum RX Interval: 0ms\n  Remote Detect Multiplier: 0\n";
        assert!(shown.ends_with(rest), "{shown}");
    }
}

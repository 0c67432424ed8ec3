//! All BFD sessions of the switch, for the BFD thread.

use std::{
    collections::HashSet,
    num::NonZeroU32,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use parking_lot::Mutex;
use shunt_bfd::BfdAddresses;
use shunt_pipeline::Time;
use tokio::sync::Notify;

use crate::{
    openflow::events::ChangedPorts,
    ports::{
        bfd::port_session::{PortSession, SessionNumbers},
        bonds::MemberLink,
        port::BridgePort,
        registry::BridgeRegistry,
    },
};

/// The BFD sessions of all ports, and the notifications between their threads.
pub(crate) struct BfdSessions {
    /// The sessions in use, and those that have ended.
    all: Mutex<SessionLists>,
    /// Notified when sessions are added or removed, or their settings change.
    changed: Notify,
    /// Ports with a changed `forwarding`, for the tables and for controllers.
    flapped: ChangedPorts,
    /// The start value of random numbers.
    seed: u64,
    /// Number of sessions that were created.
    made: AtomicU32,
}

/// The current sessions, and the sessions that have ended.
#[derive(Default)]
struct SessionLists {
    /// The sessions of all ports; the list is only replaced as a whole.
    current: Arc<[Arc<PortSession>]>,
    /// Sessions of removed ports that have a last packet to send.
    ended: Vec<Arc<PortSession>>,
}

impl BfdSessions {
    /// Creates an empty list of sessions.
    ///
    /// The seed makes discriminators differ from the discriminators of an earlier process.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            all: Mutex::default(),
            changed: Notify::new(),
            flapped: ChangedPorts::default(),
            seed,
            made: AtomicU32::new(0),
        }
    }

    /// Returns the sessions of all ports.
    ///
    /// Until sessions are added or removed, each call returns the same list.
    pub(crate) fn current(&self) -> Arc<[Arc<PortSession>]> {
        Arc::clone(&self.all.lock().current)
    }

    /// Takes the sessions that have ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<Arc<PortSession>> {
        std::mem::take(&mut self.all.lock().ended)
    }

    /// Wakes the BFD thread, because settings have changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_one();
    }

    /// Returns the notification for the BFD thread.
    pub(crate) const fn changed(&self) -> &Notify {
        &self.changed
    }

    /// Returns the ports with a changed `forwarding`.
    pub(crate) const fn flapped(&self) -> &ChangedPorts {
        &self.flapped
    }

    /// Takes the ports of all sessions out of use, because the BFD thread has ended.
    pub(crate) fn abandon(&self) {
        for own in self.current().iter() {
            own.abandon();
            self.flapped.add(own.bridge, own.number);
        }
    }

    /// Returns unique identifiers for a new session.
    fn numbers(&self) -> SessionNumbers {
        let made = self.made.fetch_add(1, Ordering::Relaxed);
        let seed = self.seed.wrapping_add(u64::from(made) << 32);
        let [.., a, b, c, d] = self.seed.to_be_bytes();
        // The factor is odd: so different counts have different products, for four billion
        // sessions.
        let product = u32::from_be_bytes([a, b, c, d]).wrapping_add(made).wrapping_mul(SPREAD);
        let discriminator = NonZeroU32::new(product).unwrap_or(NonZeroU32::MAX);
        let ports = made % SOURCE_PORTS;
        let port = u16::try_from(ports).unwrap_or_default();
        let source_port = BfdAddresses::FIRST_SOURCE_PORT.saturating_add(port);
        SessionNumbers { discriminator, source_port, seed }
    }

    /// Replaces the list of sessions; sessions that are not in it send a last packet.
    ///
    /// Returns whether any sessions have ended.
    fn set_current(&self, current: Vec<Arc<PortSession>>, now: Time) -> bool {
        let mut all = self.all.lock();
        let is_same = |(old, new): (&Arc<PortSession>, &Arc<PortSession>)| Arc::ptr_eq(old, new);
        if all.current.len() == current.len() && all.current.iter().zip(&current).all(is_same) {
            return false;
        }
        let ended = missing(&all.current, &current);
        all.current = current.into();
        for own in &ended {
            own.shut_down(now);
        }
        let has_ended = !ended.is_empty();
        all.ended.extend(ended);
        has_ended
    }
}

/// Returns the objects of `before` that are not in `current`.
///
/// The cost is linear in the number of objects.
fn missing<T>(before: &[Arc<T>], current: &[Arc<T>]) -> Vec<Arc<T>> {
    let current: HashSet<*const T> = current.iter().map(Arc::as_ptr).collect();
    before.iter().filter(|own| !current.contains(&Arc::as_ptr(own))).map(Arc::clone).collect()
}

impl BridgeRegistry {
    /// Updates the sessions of all ports from the options of the ports.
    pub(crate) fn update_bfd(&mut self, sessions: &BfdSessions, now: Time) {
        let mut current = Vec::new();
        for bridge in self.iter_mut() {
            let id = bridge.id;
            bridge.ports.update_sessions(|port| {
                let Some(options) = port.settings.bfd_session() else {
                    port.bfd = None;
                    return false;
                };
                let session = match &port.bfd {
                    Some(session) => {
                        session.follow(options, port, now);
                        Arc::clone(session)
                    }
                    None => {
                        let numbers = sessions.numbers();
                        Arc::new(PortSession::new(id, port, options, numbers, now))
                    }
                };
                current.push(Arc::clone(&session));
                port.bfd = Some(session);
                true
            });
        }
        let is_used = !current.is_empty();
        let has_ended = sessions.set_current(current, now);
        if is_used || has_ended {
            sessions.notify();
        }
    }
}

impl BridgePort {
    /// Returns the link of a member of a bond; it is up only if BFD is forwarding.
    ///
    /// `None` if the port is closed or disabled.
    pub(crate) fn member_with_bfd(&self) -> Option<MemberLink> {
        let is_forwarding = self.bfd.as_ref().is_none_or(|session| session.is_forwarding());
        let is_up = self.member_link()? && is_forwarding;
        Some(MemberLink { is_up, has_bfd: self.bfd.is_some() })
    }
}

/// An odd number with mixed bits, from the golden ratio.
const SPREAD: u32 = 0x9e37_79b1;

/// Number of UDP source ports of RFC 5881, from the first port on.
const SOURCE_PORTS: u32 = 16_384;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// With a scan of a list for each session, the test would take minutes.
    #[test]
    fn ended_sessions_are_found_among_many() {
        let before: Vec<_> = (0..400_000).map(Arc::new).collect();
        let mut current: Vec<_> = before.iter().skip(200_000).map(Arc::clone).collect();
        current.extend((0..200_000).map(Arc::new));
        let ended = missing(&before, &current);
        assert!(ended.iter().map(|own| **own).eq(0..200_000));
    }

    #[test]
    fn bfd_discriminators_are_unique() {
        let sessions = BfdSessions::new(0xffff_ffff_0000_0000);
        let all: Vec<_> =
            std::iter::repeat_with(|| sessions.numbers()).take(SOURCE_PORTS as usize).collect();
        let discriminators: BTreeSet<_> = all.iter().map(|own| own.discriminator).collect();
        let ports: BTreeSet<_> = all.iter().map(|own| own.source_port).collect();
        assert_eq!((discriminators.len(), ports.len()), (all.len(), all.len()));
        assert_eq!((ports.first(), ports.last()), (Some(&49_152), Some(&u16::MAX)));
    }
}

//! Primary election among the controllers of each role.
//!
//! Each role has the highest election id that was ever used, and the streams of its controllers.
//! The primary is the live stream with the highest election id. When the primary leaves, no backup
//! is promoted: a controller must send an election id that is at least as high. Source: P4Runtime,
//! "Client Arbitration and Controller Replication".

use std::collections::BTreeMap;

use crate::{error::RpcError, wire::p4::v1::Uint128};

/// An election id. No id at all ranks below every id, including zero.
pub type ElectionId = u128;

/// Returns the election id of a message.
#[must_use]
pub fn election_id(message: Option<Uint128>) -> Option<ElectionId> {
    message.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

/// Returns the message of an election id.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the message has the two halves of the id")]
pub fn election_message(id: Option<ElectionId>) -> Option<Uint128> {
    id.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 })
}

/// The id of a stream, which is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// A notice for a stream about its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleNotice {
    /// The stream to notify.
    pub stream: StreamId,
    /// Role of the stream.
    pub role: String,
    /// True if the stream is the primary.
    pub is_primary: bool,
    /// True if the role has a primary.
    pub has_primary: bool,
    /// The highest election id that was ever used.
    pub highest: Option<ElectionId>,
}

/// The roles of a device.
///
/// The arbiter keeps the highest election id of each role forever, so the number of roles is
/// limited.
#[derive(Debug, Default)]
pub struct Arbiter {
    roles: BTreeMap<String, ElectionRole>,
    /// The role of each stream that has sent an arbitration update.
    streams: BTreeMap<StreamId, String>,
}

/// The streams of one role, and the highest election id so far.
#[derive(Debug, Default)]
struct ElectionRole {
    highest: Option<ElectionId>,
    streams: BTreeMap<StreamId, Option<ElectionId>>,
}

/// Maximum number of roles that a device remembers.
const ROLES_MAX: usize = 256;

/// Maximum length of a role name in bytes.
const ROLE_NAME_MAX: usize = 256;

impl ElectionRole {
    /// Returns the stream of the primary, if there is one.
    fn primary(&self) -> Option<StreamId> {
        let highest = self.highest?;
        let has = |(stream, id): (&StreamId, &Option<ElectionId>)| {
            (*id == Some(highest)).then_some(*stream)
        };
        self.streams.iter().find_map(has)
    }

    /// Returns the notices about the primary of a role, one for each stream.
    fn notices_for(&self, name: &str, streams: impl Iterator<Item = StreamId>) -> Vec<RoleNotice> {
        let primary = self.primary();
        let notices = |stream| RoleNotice {
            stream,
            role: name.to_owned(),
            is_primary: primary == Some(stream),
            has_primary: primary.is_some(),
            highest: self.highest,
        };
        streams.map(notices).collect()
    }

    /// Returns notices for all streams, the primary last.
    ///
    /// Streams that are not primary are notified first.
    fn notices_for_all(&self, name: &str) -> Vec<RoleNotice> {
        let primary = self.primary();
        let others = self.streams.keys().copied().filter(|stream| Some(*stream) != primary);
        self.notices_for(name, others.chain(primary))
    }
}

impl Arbiter {
    /// Handles an arbitration update and returns the notices to send.
    ///
    /// # Errors
    ///
    /// The stream must end, and [`Self::remove_stream`] must be called.
    pub fn arbitrate(
        &mut self,
        stream: StreamId,
        role: &str,
        id: Option<ElectionId>,
    ) -> Result<Vec<RoleNotice>, RpcError> {
        if role.len() > ROLE_NAME_MAX {
            return Err(RpcError::RoleName(ROLE_NAME_MAX));
        }
        if self.streams.get(&stream).is_some_and(|known| known != role) {
            return Err(RpcError::StreamMoved);
        }
        if !self.roles.contains_key(role) && self.roles.len() >= ROLES_MAX {
            return Err(RpcError::TooManyStreams(ROLES_MAX));
        }
        let entry = self.roles.entry(role.to_owned()).or_default();
        let is_taken = |(other, known): (&StreamId, &Option<ElectionId>)| {
            *other != stream && id.is_some() && *known == id
        };
        if entry.streams.iter().any(is_taken) {
            return Err(RpcError::ElectionTaken);
        }
        let before = entry.primary();
        entry.streams.insert(stream, id);
        self.streams.insert(stream, role.to_owned());
        if id.is_some() && id >= entry.highest {
            entry.highest = id;
        }
        let after = entry.primary();
        let notices = if before == after && after != Some(stream) {
            entry.notices_for(role, std::iter::once(stream))
        } else {
            entry.notices_for_all(role)
        };
        Ok(notices)
    }

    /// Removes a stream that has ended; returns the notices to send.
    pub fn remove_stream(&mut self, stream: StreamId) -> Vec<RoleNotice> {
        let Some(name) = self.streams.remove(&stream) else { return Vec::new() };
        let Some(role) = self.roles.get_mut(&name) else { return Vec::new() };
        let was_primary = role.primary() == Some(stream);
        role.streams.remove(&stream);
        let notices = if was_primary { role.notices_for_all(&name) } else { Vec::new() };
        // A role that never had a primary has no state to keep.
        if role.streams.is_empty() && role.highest.is_none() {
            self.roles.remove(&name);
        }
        notices
    }

    /// Returns whether `id` is the election id of the current primary.
    #[must_use]
    pub fn is_primary(&self, role: &str, id: Option<ElectionId>) -> bool {
        let Some(role) = self.roles.get(role) else { return false };
        id.is_some() && id == role.highest && role.primary().is_some()
    }

    /// Returns whether a stream is the primary of its role.
    #[must_use]
    pub fn is_primary_stream(&self, stream: StreamId) -> bool {
        let role = self.streams.get(&stream).and_then(|name| self.roles.get(name));
        role.is_some_and(|role| role.primary() == Some(stream))
    }

    /// Returns the primaries of all roles.
    pub fn primaries(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.roles.values().filter_map(ElectionRole::primary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The name of the default role.
    const ROLE: &str = "";

    /// Returns the stream of each notice, and if it is or has a primary.
    fn summary(notices: &[RoleNotice]) -> Vec<(u64, bool, bool)> {
        notices.iter().map(|a| (a.stream.0, a.is_primary, a.has_primary)).collect()
    }

    #[test]
    fn highest_id_is_primary_with_notifications() {
        let mut arbiter = Arbiter::default();
        let mut join = |stream, id| arbiter.arbitrate(StreamId(stream), ROLE, id);
        assert_eq!(summary(&join(1, Some(5)).unwrap()), [(1, true, true)]);
        assert_eq!(summary(&join(2, Some(3)).unwrap()), [(2, false, true)]);
        assert_eq!(summary(&join(3, None).unwrap()), [(3, false, true)]);
        let takeover = join(2, Some(7)).unwrap();
        assert_eq!(summary(&takeover), [(1, false, true), (3, false, true), (2, true, true)]);
        assert_eq!(join(4, Some(7)), Err(RpcError::ElectionTaken));
        assert!(arbiter.is_primary(ROLE, Some(7)));
        assert!(!arbiter.is_primary(ROLE, Some(5)));
        assert!(!arbiter.is_primary("other", Some(7)));
    }

    #[test]
    fn no_backup_is_promoted_when_the_primary_leaves() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), ROLE, Some(9)).unwrap();
        arbiter.arbitrate(StreamId(2), ROLE, Some(8)).unwrap();
        let notices = arbiter.remove_stream(StreamId(1));
        assert_eq!(summary(&notices), [(2, false, false)]);
        assert_eq!(notices[0].highest, Some(9));
        assert!(!arbiter.is_primary(ROLE, Some(8)) && !arbiter.is_primary(ROLE, Some(9)));
        // The id of the former primary is free, and high enough.
        assert_eq!(
            summary(&arbiter.arbitrate(StreamId(2), ROLE, Some(9)).unwrap()),
            [(2, true, true)]
        );
    }

    #[test]
    fn a_lowered_id_leaves_the_role_without_primary() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), ROLE, Some(9)).unwrap();
        arbiter.arbitrate(StreamId(2), ROLE, Some(4)).unwrap();
        let notices = arbiter.arbitrate(StreamId(1), ROLE, Some(3)).unwrap();
        assert_eq!(summary(&notices), [(1, false, false), (2, false, false)]);
    }

    #[test]
    fn an_id_of_zero_is_above_none() {
        let mut arbiter = Arbiter::default();
        assert_eq!(
            summary(&arbiter.arbitrate(StreamId(1), ROLE, None).unwrap()),
            [(1, false, false)]
        );
        assert_eq!(
            summary(&arbiter.arbitrate(StreamId(2), ROLE, Some(0)).unwrap()),
            [(1, false, true), (2, true, true)]
        );
    }

    #[test]
    fn roles_are_independent_and_streams_keep_theirs() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), "a", Some(1)).unwrap();
        assert_eq!(arbiter.arbitrate(StreamId(1), "b", Some(1)), Err(RpcError::StreamMoved));
        assert_eq!(
            summary(&arbiter.arbitrate(StreamId(2), "b", Some(1)).unwrap()),
            [(2, true, true)]
        );
        assert_eq!(arbiter.primaries().count(), 2);
    }

    #[test]
    fn roles_without_a_primary_are_forgotten() {
        let mut arbiter = Arbiter::default();
        for number in 0..2 * ROLES_MAX as u64 {
            arbiter.arbitrate(StreamId(number), &format!("r{number}"), None).unwrap();
            arbiter.remove_stream(StreamId(number));
        }
        assert!(arbiter.arbitrate(StreamId(u64::MAX), "mine", Some(1)).is_ok());
    }

    proptest! {
        #[test]
        fn primary_is_live_stream_with_highest_id(
            ops in prop::collection::vec((0u64..4, prop::option::of(0u128..5), any::<bool>()), 0..40)
        ) {
            let mut arbiter = Arbiter::default();
            let (mut live, mut highest) = (BTreeMap::<u64, Option<u128>>::new(), None);
            for (stream, id, ends) in ops {
                if ends {
                    live.remove(&stream);
                    arbiter.remove_stream(StreamId(stream));
                } else if arbiter.arbitrate(StreamId(stream), ROLE, id).is_ok() {
                    live.insert(stream, id);
                    highest = highest.max(id);
                } else {
                    let taken = live.iter().any(|(other, known)| *other != stream && *known == id);
                    prop_assert!(taken && id.is_some());
                }
                for (stream, id) in &live {
                    let expected = id.is_some() && *id == highest;
                    prop_assert_eq!(arbiter.is_primary_stream(StreamId(*stream)), expected);
                }
            }
        }
    }
}

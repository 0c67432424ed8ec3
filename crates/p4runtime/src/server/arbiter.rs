//! Which controller is the primary of its role.
//!
//! Each role has a highest election id that was ever seen, and streams; the primary is the stream that
//! has that id and lives. When it goes, nobody takes its place: a backup must come with an id at least
//! as high. Source: P4Runtime, "Client Arbitration and Controller Replication".

use std::collections::BTreeMap;

use crate::{error::RequestError, wire::p4::v1::Uint128};

/// An election id; none is below every other, zero included.
pub type ElectionId = u128;

/// The id that a message brings.
#[must_use]
pub fn election_id(message: Option<Uint128>) -> Option<ElectionId> {
    message.map(|id| u128::from(id.high) << 64 | u128::from(id.low))
}

/// The message of an id.
#[must_use]
#[expect(clippy::cast_possible_truncation, reason = "the two halves are what is asked for")]
pub fn election_message(id: Option<ElectionId>) -> Option<Uint128> {
    id.map(|id| Uint128 { high: (id >> 64) as u64, low: id as u64 })
}

/// Names a stream of this server: a number that is never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u64);

/// What a stream is to be told about its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// Whom to tell.
    pub stream: StreamId,
    /// Its role.
    pub role: String,
    /// It is the primary.
    pub is_primary: bool,
    /// Somebody is.
    pub has_primary: bool,
    /// The highest id that was ever seen.
    pub highest: Option<ElectionId>,
}

/// All roles of a device. It never forgets an id that was the highest, and so that nobody fills its memory, there is a
/// most of roles.
#[derive(Debug, Default)]
pub struct Arbiter {
    roles: BTreeMap<String, Role>,
    /// The role of each stream that has said who it is.
    streams: BTreeMap<StreamId, String>,
}

#[derive(Debug, Default)]
struct Role {
    highest: Option<ElectionId>,
    streams: BTreeMap<StreamId, Option<ElectionId>>,
}

/// Roles that a device remembers.
const ROLES_MAX: usize = 256;

/// Bytes of the name of a role.
const ROLE_NAME_MAX: usize = 256;

impl Role {
    fn primary(&self) -> Option<StreamId> {
        let highest = self.highest?;
        let has = |(stream, id): (&StreamId, &Option<ElectionId>)| {
            (*id == Some(highest)).then_some(*stream)
        };
        self.streams.iter().find_map(has)
    }

    fn advise(&self, name: &str, streams: impl Iterator<Item = StreamId>) -> Vec<Advice> {
        let primary = self.primary();
        let advice = |stream| Advice {
            stream,
            role: name.to_owned(),
            is_primary: primary == Some(stream),
            has_primary: primary.is_some(),
            highest: self.highest,
        };
        streams.map(advice).collect()
    }

    /// Everybody, the primary last: it hears of its office when the others have heard of its.
    fn advise_all(&self, name: &str) -> Vec<Advice> {
        let primary = self.primary();
        let others = self.streams.keys().copied().filter(|stream| Some(*stream) != primary);
        self.advise(name, others.chain(primary))
    }
}

impl Arbiter {
    /// A stream says who it is, or that it has another id now. What comes of it is told to the streams
    /// named in the answer.
    ///
    /// # Errors
    ///
    /// The stream ends, and [`Self::gone`] must be called.
    pub fn arbitrate(
        &mut self,
        stream: StreamId,
        role: &str,
        id: Option<ElectionId>,
    ) -> Result<Vec<Advice>, RequestError> {
        if role.len() > ROLE_NAME_MAX {
            return Err(RequestError::RoleName(ROLE_NAME_MAX));
        }
        if self.streams.get(&stream).is_some_and(|known| known != role) {
            return Err(RequestError::StreamMoved);
        }
        if !self.roles.contains_key(role) && self.roles.len() >= ROLES_MAX {
            return Err(RequestError::TooManyStreams(ROLES_MAX));
        }
        let entry = self.roles.entry(role.to_owned()).or_default();
        let is_taken = |(other, known): (&StreamId, &Option<ElectionId>)| {
            *other != stream && id.is_some() && *known == id
        };
        if entry.streams.iter().any(is_taken) {
            return Err(RequestError::ElectionTaken);
        }
        let before = entry.primary();
        entry.streams.insert(stream, id);
        self.streams.insert(stream, role.to_owned());
        if id.is_some() && id >= entry.highest {
            entry.highest = id;
        }
        let after = entry.primary();
        let advice = if before == after && after != Some(stream) {
            entry.advise(role, std::iter::once(stream))
        } else {
            entry.advise_all(role)
        };
        Ok(advice)
    }

    /// A stream has ended.
    pub fn gone(&mut self, stream: StreamId) -> Vec<Advice> {
        let Some(name) = self.streams.remove(&stream) else { return Vec::new() };
        let Some(role) = self.roles.get_mut(&name) else { return Vec::new() };
        let was_primary = role.primary() == Some(stream);
        role.streams.remove(&stream);
        let advice = if was_primary { role.advise_all(&name) } else { Vec::new() };
        // A role that never had a primary has nothing to remember.
        if role.streams.is_empty() && role.highest.is_none() {
            self.roles.remove(&name);
        }
        advice
    }

    /// Whether a request with this id is the primary's.
    #[must_use]
    pub fn is_primary(&self, role: &str, id: Option<ElectionId>) -> bool {
        let Some(role) = self.roles.get(role) else { return false };
        id.is_some() && id == role.highest && role.primary().is_some()
    }

    /// Whether a stream is the primary of its role.
    #[must_use]
    pub fn is_primary_stream(&self, stream: StreamId) -> bool {
        let role = self.streams.get(&stream).and_then(|name| self.roles.get(name));
        role.is_some_and(|role| role.primary() == Some(stream))
    }

    /// The primaries of all roles.
    pub fn primaries(&self) -> impl Iterator<Item = StreamId> + '_ {
        self.roles.values().filter_map(Role::primary)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ROLE: &str = "";

    fn told(advice: &[Advice]) -> Vec<(u64, bool, bool)> {
        advice.iter().map(|a| (a.stream.0, a.is_primary, a.has_primary)).collect()
    }

    #[test]
    fn the_highest_id_is_primary_and_the_others_hear_of_it() {
        let mut arbiter = Arbiter::default();
        let mut join = |stream, id| arbiter.arbitrate(StreamId(stream), ROLE, id);
        assert_eq!(told(&join(1, Some(5)).unwrap()), [(1, true, true)]);
        assert_eq!(told(&join(2, Some(3)).unwrap()), [(2, false, true)]);
        assert_eq!(told(&join(3, None).unwrap()), [(3, false, true)]);
        let takeover = join(2, Some(7)).unwrap();
        assert_eq!(told(&takeover), [(1, false, true), (3, false, true), (2, true, true)]);
        assert_eq!(join(4, Some(7)), Err(RequestError::ElectionTaken));
        assert!(arbiter.is_primary(ROLE, Some(7)));
        assert!(!arbiter.is_primary(ROLE, Some(5)));
        assert!(!arbiter.is_primary("other", Some(7)));
    }

    #[test]
    fn nobody_takes_the_place_of_a_primary_that_is_gone() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), ROLE, Some(9)).unwrap();
        arbiter.arbitrate(StreamId(2), ROLE, Some(8)).unwrap();
        let advice = arbiter.gone(StreamId(1));
        assert_eq!(told(&advice), [(2, false, false)]);
        assert_eq!(advice[0].highest, Some(9));
        assert!(!arbiter.is_primary(ROLE, Some(8)) && !arbiter.is_primary(ROLE, Some(9)));
        // The id of the one that is gone is free, and high enough.
        assert_eq!(
            told(&arbiter.arbitrate(StreamId(2), ROLE, Some(9)).unwrap()),
            [(2, true, true)]
        );
    }

    #[test]
    fn a_primary_that_lowers_its_id_leaves_the_role_without_one() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), ROLE, Some(9)).unwrap();
        arbiter.arbitrate(StreamId(2), ROLE, Some(4)).unwrap();
        let advice = arbiter.arbitrate(StreamId(1), ROLE, Some(3)).unwrap();
        assert_eq!(told(&advice), [(1, false, false), (2, false, false)]);
    }

    #[test]
    fn an_id_of_zero_is_above_none() {
        let mut arbiter = Arbiter::default();
        assert_eq!(told(&arbiter.arbitrate(StreamId(1), ROLE, None).unwrap()), [(1, false, false)]);
        assert_eq!(
            told(&arbiter.arbitrate(StreamId(2), ROLE, Some(0)).unwrap()),
            [(1, false, true), (2, true, true)]
        );
    }

    #[test]
    fn a_stream_keeps_its_role_and_roles_know_nothing_of_each_other() {
        let mut arbiter = Arbiter::default();
        arbiter.arbitrate(StreamId(1), "a", Some(1)).unwrap();
        assert_eq!(arbiter.arbitrate(StreamId(1), "b", Some(1)), Err(RequestError::StreamMoved));
        assert_eq!(told(&arbiter.arbitrate(StreamId(2), "b", Some(1)).unwrap()), [(2, true, true)]);
        assert_eq!(arbiter.primaries().count(), 2);
    }

    #[test]
    fn roles_that_nobody_was_primary_of_leave_room_for_others() {
        let mut arbiter = Arbiter::default();
        for number in 0..2 * ROLES_MAX as u64 {
            arbiter.arbitrate(StreamId(number), &format!("r{number}"), None).unwrap();
            arbiter.gone(StreamId(number));
        }
        assert!(arbiter.arbitrate(StreamId(u64::MAX), "mine", Some(1)).is_ok());
    }

    proptest! {
        #[test]
        fn the_primary_is_the_live_stream_with_the_highest_id_ever_seen(
            ops in prop::collection::vec((0u64..4, prop::option::of(0u128..5), any::<bool>()), 0..40)
        ) {
            let mut arbiter = Arbiter::default();
            let (mut live, mut highest) = (BTreeMap::<u64, Option<u128>>::new(), None);
            for (stream, id, ends) in ops {
                if ends {
                    live.remove(&stream);
                    arbiter.gone(StreamId(stream));
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

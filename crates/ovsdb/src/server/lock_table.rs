//! Named locks of clients (RFC 7047, sections 4.1.8 to 4.1.10).

use std::collections::{BTreeMap, VecDeque};

use super::ClientId;

/// For each lock, the clients that own it or wait for it, in order of request.
///
/// The first client of the list owns the lock.
#[derive(Debug, Default)]
pub(super) struct LockTable {
    /// The owner and the waiting clients of each lock.
    queues: BTreeMap<String, VecDeque<ClientId>>,
    /// Number of locks that each client owns or waits for.
    counts: BTreeMap<ClientId, usize>,
}

/// A request for a lock that the client has requested already.
pub(super) struct AlreadyRequested;

impl LockTable {
    /// Returns whether a client owns a lock.
    pub(super) fn is_owner(&self, name: &str, client: ClientId) -> bool {
        self.queues.get(name).and_then(VecDeque::front) == Some(&client)
    }

    /// Returns the number of locks that a client owns or waits for.
    pub(super) fn count(&self, client: ClientId) -> usize {
        self.counts.get(&client).copied().unwrap_or_default()
    }

    /// Requests a lock. Returns whether the client owns it now.
    pub(super) fn lock(&mut self, name: &str, client: ClientId) -> Result<bool, AlreadyRequested> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&client) {
            return Err(AlreadyRequested);
        }
        queue.push_back(client);
        let is_owner = queue.len() == 1;
        *self.counts.entry(client).or_default() += 1;
        Ok(is_owner)
    }

    /// Steals a lock; returns its former owner, which then waits for it.
    pub(super) fn steal(
        &mut self,
        name: &str,
        client: ClientId,
    ) -> Result<Option<ClientId>, AlreadyRequested> {
        let queue = self.queues.entry(name.to_owned()).or_default();
        if queue.contains(&client) {
            return Err(AlreadyRequested);
        }
        let owner = queue.front().copied();
        queue.push_front(client);
        *self.counts.entry(client).or_default() += 1;
        Ok(owner)
    }

    /// Releases a lock, or cancels the wait for it.
    ///
    /// Returns the new owner, if the lock has one.
    ///
    /// `None` means that the client had not requested the lock.
    pub(super) fn unlock(&mut self, name: &str, client: ClientId) -> Option<Option<ClientId>> {
        let queue = self.queues.get_mut(name)?;
        let place = queue.iter().position(|other| *other == client)?;
        queue.remove(place);
        let next = queue.front().copied().filter(|_| place == 0);
        if queue.is_empty() {
            self.queues.remove(name);
        }
        let count = self.count(client).saturating_sub(1);
        if count == 0 {
            self.counts.remove(&client);
        } else {
            self.counts.insert(client, count);
        }
        Some(next)
    }

    /// Releases all locks of a client, and cancels its waits.
    ///
    /// Returns the new owners with the names of their locks.
    pub(super) fn disconnect(&mut self, client: ClientId) -> Vec<(ClientId, String)> {
        let requested = self.queues.iter().filter(|(_, queue)| queue.contains(&client));
        let names: Vec<String> = requested.map(|(name, _)| name.clone()).collect();
        let unlock = |name: String| Some((self.unlock(&name, client)??, name));
        names.into_iter().filter_map(unlock).collect()
    }
}

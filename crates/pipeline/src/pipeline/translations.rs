//! Translations: by a version that the caller holds, or by the newest one.

use std::{sync::Arc, time::Duration};

use shunt_classifier::Version;
use shunt_flow::{FlowKey, Match};

use super::Pipeline;
use crate::{
    action::Action,
    bridges::bridge::VersionedBridges,
    continuations::continuation::Continuation,
    tables::learned::masked::IndexedFrom,
    translate::{self, TablesAtVersion},
    traversals::{explanation::Explanation, traversal::Traversal},
};

impl Pipeline {
    /// Translates a packet by the tables of its bridge, as `version` sees them.
    ///
    /// The key names the bridge and the ingress port. `version` is published and not reclaimed.
    #[must_use]
    pub fn translate(&self, key: &FlowKey, version: Version) -> Traversal {
        translate::packet(self.tables(&self.bridges.read(), version), key)
    }

    /// Continues with a packet after a recirculation, as `version` sees the tables.
    ///
    /// The key comes from a second parse of the packet, completed by [`Continuation::enter`].
    #[must_use]
    pub fn resume(
        &self,
        key: &FlowKey,
        continuation: &Arc<Continuation>,
        version: Version,
    ) -> Traversal {
        translate::resume(self.tables(&self.bridges.read(), version), key, continuation)
    }

    /// Translates a packet by tuple space search alone, as `version` sees the tables.
    ///
    /// The decision is the same, and shares no learned index with the decision that it verifies.
    /// The masks may have other bits.
    #[must_use]
    pub fn translate_by_tuple_space(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
        version: Version,
    ) -> Traversal {
        let bridges = self.bridges.read();
        let tables =
            TablesAtVersion { indexed_from: IndexedFrom::NEVER, ..self.tables(&bridges, version) };
        match start {
            None => translate::packet(tables, key),
            Some(continuation) => translate::resume(tables, key, continuation),
        }
    }

    /// Continues with a packet that a controller sends back, by the newest tables.
    ///
    /// The packet-in had the continuation
    /// ([`Punt::continuation`](crate::Punt::continuation)). The pipeline fields are those that the
    /// controller sends. The key has the headers of the frame alone.
    #[must_use]
    pub fn resume_paused(
        &self,
        frame: &FlowKey,
        continuation: &Continuation,
        metadata: &Match,
    ) -> Traversal {
        let frozen = continuation.frozen().resumed(metadata);
        let continuation = self.continuations.intern(frozen, None);
        let mut key = frame.clone();
        continuation.enter(&mut key);
        let bridges = self.bridges.read();
        translate::resume(self.tables(&bridges, self.version()), &key, &continuation)
    }

    /// Runs the actions of a packet-out on a packet.
    ///
    /// The key has the bridge, and the ingress port of the packet-out. An output to
    /// [`PortNo::TABLE`](shunt_flow::PortNo::TABLE) sends the packet through the tables.
    #[must_use]
    pub fn translate_actions(
        &self,
        key: &FlowKey,
        actions: &[Action],
        version: Version,
    ) -> Traversal {
        translate::packet_out(self.tables(&self.bridges.read(), version), key, actions)
    }

    /// Translates a packet by the newest version of the tables.
    ///
    /// The function is for callers that have reserved no version. One hold of the lock covers the
    /// choice of the version and the translation, so the version is not reclaimed meanwhile.
    #[must_use]
    pub fn translate_at_newest_version(&self, key: &FlowKey) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet(self.tables(&bridges, self.version()), key)
    }

    /// Continues with a recirculated packet, by the newest version of the tables.
    #[must_use]
    pub fn resume_at_newest_version(
        &self,
        key: &FlowKey,
        continuation: &Arc<Continuation>,
    ) -> Traversal {
        let bridges = self.bridges.read();
        translate::resume(self.tables(&bridges, self.version()), key, continuation)
    }

    /// Translates a packet, and explains the translation.
    ///
    /// The packet starts at its arrival, or at a continuation, by the newest version of the tables.
    #[must_use]
    pub fn explain_at_newest_version(
        &self,
        key: &FlowKey,
        start: Option<&Arc<Continuation>>,
    ) -> Explanation {
        let bridges = self.bridges.read();
        translate::explained(self.tables(&bridges, self.version()), key, start)
    }

    /// Runs the actions of a packet-out, by the newest version of the tables.
    #[must_use]
    pub fn translate_actions_at_newest_version(
        &self,
        key: &FlowKey,
        actions: &[Action],
    ) -> Traversal {
        let bridges = self.bridges.read();
        translate::packet_out(self.tables(&bridges, self.version()), key, actions)
    }

    /// Runs actions on a packet, as a version sees tables that are being changed.
    pub(crate) fn run_actions(
        &self,
        bridges: &VersionedBridges,
        key: &FlowKey,
        actions: &[Action],
        version: Version,
    ) -> Traversal {
        translate::packet_out(self.tables(bridges, version), key, actions)
    }

    /// Calls `run` with the tables, as `version` sees them.
    pub(crate) fn with_tables<T>(
        &self,
        version: Version,
        run: impl FnOnce(TablesAtVersion<'_>) -> T,
    ) -> T {
        run(self.tables(&self.bridges.read(), version))
    }

    /// Calls `run` with the tables, as `version` sees them, if the lock is soon free.
    ///
    /// The call waits at most `wait` for the lock.
    /// Returns `None` if a change of the tables holds the lock longer.
    pub(crate) fn try_with_tables<T>(
        &self,
        version: Version,
        wait: Duration,
        run: impl FnOnce(TablesAtVersion<'_>) -> T,
    ) -> Option<T> {
        let bridges = self.bridges.try_read_for(wait)?;
        Some(run(self.tables(&bridges, version)))
    }

    /// Returns the tables as a version sees them.
    pub(super) fn tables<'a>(
        &'a self,
        bridges: &'a VersionedBridges,
        version: Version,
    ) -> TablesAtVersion<'a> {
        let indexed_from = self.indexed_from();
        TablesAtVersion { bridges, continuations: &self.continuations, version, indexed_from }
    }
}

//! Tasks of the client, and the write and read requests that are made of tasks.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashSet;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{LtmIndex, OffloadError, Refusal, Ticket},
    partition::StageId,
};
use tonic::Code;

use super::{
    ClientSettings, PacketToSend, SessionError,
    encoded::{EntryCount, counter_request, deletion},
    session::Requests,
};
use crate::{
    error::{DeviceLimit, UpdateCode},
    wire::p4::v1::{TableEntry, update::Type},
};

/// A task for the session worker.
#[derive(Debug)]
pub(super) enum Task {
    Insert {
        ticket: Ticket,
        entry: LtmIndex,
        installed: InstalledRule,
        update: Vec<u8>,
    },
    Modify {
        ticket: Ticket,
        entry: LtmIndex,
        rule: Arc<LtmRule>,
    },
    Remove {
        ticket: Ticket,
        entry: LtmIndex,
    },
    Count {
        ticket: Ticket,
        entries: Vec<LtmIndex>,
    },
    /// The entry is not to be restored after a reconnect.
    Forget {
        entry: LtmIndex,
    },
    Send(PacketToSend),
}

impl Task {
    /// Returns the ticket to answer, if the task has one.
    pub(super) const fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Insert { ticket, .. }
            | Self::Modify { ticket, .. }
            | Self::Remove { ticket, .. }
            | Self::Count { ticket, .. } => Some(*ticket),
            Self::Forget { .. } | Self::Send(_) => None,
        }
    }

    /// Returns the entry that the task changes.
    pub(super) const fn entry(&self) -> Option<LtmIndex> {
        match self {
            Self::Insert { entry, .. }
            | Self::Modify { entry, .. }
            | Self::Remove { entry, .. } => Some(*entry),
            Self::Count { .. } | Self::Forget { .. } | Self::Send(_) => None,
        }
    }

    /// Returns the kind, which decides what can be batched and run concurrently.
    pub(super) const fn kind(&self) -> TaskKind {
        match self {
            Self::Insert { .. } => TaskKind::Insert,
            Self::Modify { .. } => TaskKind::Modify,
            Self::Remove { .. } => TaskKind::Remove,
            Self::Count { .. } => TaskKind::Count,
            Self::Forget { .. } => TaskKind::Forget,
            Self::Send(_) => TaskKind::Send,
        }
    }
}

/// The kind of a task. Tasks of one kind can be batched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    Insert,
    Modify,
    Remove,
    Count,
    Forget,
    Send,
}

/// A rule that the device holds, and its stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InstalledRule {
    pub(super) stage: StageId,
    pub(super) rule: Arc<LtmRule>,
}

/// The rules that the device has confirmed.
pub(super) type ConfirmedRules = BTreeMap<LtmIndex, InstalledRule>;

impl InstalledRule {
    /// Returns the table entry with name `entry`.
    ///
    /// # Errors
    ///
    /// The program cannot express the rule.
    pub(super) fn value(
        &self,
        settings: &ClientSettings,
        entry: LtmIndex,
    ) -> Result<TableEntry, Refusal> {
        let value = settings.encode(self.stage, &self.rule)?;
        let idle_timeout_ns = settings.idle_timeout_ns();
        Ok(TableEntry { controller_metadata: entry.0, idle_timeout_ns, ..value })
    }

    /// Returns the encoded update that inserts or modifies the entry.
    ///
    /// # Errors
    ///
    /// The program cannot express the rule.
    pub(super) fn update(
        &self,
        settings: &ClientSettings,
        kind: Type,
        entry: LtmIndex,
    ) -> Result<Vec<u8>, Refusal> {
        settings.encode_update(kind, entry, self.stage, &self.rule)
    }

    /// Returns the encoded key of the entry in the device.
    ///
    /// # Errors
    ///
    /// The program cannot express the rule.
    pub(super) fn key(&self, settings: &ClientSettings) -> Result<Vec<u8>, Refusal> {
        settings.encode_key(self.stage, &self.rule)
    }
}

/// One update of a write request.
#[derive(Clone, Debug)]
pub(super) struct PendingUpdate {
    pub(super) ticket: Ticket,
    pub(super) entry: LtmIndex,
    /// The rule after the update; for a removal, the rule before it.
    pub(super) installed: InstalledRule,
}

/// A write or read request in progress.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) kind: TaskKind,
    pub(super) parts: Vec<PendingUpdate>,
    /// Tickets of count operations.
    pub(super) tickets: Vec<Ticket>,
    pub(super) requested: HashSet<LtmIndex, foldhash::fast::FixedState>,
}

/// The number of a finished request, and its result.
#[derive(Debug)]
pub(super) struct FinishedRequest {
    pub(super) number: u64,
    pub(super) result: Result<BatchResult, SessionError>,
}

/// The reply of the device.
#[derive(Debug, Default)]
pub(super) struct BatchResult {
    pub(super) codes: Vec<UpdateCode>,
    pub(super) counts: Vec<EntryCount>,
}

/// Selects whether updates are written as one batch or one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteMode {
    Batch,
    OneByOne,
}

/// Writes updates to the device; returns the result of each.
pub(super) async fn write(
    mut requests: Requests,
    updates: Vec<Vec<u8>>,
    manner: WriteMode,
) -> Result<BatchResult, SessionError> {
    let codes = match manner {
        WriteMode::Batch => requests.write(updates).await?,
        WriteMode::OneByOne => requests.write_each(updates).await?,
    };
    Ok(BatchResult { codes, counts: Vec::new() })
}

/// Reads the counters of the entries with these keys, then deletes the entries.
///
/// Hits between the read and the delete are not counted.
pub(super) async fn remove(
    mut requests: Requests,
    keys: Vec<Vec<u8>>,
) -> Result<BatchResult, SessionError> {
    let requests_encoded = keys.iter().map(|key| counter_request(key));
    let counts = match requests.count(requests_encoded.collect()).await {
        Ok(counts) => counts,
        // An entry without a readable counter can still be deleted.
        Err(SessionError::Refused(_)) => Vec::new(),
        Err(error) => return Err(error),
    };
    let deletes = || keys.iter().map(|key| deletion(key)).collect();
    let codes = match requests.write(deletes()).await {
        Err(SessionError::NoDetails(_)) => requests.write_each(deletes()).await?,
        written => written?,
    };
    Ok(BatchResult { codes, counts })
}

/// Reads the counters that the encoded requests select.
pub(super) async fn count(
    mut requests: Requests,
    requests_encoded: Vec<Vec<u8>>,
) -> Result<BatchResult, SessionError> {
    let counts = if requests_encoded.is_empty() {
        Vec::new()
    } else {
        requests.count(requests_encoded).await?
    };
    Ok(BatchResult { codes: Vec::new(), counts })
}

/// Returns the result of an update, as the offload agent reads it.
pub(super) fn result_of(part: UpdateCode) -> Result<(), OffloadError> {
    match part.limit {
        Some(DeviceLimit::Masks) => return Err(OffloadError::Refused(Refusal::Masks)),
        Some(DeviceLimit::KeyBits) => return Err(OffloadError::Refused(Refusal::KeyBits)),
        None => {}
    }
    match part.code {
        Code::Ok => Ok(()),
        Code::ResourceExhausted => Err(OffloadError::NoRoom),
        Code::AlreadyExists => Err(OffloadError::Exists),
        Code::NotFound => Err(OffloadError::NoSuchEntry),
        code => Err(OffloadError::Failed(code.into())),
    }
}

//! What the owner asks for, and the writes and reads that are made of it.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashSet;
use shunt_gigaflow::{
    ltm::LtmRule,
    offload::{LtmIndex, Refusal, Ticket},
    partition::StageId,
};

use super::{
    PacketToSend, SessionError, Settings,
    encoded::{Counted, counter_question, deletion},
    session::Requests,
};
use crate::{
    error::PartCode,
    wire::p4::v1::{TableEntry, update::Type},
};

/// An operation, on its way to the worker.
#[derive(Debug)]
pub(super) enum Task {
    Insert {
        ticket: Ticket,
        entry: LtmIndex,
        held: Held,
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
    /// An entry is not to be put back into a device that is lost.
    Forget {
        entry: LtmIndex,
    },
    Send(PacketToSend),
}

impl Task {
    pub(super) const fn ticket(&self) -> Option<Ticket> {
        match self {
            Self::Insert { ticket, .. }
            | Self::Modify { ticket, .. }
            | Self::Remove { ticket, .. }
            | Self::Count { ticket, .. } => Some(*ticket),
            Self::Forget { .. } | Self::Send(_) => None,
        }
    }

    /// The entry that it changes.
    pub(super) const fn entry(&self) -> Option<LtmIndex> {
        match self {
            Self::Insert { entry, .. }
            | Self::Modify { entry, .. }
            | Self::Remove { entry, .. } => Some(*entry),
            Self::Count { .. } | Self::Forget { .. } | Self::Send(_) => None,
        }
    }

    /// What it can be in one batch with, and under way beside.
    pub(super) const fn kind(&self) -> Kind {
        match self {
            Self::Insert { .. } => Kind::Insert,
            Self::Modify { .. } => Kind::Modify,
            Self::Remove { .. } => Kind::Remove,
            Self::Count { .. } => Kind::Count,
            Self::Forget { .. } => Kind::Forget,
            Self::Send(_) => Kind::Send,
        }
    }
}

/// Tasks of one kind go into one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Insert,
    Modify,
    Remove,
    Count,
    Forget,
    Send,
}

/// A rule that the device has, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) stage: StageId,
    pub(super) rule: Arc<LtmRule>,
}

/// What a device has confirmed.
pub(super) type Confirmed = BTreeMap<LtmIndex, Held>;

impl Held {
    /// The entry of this name.
    ///
    /// # Errors
    ///
    /// The program cannot say the rule.
    pub(super) fn value(
        &self,
        settings: &Settings,
        entry: LtmIndex,
    ) -> Result<TableEntry, Refusal> {
        let value = settings.encode(self.stage, &self.rule)?;
        let idle_timeout_ns = settings.idle_timeout_ns();
        Ok(TableEntry { controller_metadata: entry.0, idle_timeout_ns, ..value })
    }

    /// The update that inserts it under this name, or makes the entry do what it does, as bytes.
    ///
    /// # Errors
    ///
    /// The program cannot say the rule.
    pub(super) fn update(
        &self,
        settings: &Settings,
        (kind, entry): (Type, LtmIndex),
    ) -> Result<Vec<u8>, Refusal> {
        settings.encode_update((kind, entry), (self.stage, &self.rule))
    }

    /// Its place in the device, as bytes.
    ///
    /// # Errors
    ///
    /// The program cannot say it.
    pub(super) fn place(&self, settings: &Settings) -> Result<Vec<u8>, Refusal> {
        settings.encode_place(self.stage, &self.rule)
    }
}

/// One part of a write.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) ticket: Ticket,
    pub(super) entry: LtmIndex,
    /// What the entry is if the part is done; of a removal, what it was.
    pub(super) held: Held,
}

/// A write or a read that is under way.
#[derive(Debug)]
pub(super) struct Flight {
    pub(super) kind: Kind,
    pub(super) parts: Vec<Part>,
    /// Those of counts.
    pub(super) tickets: Vec<Ticket>,
    pub(super) asked: HashSet<LtmIndex, foldhash::fast::FixedState>,
}

/// What became of it.
#[derive(Debug)]
pub(super) struct Landed {
    pub(super) number: u64,
    pub(super) result: Result<Answer, SessionError>,
}

/// What the device answered.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) codes: Vec<PartCode>,
    pub(super) counted: Vec<Counted>,
}

/// Writes, all at once or each on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Batch,
    OneByOne,
}

/// Writes a batch.
pub(super) async fn write(
    mut requests: Requests,
    updates: Vec<Vec<u8>>,
    manner: Manner,
) -> Result<Answer, SessionError> {
    let codes = match manner {
        Manner::Batch => requests.write(updates).await?,
        Manner::OneByOne => requests.write_each(updates).await?,
    };
    Ok(Answer { codes, counted: Vec::new() })
}

/// Reads the counters of the entries at these places, and deletes them. What they count in between is
/// lost.
pub(super) async fn remove(
    mut requests: Requests,
    places: Vec<Vec<u8>>,
) -> Result<Answer, SessionError> {
    let questions = places.iter().map(|place| counter_question(place));
    let counted = match requests.count(questions.collect()).await {
        Ok(counted) => counted,
        // What cannot be counted can still be deleted.
        Err(SessionError::Refused(_)) => Vec::new(),
        Err(error) => return Err(error),
    };
    let deletes = || places.iter().map(|place| deletion(place)).collect();
    let codes = match requests.write(deletes()).await {
        Err(SessionError::NoDetails(_)) => requests.write_each(deletes()).await?,
        written => written?,
    };
    Ok(Answer { codes, counted })
}

/// Reads counters.
pub(super) async fn count(
    mut requests: Requests,
    questions: Vec<Vec<u8>>,
) -> Result<Answer, SessionError> {
    let counted = if questions.is_empty() { Vec::new() } else { requests.count(questions).await? };
    Ok(Answer { codes: Vec::new(), counted })
}

//! What the owner asks for, and the writes and reads that are made of it.

use std::{collections::BTreeMap, sync::Arc};

use hashbrown::HashSet;
use shunt_gigaflow::{
    ltm::LtmRule,
    partition::StageId,
    target::{LtmIndex, Refusal, Ticket},
};

use super::{
    PacketToSend, SessionError, Settings,
    session::{Requests, counter_question, update},
};
use crate::{
    error::PartCode,
    wire::p4::v1::{TableEntry, Update, update::Type},
};

/// An operation, on its way to the worker.
#[derive(Debug)]
pub(super) enum Task {
    Insert {
        ticket: Ticket,
        entry: LtmIndex,
        held: Held,
        value: Box<TableEntry>,
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
        Ok(named(settings, entry, value))
    }

    /// Its place in the device.
    ///
    /// # Errors
    ///
    /// The program cannot say it.
    pub(super) fn place(&self, settings: &Settings) -> Result<TableEntry, Refusal> {
        settings.encode_place(self.stage, &self.rule)
    }
}

/// An entry with its name and the time after which it is told.
pub(super) fn named(settings: &Settings, entry: LtmIndex, value: TableEntry) -> TableEntry {
    let idle = settings.idle.unwrap_or_default().as_nanos();
    TableEntry {
        controller_metadata: entry.0,
        idle_timeout_ns: i64::try_from(idle).unwrap_or(i64::MAX),
        ..value
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
    pub(super) counted: Vec<TableEntry>,
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
    updates: Vec<Update>,
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
    places: Vec<TableEntry>,
) -> Result<Answer, SessionError> {
    let counted = match requests.read(places.iter().map(counter_question).collect()).await {
        Ok(counted) => counted,
        // What cannot be counted can still be deleted.
        Err(SessionError::Refused(_)) => Vec::new(),
        Err(error) => return Err(error),
    };
    let deletes = || places.iter().map(|place| update(Type::Delete, place.clone())).collect();
    let codes = match requests.write(deletes()).await {
        Err(SessionError::NoDetails(_)) => requests.write_each(deletes()).await?,
        written => written?,
    };
    Ok(Answer { codes, counted })
}

/// Reads counters.
pub(super) async fn count(
    mut requests: Requests,
    questions: Vec<TableEntry>,
) -> Result<Answer, SessionError> {
    let counted = if questions.is_empty() { Vec::new() } else { requests.read(questions).await? };
    Ok(Answer { codes: Vec::new(), counted })
}

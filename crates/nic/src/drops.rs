//! What became of packets, counted.
//!
//! Each packet that is taken from a port, a representor or the controller has one fate: it is sent,
//! handed to the controller, given to the representor of its port, or dropped for one reason. So
//! received = sent + handed over + represented + dropped, once the thread is done with a burst.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a packet went nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// An entry says so, or would send it back to where it came from.
    Rule,
    /// There is no port of the number that it was to leave by.
    NoPort,
    /// A port did not take it.
    Refused,
    /// It cannot be cut into frames, or has no room for a tag.
    Unsendable,
    /// There was no buffer left.
    NoBuffer,
    /// Too many packets waited for the controller.
    Controller,
    /// A representor did not take it.
    Representor,
}

impl DropReason {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Rule,
        Self::NoPort,
        Self::Refused,
        Self::Unsendable,
        Self::NoBuffer,
        Self::Controller,
        Self::Representor,
    ];

    /// What it is called in a status: a word or two.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rule => "rule",
            Self::NoPort => "no port",
            Self::Refused => "refused",
            Self::Unsendable => "unsendable",
            Self::NoBuffer => "no buffer",
            Self::Controller => "controller",
            Self::Representor => "representor",
        }
    }
}

/// Packets of a NIC by their fate. The packet thread adds, whoever likes reads.
#[derive(Debug, Default)]
pub struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    handed_over: AtomicU64,
    represented: AtomicU64,
    hits: AtomicU64,
    partial_hits: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    ports_broken: AtomicU64,
}

impl Traffic {
    /// Packets from ports, from representors and from the controller.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Packets that left by a port.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Packets that were handed to the controller.
    #[must_use]
    pub fn handed_over(&self) -> u64 {
        self.handed_over.load(Ordering::Relaxed)
    }

    /// Packets that were given to the representor of the port that they came by.
    #[must_use]
    pub fn represented(&self) -> u64 {
        self.represented.load(Ordering::Relaxed)
    }

    /// Packets that came to an end in the stages, where they were sent or dropped.
    #[must_use]
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// Packets that met some entries, and none where they had come to: misses like others.
    #[must_use]
    pub fn partial_hits(&self) -> u64 {
        self.partial_hits.load(Ordering::Relaxed)
    }

    /// Packets that were dropped for a reason.
    #[must_use]
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.dropped[reason as usize].load(Ordering::Relaxed)
    }

    /// Ports that failed and are not asked any more.
    #[must_use]
    pub fn ports_broken(&self) -> u64 {
        self.ports_broken.load(Ordering::Relaxed)
    }

    pub(crate) fn receive(&self, count: usize) {
        self.received.fetch_add(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn note_sent(&self, sent: Result<(), DropReason>) {
        match sent {
            Ok(()) => {
                self.sent.fetch_add(1, Ordering::Relaxed);
            }
            Err(reason) => self.drop_for(reason),
        }
    }

    pub(crate) fn represent(&self) {
        self.represented.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn miss_midway(&self) {
        self.partial_hits.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn hand_over(&self) {
        self.handed_over.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn drop_for(&self, reason: DropReason) {
        self.dropped[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn break_port(&self) {
        self.ports_broken.fetch_add(1, Ordering::Relaxed);
    }
}

//! Pauses: a packet waits at a controller, which lets it go on, perhaps as another one.
//!
//! `controller(pause)` ends the entry as a cut does (see [`super::cut`]), but the packet goes to
//! controllers, and its packet-in has what is left of the translation. Whoever sends it back says
//! what the packet is then, and what its pipeline fields are: those that a packet-in tells count as
//! they come back, zero where they are left out, and the others as they were (Open vSwitch,
//! `NXT_RESUME`).

use std::sync::Arc;

use shunt_flow::{FieldId, Match};

use super::{
    context::Translation,
    cut::{Spent, hidden},
    output::METADATA,
};
use crate::continuations::continuation::{Continuation, Frozen};

impl Translation<'_> {
    /// Freezes what is left. Who lets it go on has sent a message for it, so it may look up and be
    /// parsed as often as any packet; the depth is one that what is left comes back to.
    pub(super) fn pause(&mut self) -> Arc<Continuation> {
        let spent = Spent { depth: self.spent.depth, ..Spent::default() };
        let frozen = self.frozen(None, spent);
        self.continuations.intern(frozen, None)
    }
}

impl Frozen {
    /// What is left, with the pipeline fields that a controller sends back.
    pub(crate) fn resumed(&self, metadata: &Match) -> Self {
        let (mut key, told) = (self.hidden.key(), metadata.key());
        for field in METADATA.iter().filter(|field| **field != FieldId::InPort) {
            key.set_field(*field, told.field(*field));
        }
        Self { in_port: Some(told.in_port()), hidden: hidden(&key), ..self.clone() }
    }
}

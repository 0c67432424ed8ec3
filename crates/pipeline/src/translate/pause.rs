//! Pauses: a packet waits at a controller, which sends it back, possibly changed.
//!
//! `controller(pause)` ends the entry as a recirculation does (see [`super::recirculation`]), but
//! the packet goes to controllers, and its packet-in has the continuation. The controller that
//! sends the packet back defines its content and its pipeline fields. Each pipeline field of a
//! packet-in gets the value that the controller returns, or zero if the controller omits it. Other
//! fields keep their values (Open vSwitch, `NXT_RESUME`).

use shunt_flow::{FieldId, Match};

use super::actions::packet_in::METADATA;
use crate::continuations::{continuation::FrozenState, hidden_state::hidden_state};

impl FrozenState {
    /// Returns the state with the pipeline fields that a controller sends back.
    pub(crate) fn resumed(&self, metadata: &Match) -> Self {
        let (mut key, sent) = (self.hidden.key(), metadata.key());
        for field in METADATA.iter().filter(|field| **field != FieldId::InPort) {
            key.set_field(*field, sent.field(*field));
        }
        Self { in_port: Some(sent.in_port()), hidden: hidden_state(&key), ..self.clone() }
    }
}

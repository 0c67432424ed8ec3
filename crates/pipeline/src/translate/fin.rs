//! `fin_timeout`: shorter timeouts once a TCP connection ends.

use shunt_flow::FieldId;

use super::context::Translation;
use crate::traversals::traversal::{Refresh, TraversalError};

/// The bits of `tcp_flags` that end a connection (RFC 9293, 3.1): FIN and RST.
const ENDING: u128 = 0b101;

impl Translation<'_> {
    /// `fin_timeout`: a FIN or RST lowers the timeouts of the rule that the action stands in.
    pub(super) fn fin_timeout(&mut self, idle: u16, hard: u16) -> Result<(), TraversalError> {
        let Some(rule) = self.rule else { return Ok(()) };
        if !self.has_field(FieldId::TcpFlags) {
            return Ok(());
        }
        self.recorder.consult(FieldId::TcpFlags, ENDING);
        if self.key.field(FieldId::TcpFlags) & ENDING == 0 {
            return Ok(());
        }
        self.refresh(Refresh::FinTimeout { rule: rule.clone(), idle, hard })
    }
}

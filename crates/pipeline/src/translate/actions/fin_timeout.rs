//! `fin_timeout`: lowers the timeouts of a rule when a TCP connection ends.

use std::sync::Arc;

use shunt_flow::FieldId;

use crate::{
    tables::rule::Rule,
    translate::{learn_requests::LearnRequests, working_packet::WorkingPacket},
    traversals::traversal::{Refresh, TraversalError},
};

/// The bits of `tcp_flags` that end a connection (RFC 9293, 3.1): FIN and RST.
const ENDING: u128 = 0b101;

/// `fin_timeout`: a FIN or RST lowers the timeouts of the action's rule.
pub(in crate::translate) fn fin_timeout(
    packet: &mut WorkingPacket,
    requests: &mut LearnRequests,
    rule: Option<&Arc<Rule>>,
    idle: u16,
    hard: u16,
) -> Result<(), TraversalError> {
    let Some(rule) = rule else { return Ok(()) };
    if !packet.has_field(FieldId::TcpFlags) {
        return Ok(());
    }
    packet.recorder.consult(FieldId::TcpFlags, ENDING);
    if packet.key().field(FieldId::TcpFlags) & ENDING == 0 {
        return Ok(());
    }
    requests.refresh(Refresh::FinTimeout { rule: rule.clone(), idle, hard })
}

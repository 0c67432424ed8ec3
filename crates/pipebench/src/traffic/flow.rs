//! One flow of a workload: its headers and its role, in little memory.

use shunt_flow::{
    FlowKey, PortNo,
    layout::{FLOW_WORDS, HEADER_START},
};

/// Number of words of a flow key that a packet fills, including the ingress port.
const HEADERS: usize = FLOW_WORDS - HEADER_START;

/// A flow: packets with equal headers and ingress port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    headers: [u64; HEADERS],
    /// The class from which the flow was sampled: a traversal of a pipeline.
    pub class: u16,
    /// The role of the flow in a coflow.
    pub role: CoflowRole,
}

/// The role of a flow in a coflow.
///
/// Source: E. Ståhl et al., *On the Benefits of Predictable Traffic in Virtual Switches*, ANRW 2025,
/// section 4.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum CoflowRole {
    /// The flow does not belong to a coflow.
    #[default]
    Alone,
    /// The base flow of its coflow, which is not predictable.
    Base {
        /// Number of the coflow that the flow begins.
        coflow: u32,
    },
    /// An associated flow, which follows the base flow of its coflow.
    Associated {
        /// Number of the coflow that the flow belongs to.
        coflow: u32,
        /// True if a predicting switch knows the flow before its first packet.
        predicted: bool,
    },
}

impl Flow {
    /// Creates a flow with the headers and the ingress port of a flow key.
    ///
    /// Other parts of the key are ignored.
    #[must_use]
    pub fn new(key: &FlowKey, class: u16) -> Self {
        let headers = key.words().last_chunk().copied().unwrap_or([0; HEADERS]);
        Self { headers, class, role: CoflowRole::Alone }
    }

    /// Returns the flow key of the packets.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        if let Some(headers) = key.words_mut().last_chunk_mut() {
            *headers = self.headers;
        }
        key
    }

    /// Returns the ingress port of the packets.
    #[must_use]
    pub fn in_port(&self) -> PortNo {
        self.key().in_port()
    }

    /// Returns headers and ingress port, which distinguish flows.
    pub(crate) const fn headers(&self) -> &[u64; HEADERS] {
        &self.headers
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FieldId;

    use super::*;

    #[test]
    fn a_flow_key_keeps_only_headers_and_port() {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo::new(7));
        key.set_field(FieldId::EthType, 0x0800);
        key.set_field(FieldId::TcpDst, 80);
        let flow = Flow::new(&key, 2);
        assert_eq!((flow.key(), flow.in_port()), (key.clone(), PortNo::new(7)));
        key.set_field(FieldId::Metadata, 5);
        assert_eq!(Flow::new(&key, 2), flow);
    }
}

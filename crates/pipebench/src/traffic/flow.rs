//! One flow of a workload: its headers and where it belongs, small enough to hold a million of them.

use shunt_flow::{
    FlowKey, PortNo,
    layout::{FLOW_WORDS, HEADER_START},
};

/// Words of a key that a packet fills, the ingress port among them.
const HEADERS: usize = FLOW_WORDS - HEADER_START;

/// Packets with the same headers, by the same port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    headers: [u64; HEADERS],
    /// Which of the classes of its source it was drawn from: a traversal of a pipeline.
    pub class: u16,
    /// Its part in a coflow.
    pub role: Role,
}

/// What a flow is to a coflow (E. Ståhl et al., *On the Benefits of Predictable Traffic in Virtual
/// Switches*, ANRW 2025, section 4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Role {
    /// It belongs to none.
    #[default]
    Alone,
    /// It is the one that the others of its coflow follow: nobody can know of it beforehand.
    Base {
        /// Number of the coflow.
        coflow: u32,
    },
    /// It follows the base flow of its coflow.
    Associated {
        /// Number of the coflow.
        coflow: u32,
        /// Whether a switch that predicts is told of it before its first packet.
        predicted: bool,
    },
}

impl Flow {
    /// The flow with the headers and the ingress port of a key; whatever else the key holds is left
    /// out.
    #[must_use]
    pub fn new(key: &FlowKey, class: u16) -> Self {
        let headers = key.words().last_chunk().copied().unwrap_or([0; HEADERS]);
        Self { headers, class, role: Role::Alone }
    }

    /// The key of its packets.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        if let Some(headers) = key.words_mut().last_chunk_mut() {
            *headers = self.headers;
        }
        key
    }

    /// The port that its packets come in by.
    #[must_use]
    pub fn in_port(&self) -> PortNo {
        self.key().in_port()
    }

    /// The headers and the ingress port: what tells flows apart.
    pub(crate) const fn headers(&self) -> &[u64; HEADERS] {
        &self.headers
    }
}

#[cfg(test)]
mod tests {
    use shunt_flow::FieldId;

    use super::*;

    #[test]
    fn a_flow_keeps_headers_and_port_and_nothing_else() {
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

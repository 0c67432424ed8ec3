//! IPFIX messages with templates and records, and their sequence numbers.

use std::mem;

use super::{
    flow::IpfixFlow,
    template::{
        ENTERPRISE_BIT, Element, SAMPLING_ELEMENTS, SAMPLING_SCOPE, SAMPLING_TEMPLATE,
        TemplateShape, VARIABLE_LENGTH, VIRTUAL_ID, encode,
    },
};
use crate::{DATAGRAM_MAX, ExportDatagram};

/// The version of the IPFIX format.
const VERSION: u16 = 10;

/// Lengths of the header of a message, and of the header of a set, in bytes.
const HEADER_BYTES: usize = 16;
/// Length of the header of a set.
const SET_HEADER_BYTES: usize = 4;

/// Ids of the sets with templates, and with options templates (RFC 7011, 3.3.2).
const TEMPLATE_SET: u16 = 2;
/// The id of a set of options templates.
const OPTIONS_TEMPLATE_SET: u16 = 3;

/// The value for random sampling of packets (`samplingAlgorithm`).
const RANDOM_SAMPLING: u8 = 2;

/// Encodes the flows of an observation domain into messages.
///
/// Memory is bounded by the flows that are added between two calls of [`Self::take_messages`].
#[derive(Clone, Debug)]
pub struct IpfixExporter {
    /// Number of the observation domain (`observationDomainId`).
    domain: u32,
    /// One packet in N is sampled; `None`: the rates differ between flows.
    sampling: Option<u32>,
    /// Text in each record that names the observation point; empty: none.
    virtual_id: Vec<u8>,
    /// Number of data records in all earlier messages; it wraps around.
    sequence: u32,
    /// The encoded sets of the current message.
    sets: Vec<u8>,
    /// The last set: its id, and the position of its length field.
    last_set: Option<(u16, usize)>,
    /// Number of data records in the current message.
    records: u32,
    /// Number of flows among the data records of the current message.
    flows: u32,
    /// Complete datagrams that were not taken yet.
    full: Vec<ExportDatagram>,
}

impl IpfixExporter {
    /// Maximum number of bytes of [`Self::with_virtual_id`].
    pub const VIRTUAL_ID_MAX: usize = 254;

    /// Creates an exporter; its sequence number starts with 0.
    #[must_use]
    pub const fn new(domain: u32, sampling: Option<u32>) -> Self {
        Self {
            domain,
            sampling,
            virtual_id: Vec::new(),
            sequence: 0,
            sets: Vec::new(),
            last_set: None,
            records: 0,
            flows: 0,
            full: Vec::new(),
        }
    }

    /// Adds a text to each record: `virtualObsID` of VMware.
    ///
    /// Open vSwitch calls the text `virtual_obs_id`. Bytes after the first [`Self::VIRTUAL_ID_MAX`]
    /// are left out.
    #[must_use]
    pub fn with_virtual_id(mut self, id: &str) -> Self {
        self.virtual_id = id.bytes().take(Self::VIRTUAL_ID_MAX).collect();
        self
    }

    /// Adds all templates, and the options record with the sampling rate.
    ///
    /// A collector needs the templates before the first flow, and again at intervals. `time` is in
    /// seconds since 1970, as in all methods below.
    pub fn add_templates(&mut self, time: u32) {
        for shape in TemplateShape::all() {
            let elements = shape.elements();
            let has_virtual_id = !self.virtual_id.is_empty();
            let mut template = Vec::new();
            push_u16(&mut template, shape.template());
            push_u16(&mut template, length(elements.len() + usize::from(has_virtual_id)));
            push_elements(&mut template, &elements);
            if has_virtual_id {
                let (enterprise, number) = VIRTUAL_ID;
                push_u16(&mut template, ENTERPRISE_BIT | number);
                push_u16(&mut template, VARIABLE_LENGTH);
                template.extend_from_slice(&enterprise.to_be_bytes());
            }
            self.add(TEMPLATE_SET, &template, time);
        }
        if let Some(sampling) = self.sampling {
            self.add_sampling(sampling, time);
        }
    }

    /// Adds the options record with the sampling rate, and its template.
    fn add_sampling(&mut self, sampling: u32, time: u32) {
        let mut template = Vec::new();
        push_u16(&mut template, SAMPLING_TEMPLATE);
        // The scope counts as one of the fields.
        push_u16(&mut template, length(SAMPLING_ELEMENTS.len() + 1));
        push_u16(&mut template, 1);
        push_elements(&mut template, &[SAMPLING_SCOPE]);
        push_elements(&mut template, &SAMPLING_ELEMENTS);
        self.add(OPTIONS_TEMPLATE_SET, &template, time);
        let mut record = self.domain.to_be_bytes().to_vec();
        record.extend_from_slice(&sampling.to_be_bytes());
        record.push(RANDOM_SAMPLING);
        self.add(SAMPLING_TEMPLATE, &record, time);
        self.records += 1;
    }

    /// Adds a flow of this observation domain.
    pub fn add_flow(&mut self, flow: &IpfixFlow, time: u32) {
        let mut record = Vec::new();
        encode(&mut record, flow);
        // A short value of variable length starts with one byte for its length (RFC 7011, 7).
        if let Some(length) = u8::try_from(self.virtual_id.len()).ok().filter(|own| *own > 0) {
            record.push(length);
            record.extend_from_slice(&self.virtual_id);
        }
        self.add(TemplateShape::of(&flow.key).template(), &record, time);
        self.records += 1;
        self.flows += 1;
    }

    /// Returns messages with all templates and flows that were added.
    pub fn take_messages(&mut self, time: u32) -> Vec<ExportDatagram> {
        self.finish(time);
        mem::take(&mut self.full)
    }

    /// Adds a template or record to a set.
    ///
    /// If the bytes do not fit the current message, a new message is started.
    fn add(&mut self, set: u16, bytes: &[u8], time: u32) {
        let needed = HEADER_BYTES + self.sets.len() + SET_HEADER_BYTES + bytes.len();
        if needed > DATAGRAM_MAX {
            self.finish(time);
        }
        let start = match self.last_set {
            Some((last, start)) if last == set => start,
            _ => {
                push_u16(&mut self.sets, set);
                push_u16(&mut self.sets, 0);
                self.sets.len() - 2
            }
        };
        self.last_set = Some((set, start));
        self.sets.extend_from_slice(bytes);
        let own = length(self.sets.len() + 2 - start).to_be_bytes();
        self.sets[start..start + 2].copy_from_slice(&own);
    }

    /// Ends the current message, if it has sets.
    fn finish(&mut self, time: u32) {
        if self.sets.is_empty() {
            return;
        }
        let mut message = Vec::with_capacity(HEADER_BYTES + self.sets.len());
        push_u16(&mut message, VERSION);
        push_u16(&mut message, length(HEADER_BYTES + self.sets.len()));
        for field in [time, self.sequence, self.domain] {
            message.extend_from_slice(&field.to_be_bytes());
        }
        message.append(&mut self.sets);
        self.last_set = None;
        self.sequence = self.sequence.wrapping_add(mem::take(&mut self.records));
        self.full.push(ExportDatagram { bytes: message, records: mem::take(&mut self.flows) });
    }
}

/// Appends the information elements of a template.
fn push_elements(buffer: &mut Vec<u8>, elements: &[Element]) {
    for (number, length) in elements {
        push_u16(buffer, *number);
        push_u16(buffer, *length);
    }
}

/// Appends a number in network byte order.
fn push_u16(buffer: &mut Vec<u8>, value: u16) {
    buffer.extend_from_slice(&value.to_be_bytes());
}

/// Returns a length as the 16-bit number in a message.
///
/// No message is longer than [`DATAGRAM_MAX`].
fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests;

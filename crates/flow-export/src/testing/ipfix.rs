//! A slow decoder of IPFIX messages.

use std::collections::BTreeMap;

use super::reader::{half, take, word};

/// A decoder, which stores the templates of earlier messages.
#[derive(Clone, Debug, Default)]
pub struct IpfixDecoder {
    /// The elements of each template, by its number.
    templates: BTreeMap<u16, Vec<TemplateElement>>,
}

/// A field of the records of an IPFIX template: what it is and its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TemplateElement {
    /// The number of the information element.
    number: u16,
    /// Length of values; 65535: each value starts with its length.
    length: u16,
    /// Number of the enterprise; 0: the element is defined by IANA.
    enterprise: u32,
}

/// A decoded IPFIX message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedIpfix {
    /// Time of the message in seconds since 1970.
    pub time: u32,
    /// Number of data records in earlier messages.
    pub sequence: u32,
    /// Number of the observation domain.
    pub domain: u32,
    /// Number of templates in the message.
    pub templates: usize,
    /// The data records of the message, in order.
    pub records: Vec<DecodedIpfixRecord>,
}

/// A decoded data record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedIpfixRecord {
    /// Id of the template of the record.
    pub template: u16,
    /// The values by element number; they have at most 128 bits.
    pub values: BTreeMap<u16, u128>,
    /// The values of enterprise-specific elements, by enterprise and element number.
    pub of_enterprises: BTreeMap<(u32, u16), Vec<u8>>,
}

impl DecodedIpfixRecord {
    /// Returns the value of an element; `None` if the record does not have it.
    #[must_use]
    pub fn value(&self, element: u16) -> Option<u128> {
        self.values.get(&element).copied()
    }
}

impl IpfixDecoder {
    /// Decodes a message.
    ///
    /// `None` if the bytes are not exactly one message, or a record has no template.
    pub fn decode(&mut self, message: &[u8]) -> Option<DecodedIpfix> {
        let rest = &mut &*message;
        if half(rest)? != 10 || usize::from(half(rest)?) != message.len() {
            return None;
        }
        let (time, sequence, domain) = (word(rest)?, word(rest)?, word(rest)?);
        let (mut templates, mut records) = (0, Vec::new());
        while !rest.is_empty() {
            let (set, length) = (half(rest)?, half(rest)?);
            let mut set_rest = take(rest, usize::from(length).checked_sub(4)?)?;
            // A set has at least one template or record (RFC 7011, 3.3).
            if set_rest.is_empty() {
                return None;
            }
            while !set_rest.is_empty() {
                match set {
                    2 | 3 => {
                        self.template(&mut set_rest, set == 3)?;
                        templates += 1;
                    }
                    _ => records.push(self.record(set, &mut set_rest)?),
                }
            }
        }
        Some(DecodedIpfix { time, sequence, domain, templates, records })
    }

    /// Decodes a template set of a message.
    fn template(&mut self, rest: &mut &[u8], has_scope: bool) -> Option<()> {
        let (template, count) = (half(rest)?, half(rest)?);
        if has_scope && half(rest)? == 0 || template < 256 || count == 0 {
            return None;
        }
        let mut elements = Vec::new();
        for _ in 0..count {
            let (number, length) = (half(rest)?, half(rest)?);
            let enterprise = if number >= 0x8000 { word(rest)? } else { 0 };
            // Only enterprise-specific elements have a variable length.
            let is_possible = if enterprise == 0 { length <= 16 } else { length == 65_535 };
            if length == 0 || !is_possible {
                return None;
            }
            elements.push(TemplateElement { number: number & 0x7fff, length, enterprise });
        }
        let known = self.templates.insert(template, elements.clone());
        known.is_none_or(|known| known == elements).then_some(())
    }

    /// Decodes a record of a template.
    fn record(&self, template: u16, rest: &mut &[u8]) -> Option<DecodedIpfixRecord> {
        let (mut values, mut of_enterprises) = (BTreeMap::new(), BTreeMap::new());
        for element in self.templates.get(&template)? {
            let TemplateElement { number, length, enterprise } = *element;
            if enterprise == 0 {
                let bytes = take(rest, usize::from(length))?;
                let value = bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
                values.insert(number, value);
            } else {
                let length = usize::from(*take(rest, 1)?.first()?);
                let bytes = take(rest, length).filter(|_| length < 255)?;
                of_enterprises.insert((enterprise, number), bytes.to_vec());
            }
        }
        Some(DecodedIpfixRecord { template, values, of_enterprises })
    }
}

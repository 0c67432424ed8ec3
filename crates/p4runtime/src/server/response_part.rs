//! One message of a read response, limited in entities and bytes.
//!
//! Clients accept 4 MiB by default. An entity that does not fit into a message begins the next
//! message, so it is encoded only once.

use prost::encoding::encoded_len_varint;

use crate::wire::p4::v1::ReadResponse;

/// Maximum length in bytes of a message with more than one entity.
pub(super) const PART_BYTES_MAX: usize = 1 << 20;

/// Maximum number of entities per message.
///
/// The number also limits the entries that are examined under one lock.
pub(super) const ENTITIES_MAX: usize = 2048;

/// An `Entity` of P4Runtime in its protobuf encoding.
pub(super) type EncodedEntity = Vec<u8>;

/// The content of one message.
#[derive(Debug, Default)]
pub(super) struct ResponsePart {
    entities: Vec<EncodedEntity>,
    bytes: usize,
    /// The first entity of the next message.
    over: Option<EncodedEntity>,
}

/// Returns the length of a nested message of `bytes` bytes, including its header.
pub(super) const fn nested_len(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

impl ResponsePart {
    /// Adds an entity. The caller must send a full part first.
    pub(super) fn push(&mut self, entity: EncodedEntity) {
        debug_assert!(!self.is_full(), "a full part is sent first");
        let bytes = self.bytes.saturating_add(nested_len(entity.len()));
        if bytes > PART_BYTES_MAX && !self.entities.is_empty() {
            self.over = Some(entity);
        } else {
            self.bytes = bytes;
            self.entities.push(entity);
        }
    }

    /// Returns whether the part must be sent before another entity is added.
    pub(super) const fn is_full(&self) -> bool {
        self.over.is_some() || self.entities.len() >= ENTITIES_MAX
    }

    /// Returns the message, and begins the next message.
    pub(super) fn take(&mut self) -> ReadResponse {
        let Self { entities, over, .. } = std::mem::take(self);
        over.into_iter().for_each(|entity| self.push(entity));
        ReadResponse { entities }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn response_parts_are_bounded_and_complete() {
        let (mut part, mut lengths) = (ResponsePart::default(), Vec::new());
        let sizes = [3, PART_BYTES_MAX - 16, 40, 2 * PART_BYTES_MAX, 7];
        let mut close = |part: &mut ResponsePart| {
            let message = part.take();
            let is_alone = message.entities.len() == 1;
            assert!(!message.entities.is_empty());
            assert!(is_alone || message.encoded_len() <= PART_BYTES_MAX);
            lengths.extend(message.entities.iter().map(Vec::len));
        };
        for size in sizes {
            part.push(vec![0; size]);
            while part.is_full() {
                close(&mut part);
            }
        }
        close(&mut part);
        assert_eq!(lengths, sizes);
    }
}

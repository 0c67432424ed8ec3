//! One message of an answer: bounded by entities and by bytes.
//!
//! Clients take 4 MiB by default. An entity that finds no room in a message begins the next one, so that
//! none is looked for twice.

use prost::encoding::encoded_len_varint;

use crate::wire::p4::v1::ReadResponse;

/// Bytes of a message that has more than one part.
pub(super) const PART_BYTES_MAX: usize = 1 << 20;

/// Entities of one message, and entries that are looked at under one lock.
pub(super) const ENTITIES_MAX: usize = 2048;

/// An entity, as its bytes.
pub(super) type EncodedEntity = Vec<u8>;

/// What goes into one message.
#[derive(Debug, Default)]
pub(super) struct Part {
    entities: Vec<EncodedEntity>,
    bytes: usize,
    /// What goes into the next one.
    over: Option<EncodedEntity>,
}

/// Bytes of a part of a message that are so many themselves, with what says so.
pub(super) const fn nested_len(bytes: usize) -> usize {
    1 + encoded_len_varint(bytes as u64) + bytes
}

impl Part {
    /// Adds an entity; there was room, which is asked after each.
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

    /// Whether it must be sent before more is added.
    pub(super) const fn is_full(&self) -> bool {
        self.over.is_some() || self.entities.len() >= ENTITIES_MAX
    }

    /// The message, and a beginning of the next.
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
    fn a_message_is_closed_before_it_is_too_long_and_nothing_is_lost() {
        let (mut part, mut lengths) = (Part::default(), Vec::new());
        let sizes = [3, PART_BYTES_MAX - 16, 40, 2 * PART_BYTES_MAX, 7];
        let mut close = |part: &mut Part| {
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

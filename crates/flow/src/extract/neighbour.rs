//! Neighbour discovery: the target and the link-layer addresses (RFC 4861, 4.3, 4.4, 4.6).

use super::frame::Parser;
use crate::{bytes::be64, layout::word};

/// Type of the option that holds the sender's link-layer address.
pub(crate) const SOURCE_OPTION: u8 = 1;
/// Type of the option that holds the target's link-layer address.
pub(crate) const TARGET_OPTION: u8 = 2;

/// The options of a neighbour discovery message.
/// Each option has its offset and its first eight bytes.
///
/// The iteration ends at an option that is empty or longer than the rest of the message, because
/// the next option cannot be found.
pub(crate) struct Options<'a> {
    /// The bytes of the options.
    bytes: &'a [u8],
    /// Offset of the next option in bytes.
    offset: usize,
}

impl<'a> Options<'a> {
    /// Returns the options in `bytes`, which start after the target address.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = (usize, &'a [u8; 8]);

    fn next(&mut self) -> Option<Self::Item> {
        let option: &[u8; 8] = self.bytes.first_chunk()?;
        let length = usize::from(option[1]) * 8;
        let rest = self.bytes.get(length..).filter(|_| length > 0)?;
        let offset = self.offset;
        (self.bytes, self.offset) = (rest, offset.checked_add(length)?);
        Some((offset, option))
    }
}

impl Parser<'_> {
    /// Parses the message after the first eight bytes, which all ICMPv6 messages have.
    ///
    /// Returns the type of the first option with an address, or zero. Malformed messages have a
    /// type too.
    pub(super) fn neighbour(&mut self) -> u8 {
        let mut first = 0;
        // Type and code are present even if the message after them is cut short.
        let _ = self.addresses(&mut first);
        first
    }

    /// Parses the link-layer addresses in the options.
    fn addresses(&mut self, first: &mut u8) -> Option<()> {
        let target: &[u8; 16] = self.take()?;
        let mut addresses = [0_u64; 2];
        for (_, option) in Options::new(self.rest) {
            let [source, destination] = &mut addresses;
            let address = match *option {
                [SOURCE_OPTION, 1, ..] => source,
                [TARGET_OPTION, 1, ..] => destination,
                _ => continue,
            };
            if *first == 0 {
                *first = option[0];
            }
            if *address != 0 {
                // Two senders, or two targets: the message is malformed.
                return None;
            }
            *address = be64::<0, _>(option) << 16;
        }
        let [source, destination] = addresses;
        self.set::<{ word::ND_TARGET }>(be64::<0, _>(target));
        self.set::<{ word::ND_TARGET + 1 }>(be64::<8, _>(target));
        self.add::<{ word::ARP_SHA }>(source);
        self.set::<{ word::ARP_THA }>(destination);
        Some(())
    }
}

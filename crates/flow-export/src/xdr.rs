//! External data representation (XDR, RFC 4506), which sFlow uses.

/// A buffer of encoded XDR values.
#[derive(Clone, Debug, Default)]
pub(crate) struct XdrBuffer(Vec<u8>);

impl XdrBuffer {
    /// Appends an unsigned integer (RFC 4506, 4.2).
    pub(crate) fn push_u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends an unsigned hyper integer (RFC 4506, 4.5).
    pub(crate) fn push_u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    /// Appends fixed-length opaque data, padded with zeros (RFC 4506, 4.9).
    pub(crate) fn push_fixed(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Appends variable-length opaque data, preceded by its length (RFC 4506, 4.10).
    pub(crate) fn push_opaque(&mut self, bytes: &[u8]) {
        self.push_u32(length(bytes));
        self.push_fixed(bytes);
    }

    /// Appends variable-length opaque data; the function `fill` encodes its content.
    pub(crate) fn push_nested(&mut self, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.push_opaque(inner.bytes());
    }

    /// Returns the encoded bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Removes all values from the buffer.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Returns the number of bytes as a 32-bit XDR integer.
fn length(bytes: &[u8]) -> u32 {
    debug_assert!(u32::try_from(bytes.len()).is_ok(), "a datagram has fewer than 2^32 bytes");
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exported_values_fill_whole_words() {
        let mut buffer = XdrBuffer::default();
        buffer.push_nested(|inner| {
            inner.push_u32(1);
            inner.push_u64(2);
        });
        buffer.push_opaque(b"abcde");
        let expected = [
            [0, 0, 0, 12],
            [0, 0, 0, 1],
            [0, 0, 0, 0],
            [0, 0, 0, 2],
            [0, 0, 0, 5],
            *b"abcd",
            [b'e', 0, 0, 0],
        ];
        assert_eq!(buffer.bytes(), expected.concat());
    }
}

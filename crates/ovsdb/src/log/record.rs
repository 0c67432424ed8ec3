//! Records of a log: a line with length and checksum, then JSON.

use serde_json::Value;
use sha1::{Digest, Sha1};
use thiserror::Error;

/// Returns a record with a value, as `ovsdb-tool` reads it.
#[must_use]
pub fn encode_record(value: &Value) -> Vec<u8> {
    let body = format!("{value}\n");
    let header = format!("{MAGIC}{} {}\n", body.len(), checksum(body.as_bytes()));
    [header.as_bytes(), body.as_bytes()].concat()
}

/// Reads the records of a log.
#[derive(Clone, Copy, Debug)]
pub struct RecordReader<'a> {
    bytes: &'a [u8],
    /// Number of bytes that were read.
    offset: usize,
}

/// A record that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{reason}")]
pub struct RecordError {
    /// The reason why the record cannot be read.
    pub reason: &'static str,
    /// True if the file ends with this record: the write may have been interrupted.
    pub is_last: bool,
}

impl<'a> RecordReader<'a> {
    /// Creates a reader of a whole file.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// Returns the position of the next record.
    #[must_use]
    pub const fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the next record, or `None` at the end of the file.
    ///
    /// # Errors
    ///
    /// If the record is incomplete or damaged. The reader then stays at the start of that record.
    pub fn next_record(&mut self) -> Result<Option<Value>, RecordError> {
        let rest = self.bytes.get(self.offset..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let failed = |reason| RecordError { reason, is_last: !has_record(rest.get(1..)) };
        let line_end = rest.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n');
        let line_end = line_end.ok_or_else(|| failed("the first line of the record has no end"))?;
        let (line, body) = rest.split_at_checked(line_end + 1).unwrap_or((rest, &[]));
        let (length, sum) =
            header(line).ok_or_else(|| failed("the first line of the record is malformed"))?;
        let body = body
            .get(..length)
            .ok_or_else(|| failed("the record is shorter than the length in its first line"))?;
        if checksum(body) != sum {
            return Err(failed("the checksum of the record is wrong"));
        }
        let value = serde_json::from_slice(body).map_err(|_| failed("the record is not JSON"))?;
        self.offset += line.len() + length;
        Ok(Some(value))
    }
}

/// The text at the start of each record.
const MAGIC: &str = "OVSDB JSON ";

/// Maximum length of the first line of a record, in bytes.
const HEADER_BYTES_MAX: usize = 128;

/// Parses the first line of a record: the length and the checksum.
fn header(line: &[u8]) -> Option<(usize, &str)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (length, sum) = line.strip_prefix(MAGIC)?.split_once(' ')?;
    let is_sum = sum.len() == 40 && sum.bytes().all(|byte| byte.is_ascii_hexdigit());
    Some((length.parse().ok()?, sum)).filter(|_| is_sum)
}

/// Returns whether `bytes` contain the first line of a record.
fn has_record(bytes: Option<&[u8]>) -> bool {
    let mut rest = bytes.unwrap_or_default();
    while let Some(start) = find(rest, MAGIC.as_bytes()) {
        rest = rest.get(start..).unwrap_or_default();
        let line_end = rest.iter().take(HEADER_BYTES_MAX).position(|byte| *byte == b'\n');
        let line = line_end.and_then(|end| rest.get(..=end)).unwrap_or_default();
        if header(line).is_some() {
            return true;
        }
        rest = rest.get(1..).unwrap_or_default();
    }
    false
}

/// Returns the first position of `pattern`.
fn find(bytes: &[u8], pattern: &[u8]) -> Option<usize> {
    bytes.windows(pattern.len()).position(|window| window == pattern)
}

/// Returns the SHA-1 checksum in hexadecimal form.
fn checksum(bytes: &[u8]) -> String {
    Sha1::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// `ovsdb-tool create` of Open vSwitch 3.1 writes the expected bytes.
    #[test]
    fn a_record_has_length_and_checksum() {
        let record = encode_record(&json!({}));
        let text = String::from_utf8(record.clone()).unwrap();
        assert_eq!(text, "OVSDB JSON 3 5f36b2ea290645ee34d943220a14b54ee5ea5be5\n{}\n");
        assert_eq!(RecordReader::new(&record).next_record(), Ok(Some(json!({}))));
    }

    #[test]
    fn only_the_last_record_may_be_torn() {
        let (one, two) = (encode_record(&json!({"a": 1})), encode_record(&json!({"b": 2})));
        let whole = [one.as_slice(), &two].concat();
        for cut in one.len() + 1..whole.len() {
            let mut reader = RecordReader::new(&whole[..cut]);
            assert!(reader.next_record().unwrap().is_some());
            assert!(reader.next_record().unwrap_err().is_last, "cut at {cut}");
        }
        for damaged in 0..one.len() {
            let mut bytes = whole.clone();
            bytes[damaged] ^= 0x10;
            let error = RecordReader::new(&bytes).next_record().unwrap_err();
            assert!(!error.is_last, "damaged at {damaged}");
        }
    }
}

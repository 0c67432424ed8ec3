//! A scanner of words in a line of text, with their positions.

use crate::TextError;

/// A line that is scanned from left to right.
#[derive(Clone, Debug)]
pub(crate) struct Scan<'a> {
    line: &'a str,
    /// Number of bytes of the line that were scanned.
    at: usize,
    /// Offset of the line in the text.
    offset: usize,
    number: usize,
}

impl<'a> Scan<'a> {
    /// Returns scanners for the nonblank lines of a text.
    pub(crate) fn lines(text: &'a str) -> impl Iterator<Item = Self> {
        let mut offset = 0;
        let numbered = (1..).zip(text.split_inclusive('\n'));
        let lines = numbered.map(move |(number, line)| {
            let scan = Self { line: line.trim_end(), at: 0, offset, number };
            offset = offset.saturating_add(line.len());
            scan
        });
        lines.filter(|scan| !scan.line.trim().is_empty())
    }

    /// Returns the rest of the line, without leading spaces.
    pub(crate) fn rest(&self) -> &'a str {
        self.line.get(self.at..).unwrap_or("").trim_start()
    }

    /// Skips spaces and the punctuation `mark`; returns whether the mark was there.
    pub(crate) fn skip(&mut self, mark: char) -> bool {
        self.skip_spaces();
        let there = self.rest().starts_with(mark);
        if there {
            self.at = self.at.saturating_add(mark.len_utf8());
        }
        there
    }

    /// Skips the required punctuation `mark`.
    pub(crate) fn mark(&mut self, mark: char, expected: &'static str) -> Result<(), TextError> {
        if self.skip(mark) { Ok(()) } else { Err(self.error(expected)) }
    }

    /// Returns the next word, up to a space or any of `:,/`.
    pub(crate) fn word(&mut self) -> &'a str {
        self.skip_spaces();
        let rest = self.rest();
        let end = rest.find(|c: char| c.is_whitespace() || ":,/".contains(c));
        let word = rest.get(..end.unwrap_or(rest.len())).unwrap_or("");
        self.at = self.at.saturating_add(word.len());
        word
    }

    /// Parses the next word of the line.
    pub(crate) fn value<T>(
        &mut self,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, TextError> {
        self.skip_spaces();
        let before = self.clone();
        read(self.word()).ok_or_else(|| before.error(expected))
    }

    /// Requires the end of the line.
    pub(crate) fn end(&self) -> Result<(), TextError> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    /// Returns an error at this position.
    pub(crate) fn error(&self, expected: &'static str) -> TextError {
        let mut here = self.clone();
        here.skip_spaces();
        let start = here.at;
        let mut found = here.word();
        if found.is_empty() {
            // There is a punctuation mark in place of a word, or the end of the line.
            found = here.rest().get(..1).unwrap_or("");
        }
        let before = self.line.get(..start).unwrap_or("");
        TextError {
            line: self.number,
            column: before.chars().count().saturating_add(1),
            offset: self.offset.saturating_add(start),
            length: found.len(),
            expected,
            found: found.chars().take(FOUND_MAX).collect(),
        }
    }

    /// Moves to the next character that is not a space, or to the end of the line.
    fn skip_spaces(&mut self) {
        self.at = self.line.len().saturating_sub(self.rest().len());
    }
}

/// Parses a decimal number.
pub(crate) fn decimal<T: std::str::FromStr>(word: &str) -> Option<T> {
    let digits = word.bytes().all(|byte| byte.is_ascii_digit());
    if digits { word.parse().ok() } else { None }
}

/// Parses a hexadecimal number with the prefix `0x`, or a decimal number.
pub(crate) fn hexadecimal(word: &str) -> Option<u16> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(digits) => u16::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+')),
        None => decimal(word),
    }
}

/// Maximum number of characters of the user's text in a message.
const FOUND_MAX: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_lines_and_characters() {
        let text = "one\n\n  é , two\n";
        let mut scan = Scan::lines(text).nth(1).unwrap();
        assert_eq!(scan.word(), "é");
        assert!(scan.skip(','));
        let error = scan.value("a number", decimal::<u8>).unwrap_err();
        assert_eq!((error.line, error.column, error.found.as_str()), (3, 7, "two"));
        assert_eq!(&text[error.offset..error.offset + error.length], "two");
    }

    #[test]
    fn numbers_with_a_sign_are_refused() {
        assert_eq!(
            (decimal::<u8>("+1"), hexadecimal("0x+1"), hexadecimal("0xfF")),
            (None, None, Some(255))
        );
    }
}

//! One filter of a rule set, and files of filters.
//!
//! A line is `@source/length destination/length low : high low : high protocol/mask flags/mask`;
//! the flags are optional. The first line has the highest priority.

use std::{fmt, net::Ipv4Addr};

use super::{
    ranges::PortRange,
    scan::{Scan, decimal, hexadecimal},
};
use crate::TextError;

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressPrefix {
    address: u32,
    length: u8,
}

impl AddressPrefix {
    /// Returns the prefix of `length` bits; ignores further bits of `address`.
    ///
    /// Lengths above 32 count as 32.
    #[must_use]
    pub fn new(address: u32, length: u8) -> Self {
        let length = length.min(Self::LENGTH_MAX);
        Self { address: address & prefix_mask(length), length }
    }

    /// The longest prefix: a single address.
    pub const LENGTH_MAX: u8 = 32;

    /// Returns the lowest address of the prefix.
    #[must_use]
    pub const fn address(self) -> u32 {
        self.address
    }

    /// Returns the number of prefix bits.
    #[must_use]
    pub const fn length(self) -> u8 {
        self.length
    }

    /// Returns the mask of the prefix bits.
    #[must_use]
    pub fn mask(self) -> u32 {
        prefix_mask(self.length)
    }

    /// Returns the highest address of the prefix.
    #[must_use]
    pub fn last(self) -> u32 {
        self.address | !self.mask()
    }

    /// Returns whether the prefix contains an address.
    #[must_use]
    pub fn contains(self, address: u32) -> bool {
        address & self.mask() == self.address
    }
}

impl fmt::Display for AddressPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from(self.address), self.length)
    }
}

/// Returns the mask of a prefix length.
fn prefix_mask(length: u8) -> u32 {
    u32::MAX.checked_shl(u32::from(AddressPrefix::LENGTH_MAX.saturating_sub(length))).unwrap_or(0)
}

/// The TCP flags that a filter matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpFlags {
    value: u16,
    mask: u16,
}

impl TcpFlags {
    /// Matches packets with any flags.
    pub const ANY: Self = Self { value: 0, mask: 0 };

    /// Matches the flags `value` under `mask`.
    ///
    /// Value bits outside the mask stay, because ClassBench writes such bits.
    #[must_use]
    pub const fn new(value: u16, mask: u16) -> Self {
        Self { value, mask }
    }

    /// Returns the flag values to match.
    #[must_use]
    pub const fn value(self) -> u16 {
        self.value
    }

    /// Returns the mask of the flags to match.
    #[must_use]
    pub const fn mask(self) -> u16 {
        self.mask
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:04x}/0x{:04x}", self.value, self.mask)
    }
}

/// A 5-tuple filter with TCP flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Filter {
    /// Source addresses that the filter matches.
    pub source: AddressPrefix,
    /// Destination addresses that the filter matches.
    pub destination: AddressPrefix,
    /// Source ports that the filter matches.
    pub source_ports: PortRange,
    /// Destination ports that the filter matches.
    pub destination_ports: PortRange,
    /// The IP protocol; `None` for any.
    pub protocol: Option<u8>,
    /// The TCP flags to match.
    pub flags: TcpFlags,
}

impl fmt::Display for Filter {
    /// Formats the filter as a line of a filter file, without line end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, destination, source_ports, destination_ports, protocol, flags } = self;
        let (number, mask) = protocol.map_or((0, 0), |number| (number, 0xff));
        write!(
            f,
            "@{source}\t{destination}\t{source_ports}\t{destination_ports}\t\
             0x{number:02x}/0x{mask:02X}\t{flags}\t"
        )
    }
}

/// Parses a filter file; lines that begin with `#` are comments.
///
/// # Errors
///
/// If a line has a syntax error: the first error, with the expected text.
pub fn read_filters(text: &str) -> Result<Vec<Filter>, TextError> {
    let is_filter = |scan: &Scan<'_>| !scan.rest().trim_start().starts_with('#');
    Scan::lines(text).filter(is_filter).map(read_filter).collect()
}

/// Parses a filter in the format of `ClassBench`.
fn read_filter(mut scan: Scan<'_>) -> Result<Filter, TextError> {
    scan.mark('@', "`@`, with which each filter begins")?;
    let source = read_prefix(&mut scan, "a source address as in `10.0.0.0/8`")?;
    let destination = read_prefix(&mut scan, "a destination address as in `10.0.0.0/8`")?;
    let source_ports = read_range(&mut scan)?;
    let destination_ports = read_range(&mut scan)?;
    let protocol = read_protocol(&mut scan)?;
    let flags = if scan.rest().is_empty() { TcpFlags::ANY } else { read_flags(&mut scan)? };
    scan.end()?;
    Ok(Filter { source, destination, source_ports, destination_ports, protocol, flags })
}

/// Parses an address prefix.
fn read_prefix(scan: &mut Scan<'_>, expected: &'static str) -> Result<AddressPrefix, TextError> {
    let address: Ipv4Addr = scan.value(expected, |word| word.parse().ok())?;
    scan.mark('/', "`/` and a prefix length")?;
    let length = scan.value("a prefix length from 0 to 32", |word| {
        decimal(word).filter(|length| *length <= AddressPrefix::LENGTH_MAX)
    })?;
    Ok(AddressPrefix::new(address.into(), length))
}

/// Parses `low : high`, as in filter and parameter files.
pub(super) fn read_range(scan: &mut Scan<'_>) -> Result<PortRange, TextError> {
    let low = scan.value("the lowest port, from 0 to 65535", decimal)?;
    scan.mark(':', "`:` between the lowest and the highest port")?;
    scan.value("the highest port, from the lowest port to 65535", |word| {
        PortRange::new(low, decimal(word)?)
    })
}

/// Parses a protocol with its mask; `None` matches any protocol.
fn read_protocol(scan: &mut Scan<'_>) -> Result<Option<u8>, TextError> {
    let number = scan.value("a protocol number as in `0x06/0xFF`", byte)?;
    scan.mark('/', "`/` and the mask of the protocol")?;
    let mask = scan.value("`0xFF` for this protocol or `0x00` for any", |word| {
        byte(word).filter(|mask| [0, 0xff].contains(mask))
    })?;
    Ok((mask == 0xff).then_some(number))
}

/// Parses `value/mask`.
pub(super) fn read_flags(scan: &mut Scan<'_>) -> Result<TcpFlags, TextError> {
    let value = scan.value("TCP flags as in `0x1000/0x1000`", hexadecimal)?;
    scan.mark('/', "`/` and the mask of the flags")?;
    let mask = scan.value("the mask of the flags as in `0x1000`", hexadecimal)?;
    Ok(TcpFlags::new(value, mask))
}

/// Parses a byte in hexadecimal form.
fn byte(word: &str) -> Option<u8> {
    hexadecimal(word).and_then(|number| u8::try_from(number).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A filter in the format of `ClassBench`.
    const LINE: &str = "@192.0.2.1/24\t0.0.0.0/0\t0 : 65535\t80 : 80\t0x06/0xFF\t0x1000/0x1000\t";

    fn error_position(text: &str) -> (usize, usize, &'static str, String) {
        let error = read_filters(text).unwrap_err();
        (error.line, error.column, error.expected, error.found)
    }

    #[test]
    fn bits_beyond_the_prefix_are_ignored() {
        let filters = read_filters(LINE).unwrap();
        assert_eq!(filters[0].source, AddressPrefix::new(0xc000_0200, 24));
        assert_eq!(filters[0].to_string(), LINE.replace("2.1/24", "2.0/24"));
    }

    #[test]
    fn tcp_flags_of_a_filter_are_optional() {
        let line = LINE.replace("0x1000/0x1000\t", "");
        assert_eq!(read_filters(&line).unwrap()[0].flags, TcpFlags::ANY);
    }

    #[test]
    fn a_syntax_error_has_position_and_expectation() {
        let second = |bad: &str| format!("{LINE}\n{bad}\n");
        let cases = [
            (LINE.replace('@', ""), 1, "`@`, with which each filter begins", "192.0.2.1"),
            (LINE.replace("/24", "/33"), 12, "a prefix length from 0 to 32", "33"),
            (
                LINE.replace("80 : 80", "80 : 79"),
                40,
                "the highest port, from the lowest port to 65535",
                "79",
            ),
            (
                LINE.replace("80 : 80", "80 - 80"),
                38,
                "`:` between the lowest and the highest port",
                "-",
            ),
            (
                LINE.replace("/0xFF", "/0x0F"),
                48,
                "`0xFF` for this protocol or `0x00` for any",
                "0x0F",
            ),
            (
                LINE.replace("192.", "192.0."),
                2,
                "a source address as in `10.0.0.0/8`",
                "192.0.0.2.1",
            ),
            (format!("{LINE} more"), 68, "the end of the line", "more"),
        ];
        for (line, column, expected, found) in cases {
            assert_eq!(
                error_position(&second(&line)),
                (2, column, expected, found.to_owned()),
                "{line}"
            );
        }
    }
}

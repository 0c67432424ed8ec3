//! Parses parameter files, which have sections that begin with `-name` and end with `#`.

use super::{
    filter::{read_flags, read_range},
    lengths::{Lengths, TOTAL_MAX},
    parameters::{
        BranchLevel, Branching, FlagShares, PAIR_NAMES, PAIRS, Parameters, PortShares,
        ProtocolShare,
    },
    ranges::PortRange,
    scan::{Scan, decimal},
};
use shunt_flow::text::nearest_of;

use crate::{ParameterError, TextError};

/// The kind of a section, which determines the meaning of its rows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Section {
    Scale,
    Protocols,
    Flags,
    /// A section of a newer version of the format, which is ignored.
    Extra,
    SourceRanges,
    SourcePorts,
    DestinationRanges,
    DestinationPorts,
    Lengths(usize),
    SourceNesting,
    SourceLevels,
    DestinationNesting,
    DestinationLevels,
    Correlation,
}

/// The sections other than the pairs of port classes, by name.
const NAMES: [(&str, Section); 13] = [
    ("scale", Section::Scale),
    ("prots", Section::Protocols),
    ("flags", Section::Flags),
    ("extra", Section::Extra),
    ("spar", Section::SourceRanges),
    ("spem", Section::SourcePorts),
    ("dpar", Section::DestinationRanges),
    ("dpem", Section::DestinationPorts),
    ("snest", Section::SourceNesting),
    ("sskew", Section::SourceLevels),
    ("dnest", Section::DestinationNesting),
    ("dskew", Section::DestinationLevels),
    ("pcorr", Section::Correlation),
];

/// The names of the required sections.
const NEEDED: [&str; 6] = ["scale", "prots", "snest", "sskew", "dnest", "dskew"];

/// Parses a file of parameters.
pub(super) fn parse_parameters(text: &str) -> Result<Parameters, ParameterError> {
    let mut parameters = empty_parameters();
    let mut seen = Vec::new();
    let mut section = None;
    for mut scan in Scan::lines(text) {
        if scan.rest().starts_with('#') {
            section = None;
        } else if scan.skip('-') {
            let (name, found) = read_name(&mut scan)?;
            seen.push(name);
            section = Some(found);
        } else if let Some(section) = section {
            read_row(&mut parameters, section, scan)?;
        } else {
            return Err(scan.error("a section, such as `-scale`, or `#`").into());
        }
    }
    if let Some(section) = NEEDED.into_iter().find(|name| !seen.contains(name)) {
        return Err(ParameterError::Missing { section });
    }
    parameters.check()?;
    Ok(parameters)
}

/// Returns branching without any branches.
const fn branches_nowhere() -> Branching {
    Branching { nesting: 1, levels: [BranchLevel { single: 0.0, double: 0.0, skew: 0.0 }; 33] }
}

/// Returns parameters without any shares.
fn empty_parameters() -> Parameters {
    Parameters {
        scale: 1,
        protocols: Vec::new(),
        flags: Vec::new(),
        source_ports: PortShares::default(),
        destination_ports: PortShares::default(),
        lengths: vec![Lengths::empty(); PAIRS],
        source: branches_nowhere(),
        destination: branches_nowhere(),
        correlation: [0.0; 33],
    }
}

/// Parses the name of a section.
fn read_name(scan: &mut Scan<'_>) -> Result<(&'static str, Section), ParameterError> {
    let before = scan.clone();
    let word = scan.word();
    let pairs = || PAIR_NAMES.into_iter().zip((0..).map(Section::Lengths));
    let known = NAMES.into_iter().chain(pairs()).find(|(name, _)| *name == word);
    known.ok_or_else(|| {
        let names = NAMES.into_iter().chain(pairs()).map(|(name, _)| name);
        let place = before.error("the name of a section");
        ParameterError::Section { nearest: nearest_of(word, names), place }
    })
}

/// Parses a row of a section.
fn read_row(
    parameters: &mut Parameters,
    section: Section,
    mut scan: Scan<'_>,
) -> Result<(), TextError> {
    let scan = &mut scan;
    match section {
        Section::Scale => {
            parameters.scale = scan.value("a number of filters, at least 1", |word| {
                decimal(word).filter(|n| *n > 0)
            })?;
        }
        Section::Protocols => parameters.protocols.push(read_protocol_share(scan)?),
        Section::Flags => parameters.flags.push(read_flag_shares(scan)?),
        Section::Extra => return Ok(()),
        Section::SourceRanges => parameters.source_ports.ranges.push(read_port(scan)?),
        Section::SourcePorts => parameters.source_ports.exact.push(read_port(scan)?),
        Section::DestinationRanges => parameters.destination_ports.ranges.push(read_port(scan)?),
        Section::DestinationPorts => parameters.destination_ports.exact.push(read_port(scan)?),
        Section::Lengths(pair) => {
            if let Some(lengths) = parameters.lengths.get_mut(pair) {
                read_lengths(lengths, scan)?;
            }
        }
        Section::SourceNesting => parameters.source.nesting = read_nesting(scan)?,
        Section::DestinationNesting => parameters.destination.nesting = read_nesting(scan)?,
        Section::SourceLevels => read_level(&mut parameters.source, scan)?,
        Section::DestinationLevels => read_level(&mut parameters.destination, scan)?,
        Section::Correlation => {
            let length = read_length(scan)?;
            let share = read_share(scan)?;
            if let Some(slot) = parameters.correlation.get_mut(length) {
                *slot = share;
            }
        }
    }
    scan.end()
}

/// Parses the share of a protocol.
fn read_protocol_share(scan: &mut Scan<'_>) -> Result<ProtocolShare, TextError> {
    let protocol = scan.value("a protocol number from 0 to 255", decimal)?;
    let share = read_share(scan)?;
    let mut pairs = [0.0; PAIRS];
    for slot in &mut pairs {
        *slot = read_share(scan)?;
    }
    Ok(ProtocolShare { protocol, share, pairs })
}

/// Parses the shares of TCP flags with one protocol.
fn read_flag_shares(scan: &mut Scan<'_>) -> Result<FlagShares, TextError> {
    let protocol = scan.value("a protocol number from 0 to 255", decimal)?;
    let mut shares = Vec::new();
    while !scan.rest().is_empty() {
        let flags = read_flags(scan)?;
        scan.mark(',', "`,` and the share of the flags")?;
        shares.push((flags, read_share(scan)?));
    }
    Ok(FlagShares { protocol, shares })
}

/// Parses the share of a port range.
fn read_port(scan: &mut Scan<'_>) -> Result<(PortRange, f64), TextError> {
    let share = read_share(scan)?;
    Ok((read_range(scan)?, share))
}

/// Parses the shares of the pairs with one total prefix length.
fn read_lengths(lengths: &mut Lengths, scan: &mut Scan<'_>) -> Result<(), TextError> {
    let total = scan.value("the sum of both prefix lengths, from 0 to 64", |word| {
        decimal(word).filter(|total| *total <= TOTAL_MAX)
    })?;
    scan.mark(',', "`,` and the share of these lengths")?;
    lengths.set_total(total, read_share(scan)?);
    while !scan.rest().is_empty() {
        let source = read_length(scan)?;
        scan.mark(',', "`,` and the share of this length")?;
        lengths.set_source(total, source, read_share(scan)?);
    }
    Ok(())
}

/// Parses the maximum nesting of prefixes.
fn read_nesting(scan: &mut Scan<'_>) -> Result<u32, TextError> {
    scan.value("the number of prefixes that may contain each other", decimal)
}

/// Parses the branching at one prefix length.
fn read_level(branching: &mut Branching, scan: &mut Scan<'_>) -> Result<(), TextError> {
    let length = read_length(scan)?;
    let level = BranchLevel {
        single: read_share(scan)?,
        double: read_share(scan)?,
        skew: read_share(scan)?,
    };
    if let Some(slot) = branching.levels.get_mut(length) {
        *slot = level;
    }
    Ok(())
}

/// Parses a prefix length.
fn read_length(scan: &mut Scan<'_>) -> Result<usize, TextError> {
    scan.value("a prefix length from 0 to 32", |word| decimal(word).filter(|n| *n <= 32))
}

/// Parses a share: a number from 0 to 1.
fn read_share(scan: &mut Scan<'_>) -> Result<f64, TextError> {
    scan.value("a share from 0 to 1", |word| {
        let digits = word.bytes().all(|byte| byte.is_ascii_digit() || b".e-".contains(&byte));
        word.parse().ok().filter(|share| digits && (0.0..=1.0).contains(share))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classbench::BuiltinSet;

    #[test]
    fn parameters_round_trip_through_text() {
        for set in BuiltinSet::ALL {
            let text = set.parameters().to_string();
            let again = Parameters::parse(&text).unwrap();
            assert_eq!(again.to_string(), text);
            assert_eq!(again.scale(), set.parameters().scale());
        }
    }

    fn error_with(from: &str, to: &str) -> ParameterError {
        let text = BuiltinSet::Acl.parameters().to_string();
        assert!(text.contains(from), "{text}");
        Parameters::parse(&text.replacen(from, to, 1)).unwrap_err()
    }

    #[test]
    fn a_misspelled_section_gets_a_suggestion() {
        let ParameterError::Section { place, nearest } = error_with("-sskew", "-skew") else {
            panic!()
        };
        assert_eq!((place.column, place.found.as_str(), nearest), (2, "skew", Some("sskew")));
    }

    #[test]
    fn a_bad_number_has_a_position() {
        let ParameterError::Text(error) = error_with("-dnest\n", "-dnest\nmany ") else { panic!() };
        assert_eq!((error.column, error.found.as_str()), (1, "many"));
        let ParameterError::Text(error) = error_with("-pcorr\n1\t", "-pcorr\n1\t1.") else {
            panic!()
        };
        assert_eq!((error.column, error.expected), (3, "a share from 0 to 1"));
    }

    #[test]
    fn missing_sections_are_reported() {
        let missing = error_with("-snest", "#");
        assert!(matches!(missing, ParameterError::Text(_)), "{missing}");
        let missing = Parameters::parse("-scale\n1\n").unwrap_err();
        assert_eq!(missing, ParameterError::Missing { section: "prots" });
        let ports = error_with("-dpem\n", "-dpem\n#\n-extra\n");
        assert!(matches!(ports, ParameterError::Unsupplied { section: "dpem", .. }), "{ports}");
    }
}

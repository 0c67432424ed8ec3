//! The configuration file: TOML, with errors that point at the place and say how to mend it.

use std::{fs, path::Path, sync::Arc};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::Deserialize;
use shunt_switch::Config;
use thiserror::Error;

/// What the file says: a switch, and how the daemon talks about itself.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct File {
    /// Logging.
    pub(crate) logging: Logging,
    threads: shunt_switch::config::Threads,
    caches: shunt_switch::config::Caches,
    packets: shunt_switch::config::Packets,
    bridge: Vec<shunt_switch::config::Bridge>,
}

impl File {
    /// The switch of this file.
    pub(crate) fn switch(&self) -> Config {
        Config {
            threads: self.threads.clone(),
            caches: self.caches.clone(),
            packets: self.packets.clone(),
            bridges: self.bridge.clone(),
        }
    }
}

/// How the daemon talks about itself.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Logging {
    /// A level (`error`, `warn`, `info`, `debug`, `trace`) or a filter such as
    /// `info,shunt_ofproto=debug`.
    pub(crate) filter: String,
}

impl Default for Logging {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}

/// Why a configuration file cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub(crate) enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path}: {source}")]
    #[diagnostic(help("name the file with --config FILE; docs/configuration.md shows one"))]
    Unreadable {
        /// The file.
        path: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The text is not a configuration.
    #[error("{message}")]
    Text {
        /// What is wrong.
        message: String,
        /// The text.
        #[source_code]
        text: Arc<NamedSource<String>>,
        /// Where in it.
        #[label("here")]
        span: SourceSpan,
        /// How to mend it.
        #[help]
        help: Option<String>,
    },
}

/// Reads a configuration file.
///
/// # Errors
///
/// When it cannot be read, or says something that no configuration says.
pub(crate) fn read(path: &Path) -> Result<File, ConfigError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: name.clone(), source })?;
    parse(&name, text)
}

/// Reads the text of a configuration file called `name`.
///
/// # Errors
///
/// When it says something that no configuration says.
pub(crate) fn parse(name: &str, text: String) -> Result<File, ConfigError> {
    toml::from_str(&text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        ConfigError::Text {
            message: error.message().lines().next().unwrap_or_default().to_owned(),
            help: help(error.message()),
            span: (span.start, span.len()).into(),
            text: Arc::new(NamedSource::new(name, text)),
        }
    })
}

/// The valid word nearest to the one that was not, out of serde's own list of them.
fn help(message: &str) -> Option<String> {
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next()?;
    let valid: Vec<&str> = quoted.collect();
    let nearest = valid.iter().min_by_key(|word| distance(wrong, word))?;
    if distance(wrong, nearest) <= wrong.len().div_ceil(2) {
        Some(format!("did you mean `{nearest}`?"))
    } else {
        Some(format!("valid here: {}", valid.join(", ")))
    }
}

/// Levenshtein distance in characters: `O(a * b)`.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> (String, Option<String>, String) {
        let Err(ConfigError::Text { message, help, span, .. }) = parse("shunt.toml", text.into())
        else {
            panic!("no complaint about {text}");
        };
        (message, help, text[span.offset()..span.offset() + span.len()].to_owned())
    }

    #[test]
    fn a_whole_configuration_is_read() {
        let text = r#"
            [threads]
            packet = 3
            [caches]
            exact_entries = 0
            [logging]
            filter = "debug"
            [[bridge]]
            name = "br0"
            datapath_id = "00000000000000c1"
            controllers = ["tcp:127.0.0.1:6653"]
            [[bridge.port]]
            name = "p1"
            number = 1
            type = "af_packet"
            [[bridge.port]]
            name = "in"
            type = "pcap"
            rx = "in.pcap"
            repeat = "endless"
        "#;
        let file = parse("shunt.toml", text.into()).unwrap();
        let switch = file.switch();
        assert_eq!((switch.threads.packet, switch.caches.exact_entries), (3, 0));
        assert_eq!(switch.bridges[0].ports[1].repeat, shunt_switch::config::Repeat::Endless);
        assert_eq!(file.logging.filter, "debug");
    }

    #[test]
    fn a_misspelled_key_is_pointed_at_with_the_nearest_one() {
        let (message, help, place) = complaint("[[bridge]]\nnaem = \"br0\"\n");
        assert!(message.starts_with("unknown field `naem`"), "{message}");
        assert_eq!(help.as_deref(), Some("did you mean `name`?"));
        assert_eq!(place, "naem");
    }

    #[test]
    fn a_misspelled_port_type_is_pointed_at_with_the_nearest_one() {
        let (_, help, place) = complaint("[[bridge]]\n[[bridge.port]]\ntype = \"afpacket\"\n");
        assert_eq!(help.as_deref(), Some("did you mean `af_packet`?"));
        assert_eq!(place, "\"afpacket\"");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_pointed_at() {
        let (message, _, place) = complaint("[threads]\npacket = \"two\"\n");
        assert!(message.contains("expected u16"), "{message}");
        assert_eq!(place, "\"two\"");
    }
}

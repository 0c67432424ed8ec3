//! The configuration file: TOML, with errors that show the place of a mistake and its correction.

use std::{fs, io, ops::Range, path::Path, sync::Arc};

use miette::{Diagnostic, NamedSource, SourceSpan};
use serde::Deserialize;
use shunt_datapath::port::{DpdkError, DpdkState};
use shunt_flow::text::nearest_of;
use shunt_ovsdb::client::OvsdbRemote;
use shunt_switch::{Config, ConfigStep, config::PortType};
use thiserror::Error;
use toml::de::{DeTable, DeValue};

use crate::{
    daemon::trace_log, http::HttpOptions, number_range::EXPECTED_NUMBER, open_vswitch,
    ovsdb::OvsdbOptions, tls::TlsOptions,
};

/// The content of a configuration file: the switch, and options of the daemon.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConfigFile {
    /// Logging options of the daemon.
    pub(crate) logging: Logging,
    /// Options of the OVSDB server or client.
    pub(crate) ovsdb: OvsdbOptions,
    /// Options of the HTTP server.
    pub(crate) http: HttpOptions,
    /// Key and certificates of TLS connections.
    pub(crate) tls: TlsOptions,
    threads: shunt_switch::config::ThreadOptions,
    caches: shunt_switch::config::CacheOptions,
    eviction: shunt_switch::config::EvictionOptions,
    foresight: shunt_switch::config::ForesightOptions,
    packets: shunt_switch::config::PacketOptions,
    dpdk: shunt_switch::config::EalOptions,
    bridge: Vec<shunt_switch::config::BridgeOptions>,
}

impl ConfigFile {
    /// Returns the configuration of the switch.
    pub(crate) fn switch(&self) -> Config {
        Config {
            threads: self.threads.clone(),
            caches: self.caches.clone(),
            eviction: self.eviction,
            foresight: self.foresight.clone(),
            packets: self.packets.clone(),
            dpdk: self.dpdk.clone(),
            bridges: self.bridge.clone(),
        }
    }

    /// Returns the options of the database; `remote` is the server of `--db`.
    ///
    /// # Errors
    ///
    /// If two databases are named, or a server with TLS without the section `[tls]`.
    pub(crate) fn database(&self, remote: Option<&OvsdbRemote>) -> Result<OvsdbOptions, String> {
        let options = self.ovsdb.with_remote(remote)?;
        self.tls.check_database(options.remote.as_ref())?;
        Ok(options)
    }
}

/// The logging options of the daemon.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Logging {
    /// Log level or filter.
    ///
    /// Levels are `error`, `warn`, `info`, `debug`, `trace` and `off`. A filter sets a level for
    /// each target; an example is `info,shunt_ofproto=debug`.
    pub(crate) filter: String,
}

impl Default for Logging {
    fn default() -> Self {
        Self { filter: "info".to_owned() }
    }
}

/// The reason why a configuration file cannot be used.
#[derive(Debug, Error, Diagnostic)]
pub(crate) enum ConfigFileError {
    /// The file cannot be read.
    ///
    /// The report prints the error of the operating system in a separate line.
    #[error("cannot read the configuration {path}")]
    Unreadable {
        /// Path of the configuration file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
        /// The way to correct the problem.
        #[help]
        help: String,
    },
    /// The text is not a valid configuration.
    #[error("{message}")]
    Text {
        /// Description of the mistake.
        message: String,
        /// Text of the configuration file.
        #[source_code]
        text: Arc<NamedSource<String>>,
        /// Place of the mistake in the text.
        #[label("here")]
        span: SourceSpan,
        /// A known way to correct the mistake.
        #[help]
        help: Option<String>,
    },
}

impl ConfigFileError {
    /// Returns the message, its place and its correction in one line, for the log.
    pub(crate) fn in_one_line(&self) -> String {
        match self {
            Self::Unreadable { source, .. } => format!("{self}: {source}"),
            Self::Text { message, text, span, help } => {
                let before = text.inner().get(..span.offset()).unwrap_or_default();
                let line = before.matches('\n').count() + 1;
                let help = help.as_ref().map_or_else(String::new, |help| format!("; {help}"));
                format!("{}:{line}: {message}{help}", text.name())
            }
        }
    }
}

/// Reads a configuration file.
///
/// # Errors
///
/// If the file cannot be read, or is not valid.
pub(crate) fn read(path: &Path) -> Result<ConfigFile, ConfigFileError> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|source| {
        let help = advice(source.kind());
        ConfigFileError::Unreadable { path: name.clone(), source, help }
    })?;
    let checked = parse_file(&text).and_then(|file| check_build(&text, file));
    checked.map_err(|mistake| mistake.in_file(&name, text))
}

/// Returns the advice for a file that cannot be read.
fn advice(kind: io::ErrorKind) -> String {
    match kind {
        io::ErrorKind::InvalidData => "save the file as text in UTF-8".to_owned(),
        io::ErrorKind::IsADirectory => {
            "name a file in this directory with --config FILE".to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "let the user of the daemon read the file and enter its directories".to_owned()
        }
        _ => format!("name an existing file with --config FILE; {} has examples", page()),
    }
}

/// Refuses port types that this build does not contain.
fn check_build(text: &str, file: ConfigFile) -> Result<ConfigFile, Mistake> {
    if DpdkState::read() != DpdkState::NotBuilt {
        return Ok(file);
    }
    for (bridge, options) in file.bridge.iter().enumerate() {
        let port = options.ports.iter().position(|port| port.kind == PortType::Dpdk);
        let Some(port) = port else { continue };
        let path = [
            ConfigStep::Field("bridges"),
            ConfigStep::Index(bridge),
            ConfigStep::Field("ports"),
            ConfigStep::Index(port),
            ConfigStep::Field("type"),
        ];
        return Err(Mistake {
            message: format!("port {}: {}", options.ports[port].name, DpdkError::NotBuilt),
            help: None,
            span: span(text, &path).unwrap_or_default(),
        });
    }
    Ok(file)
}

/// Parses the text of a configuration file called `name`.
///
/// # Errors
///
/// If the text is not a valid configuration.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn parse(name: &str, text: String) -> Result<ConfigFile, ConfigFileError> {
    parse_file(&text).map_err(|mistake| mistake.in_file(name, text))
}

/// Returns the path or address of the page about the configuration file.
///
/// If the package is installed, it is the page in the package.
fn page() -> &'static str {
    /// The page in the package.
    const PACKAGED: &str = "/usr/share/doc/shunt/configuration.md";
    if Path::new(PACKAGED).exists() { PACKAGED } else { "docs/configuration.md" }
}

/// A mistake in the text: message, place and correction.
struct Mistake {
    /// The mistake as a sentence.
    message: String,
    /// The correction, if one is known.
    help: Option<String>,
    /// The place in the text.
    span: Range<usize>,
}

impl Mistake {
    /// Adds the file to the mistake.
    fn in_file(self, name: &str, text: String) -> ConfigFileError {
        let Self { message, help, span } = self;
        ConfigFileError::Text {
            message,
            help,
            span: (span.start, span.len()).into(),
            text: Arc::new(NamedSource::new(name, text)),
        }
    }
}

/// Parses a configuration file.
fn parse_file(text: &str) -> Result<ConfigFile, Mistake> {
    let file: ConfigFile = toml::from_str(text).map_err(|error| {
        let message = error.message().lines().next().unwrap_or_default();
        let span = error.span().unwrap_or_default();
        number::mistake(text, message, &span).unwrap_or_else(|| {
            let help = help(error.message());
            Mistake { message: in_words(message), help, span }
        })
    })?;
    let senseless = |message, keys: &[ConfigStep]| Mistake {
        message,
        help: Some(format!("{} explains every key", page())),
        span: span(text, keys).unwrap_or_default(),
    };
    file.switch()
        .check()
        .map_err(|error| senseless(error.problem.to_string(), error.path.steps()))?;
    let filter = [ConfigStep::Field("logging"), ConfigStep::Field("filter")];
    trace_log::check(&file.logging.filter).map_err(|message| senseless(message, &filter))?;
    file.ovsdb.check().map_err(|(message, key)| senseless(message, &key))?;
    file.http.addresses().map_err(|error| senseless(error.message, &error.key))?;
    file.http.tls().map_err(|(message, keys)| senseless(message, &keys))?;
    file.tls.check(&file.bridge).map_err(|(message, keys)| senseless(message, &keys))?;
    let remote = [ConfigStep::Field("ovsdb"), ConfigStep::Field("remote")];
    let database = file.tls.check_database(file.ovsdb.remote.as_ref());
    database.map_err(|message| senseless(message, &remote))?;
    Ok(file)
}

/// Replaces type names in messages of the TOML parser by words for users.
///
/// The valid words of a key are removed, because the help text lists them.
fn in_words(message: &str) -> String {
    /// Words of the parser, and the words that users know.
    const WORDS: [(&str, &str); 11] = [
        ("unknown field", "unknown key"),
        ("unknown variant", "unknown value"),
        ("missing field", "missing key"),
        ("map, ", "a table, "),
        ("expected a sequence", "expected a list in brackets"),
        ("expected u8", EXPECTED_NUMBER),
        ("expected u16", EXPECTED_NUMBER),
        ("expected u32", EXPECTED_NUMBER),
        ("expected u64", EXPECTED_NUMBER),
        ("expected i32", EXPECTED_NUMBER),
        ("expected usize", EXPECTED_NUMBER),
    ];
    let is_unknown_word = UNKNOWN_WORDS.iter().any(|start| message.starts_with(start));
    let end = if is_unknown_word {
        message.find(", expected").unwrap_or(message.len())
    } else {
        message.len()
    };
    let replace = |text: String, (said, meant): &(&str, &str)| text.replace(said, meant);
    WORDS.iter().fold(message[..end].to_owned(), replace)
}

/// The beginnings of messages about unknown words;
/// these messages end with the valid words.
const UNKNOWN_WORDS: [&str; 2] = ["unknown field", "unknown variant"];

/// Returns the place of a value in the text, or of the innermost enclosing value.
fn span(text: &str, path: &[ConfigStep]) -> Option<Range<usize>> {
    let document = DeTable::parse(text).ok()?;
    let ConfigStep::Field(first) = path.first()? else { return None };
    let mut found = document.get_ref().get(toml_key(first))?;
    for step in &path[1..] {
        let inner = match (step, found.get_ref()) {
            (ConfigStep::Field(field), DeValue::Table(table)) => table.get(toml_key(field)),
            (ConfigStep::Index(index), DeValue::Array(list)) => list.get(*index),
            _ => None,
        };
        let Some(inner) = inner else { break };
        found = inner;
    }
    Some(found.span())
}

/// Returns the TOML key of a field.
///
/// The file has a list element by element, so the key of a list is singular.
fn toml_key(field: &'static str) -> &'static str {
    match field {
        "bridges" => "bridge",
        "bonds" => "bond",
        "ports" => "port",
        "mirrors" => "mirror",
        "collector_sets" => "collector_set",
        field => field,
    }
}

/// Returns the valid word that is most similar to the word in serde's message.
fn help(message: &str) -> Option<String> {
    if message.contains("map, expected a sequence") {
        let text = "write `[[bridge]]` with two brackets, and after it `[[bridge.port]]` for each of \
                    its ports";
        return Some(text.to_owned());
    }
    let mut quoted = message.split('`').skip(1).step_by(2);
    let wrong = quoted.next()?;
    let is_unknown_word = UNKNOWN_WORDS.iter().any(|start| message.starts_with(start));
    if let Some(hint) = open_vswitch::hint(wrong).filter(|_| is_unknown_word) {
        return Some(hint.to_owned());
    }
    let valid: Vec<&str> = quoted.collect();
    match nearest_of(wrong, valid.iter().copied()) {
        Some(nearest) => Some(format!("did you mean `{nearest}`?")),
        None => (!valid.is_empty()).then(|| format!("valid here: {}", valid.join(", "))),
    }
}

mod number;

#[cfg(test)]
mod documented_defaults;

#[cfg(test)]
mod tests {
    use super::*;

    fn error_text(text: &str) -> (String, Option<String>, String) {
        let Err(ConfigFileError::Text { message, help, span, .. }) =
            parse("shunt.toml", text.into())
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
    fn an_offload_table_without_kind_is_embedded() {
        use shunt_switch::config::OffloadKind;
        let kind = |text: &str| {
            let text = format!("{text}[[bridge]]\nname = \"br0\"\n");
            let file = parse("shunt.toml", text).unwrap();
            file.switch().caches.gigaflow.offload.kind
        };
        assert_eq!(kind("[caches.gigaflow.offload]\nstages = 8\n"), OffloadKind::Embedded);
        assert_eq!(kind("[caches.gigaflow.offload]\nkind = \"none\"\n"), OffloadKind::None);
        assert_eq!(kind("[caches.gigaflow]\nstages = 8\n"), OffloadKind::None);
    }

    #[test]
    fn a_wrong_type_is_explained_in_words() {
        let (message, _, place) = error_text("[threads]\npacket = \"two\"\n");
        assert!(message.contains("expected a whole number"), "{message}");
        assert_eq!(place, "\"two\"");
        let (message, help, _) = error_text("[[bridge]]\n[[bridge.port]]\nnumber = \"1\"\n");
        assert!(message.contains("expected a whole number"), "{message}");
        assert_eq!(help.as_deref(), Some("write the number without quotes"));
        let (message, help, _) = error_text("[[bridge.port]]\nname = \"p1\"\n");
        assert!(message.contains("a table, expected a list in brackets"), "{message}");
        assert!(help.unwrap().contains("`[[bridge]]`"));
        let (_, help, _) = error_text("[[bridge]\n");
        assert_ne!(help.as_deref(), Some("valid here: "));
    }

    #[test]
    fn a_misspelled_key_gets_a_position_and_suggestion() {
        let (message, help, place) = error_text("[[bridge]]\nnaem = \"br0\"\n");
        assert_eq!(message, "unknown key `naem`");
        assert_eq!(help.as_deref(), Some("did you mean `name`?"));
        assert_eq!(place, "naem");
    }

    #[test]
    fn a_log_line_has_place_and_correction() {
        let Err(error) = parse("shunt.toml", "[[bridge]]\nnaem = \"br0\"\n".into()) else {
            panic!("a misspelled key was accepted");
        };
        let line = error.in_one_line();
        assert!(line.starts_with("shunt.toml:2: unknown key `naem`"), "{line}");
        assert!(line.ends_with("; did you mean `name`?"), "{line}");
    }

    #[test]
    fn word_of_open_vswitch_has_own_help() {
        for (text, words) in [
            ("[[bridge]]\n[[bridge.port]]\ntype = \"internal\"\n", "`local = \"tap\"`"),
            ("[[bridge]]\n[[bridge.port]]\ntype = \"vxlan\"\n", "tunnels do not exist yet"),
            ("[[bridge]]\n[[bridge.port]]\nofport_request = 1\n", "use `number`"),
        ] {
            let (_, help, _) = error_text(text);
            assert!(help.as_deref().is_some_and(|help| help.contains(words)), "{text}: {help:?}");
        }
    }

    #[test]
    fn valid_words_are_listed_once() {
        let (message, help, _) = error_text("[[bridge]]\nqqqqqqqq = 1\n");
        assert_eq!(message, "unknown key `qqqqqqqq`");
        assert!(help.unwrap().starts_with("valid here: name, datapath_id"));
    }

    #[test]
    fn a_misspelled_port_type_gets_a_suggestion() {
        let (_, help, place) = error_text("[[bridge]]\n[[bridge.port]]\ntype = \"afpacket\"\n");
        assert_eq!(help.as_deref(), Some("did you mean `af_packet`?"));
        assert_eq!(place, "\"afpacket\"");
    }

    #[test]
    fn invalid_values_are_pointed_at() {
        for (text, words, place) in [
            ("[threads]\npacket = 0\n", "from 1 to 64", "0"),
            ("[threads]\nauto_lb_load_threshold = 101\n", "from 0 to 100", "101"),
            ("[threads]\nauto_lb_improvement_threshold = 200\n", "from 0 to 100", "200"),
            ("[threads]\nauto_lb_interval_min = 0\n", "from 1 to 20000", "0"),
            ("[caches]\nexact_entries = 3\n", "power of two", "3"),
            ("[[bridge]]\nname = \"br 0\"\n", "is not a valid name", "\"br 0\""),
            ("[[bridge]]\nname = \"sixteen-bytes-oo\"\n", "1 to 15", "\"sixteen-bytes-oo\""),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge]]\nname = 'a'\n",
                "bridge a exists already",
                "'a'",
            ),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = 'a'\n",
                "a is the local port of its bridge already",
                "'a'",
            ),
            ("[eviction]\nrepair_rate = 0\n", "at least 1", "0"),
            ("bridge = [{ name = 'a', mac = 'x' }]\n", "six octets", "'x'"),
            (
                "[[bridge]]\nname = \"a\"\nlisten = [\"ptcp:1\", \"tcp:1.2.3.4\"]\n",
                "`listen` takes ptcp:PORT",
                "\"tcp:1.2.3.4\"",
            ),
            (
                "[[bridge]]\nname = \"a\"\ncontrollers = [\"ssl:1.2.3.4\"]\n",
                "needs TLS: set private_key",
                "\"ssl:1.2.3.4\"",
            ),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p\"\n\
                 type = \"patch\"\npeer = \"q\"\n",
                "no port q",
                "\"q\"",
            ),
            ("[logging]\nfilter = \"a=b=c\"\n", "logging.filter", "\"a=b=c\""),
            // A missing value has no place in the text, so its table is marked.
            ("[[bridge]]\nmac = \"\"\n", "`name` is missing", "[[bridge]]"),
            (
                "[[bridge]]\nname = \"a\"\n[[bridge.port]]\nname = \"p\"\ntype = \"pcap\"\n",
                "needs `rx`",
                "[[bridge.port]]",
            ),
        ] {
            let (message, help, pointed) = error_text(text);
            assert!(message.contains(words), "{text}: {message}");
            assert_eq!(pointed, place, "{text}");
            assert!(help.is_some(), "{text}");
        }
    }

    #[test]
    fn an_engine_that_was_not_built_is_reported() {
        for name in ["visits", "relational"] {
            let text = format!("[eviction]\nengine = \"{name}\"\n");
            if cfg!(feature = "dbsp") {
                assert!(parse("shunt.toml", text).is_ok());
                continue;
            }
            let (message, help, place) = error_text(&text);
            let words = format!(
                "this build does not contain the engine `{name}`: build it with the feature dbsp"
            );
            assert!(message.contains(&words) && help.is_some(), "{message}");
            assert_eq!(place, format!("\"{name}\""));
        }
    }
}

//! The source of a workload's rules.

use std::fmt;

/// The source of the rules, which is the first part of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceName {
    /// A built-in pipeline by name.
    Pipeline(&'static str),
    /// The file of a pipeline.
    PipelineFile(String),
    /// One table of rules from filters, or from a file of a switch's rules.
    ClassBench(FilterName),
    /// A cluster of machines with coflows.
    Coflow,
    /// Hosts with a collective operation, which exchange data in rounds.
    Collective,
}

/// The source of filters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FilterName {
    /// Filters like those of access lists.
    Acl,
    /// Filters like those of firewalls.
    Firewall,
    /// Chains of IP rules.
    Ipc,
    /// Rules of a switch with OpenFlow.
    OpenFlow,
    /// A file of filters or of parameters in ClassBench format.
    File(String),
}

/// A word that may begin a name, and its description.
#[derive(Clone, Copy, Debug)]
pub struct SourceWord {
    /// The word as it is typed.
    pub word: &'static str,
    /// The description of the word.
    pub what: &'static str,
}

/// All words that may begin a name, which may also begin with a path.
pub const SOURCES: &[SourceWord] = &[
    SourceWord { word: "ofd", what: "OF-DPA as in CORD: 10 tables, 5 traversals" },
    SourceWord { word: "psc", what: "PISCES L2, L3 and access list: 7 tables, 2 traversals" },
    SourceWord { word: "ols", what: "OVN logical switch: 30 tables, 23 traversals" },
    SourceWord { word: "ant", what: "Antrea: 22 tables, 20 traversals" },
    SourceWord { word: "otl", what: "ONF table type pattern: 8 tables, 11 traversals" },
    SourceWord { word: "classbench-acl", what: "one table with the filters of an access list" },
    SourceWord { word: "classbench-fw", what: "one table with the filters of a firewall" },
    SourceWord { word: "classbench-ipc", what: "one table with the filters of an IP chain" },
    SourceWord { word: "classbench-of", what: "one table with the rules of an OpenFlow switch" },
    SourceWord { word: "coflow", what: "a cluster with UDP flows in coflows" },
    SourceWord { word: "collective", what: "hosts that exchange data in rounds" },
];

impl SourceName {
    /// Returns whether filters determine the rules and flows.
    #[must_use]
    pub const fn has_filters(&self) -> bool {
        !matches!(self, Self::Coflow | Self::Collective)
    }

    /// Returns the source that a word of [`SOURCES`] or a path names.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        if is_path(word) {
            return Some(match word.strip_suffix(".json") {
                Some(_) => Self::PipelineFile(word.to_owned()),
                None => Self::ClassBench(FilterName::File(word.to_owned())),
            });
        }
        let source = SOURCES.iter().find(|source| source.word == word)?;
        Some(match (source.word, source.word.strip_prefix("classbench-")) {
            ("coflow", _) => Self::Coflow,
            ("collective", _) => Self::Collective,
            (_, Some(filters)) => Self::ClassBench(FilterName::find(filters)?),
            (word, None) => Self::Pipeline(word),
        })
    }
}

impl FilterName {
    /// The words that [`find`](Self::find) knows, apart from paths.
    pub(super) const WORDS: &[&str] = &["acl", "fw", "ipc", "of"];

    /// Returns the filters that a word or a path names.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        match word {
            "acl" => Some(Self::Acl),
            "fw" => Some(Self::Firewall),
            "ipc" => Some(Self::Ipc),
            "of" => Some(Self::OpenFlow),
            path if is_path(path) => Some(Self::File(path.to_owned())),
            _ => None,
        }
    }
}

/// Returns whether a word is a path, because it contains a dot or a slash.
fn is_path(word: &str) -> bool {
    word.contains(['/', '.'])
}

impl fmt::Display for SourceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipeline(name) => f.write_str(name),
            Self::PipelineFile(path) | Self::ClassBench(FilterName::File(path)) => {
                f.write_str(path)
            }
            Self::ClassBench(filters) => write!(f, "classbench-{filters}"),
            Self::Coflow => f.write_str("coflow"),
            Self::Collective => f.write_str("collective"),
        }
    }
}

impl fmt::Display for FilterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acl => "acl",
            Self::Firewall => "fw",
            Self::Ipc => "ipc",
            Self::OpenFlow => "of",
            Self::File(path) => path,
        })
    }
}

//! What the rules of a workload are made of.

use std::fmt;

/// The first part of a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SourceName {
    /// A pipeline that comes with the crate, by its name.
    Pipeline(&'static str),
    /// A pipeline in a file.
    PipelineFile(String),
    /// One table of filters; if they are those of a file, it may have the rules of a switch instead.
    ClassBench(FilterName),
    /// A cluster with coflows.
    Coflow,
}

/// Where filters come from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FilterName {
    /// Access lists.
    Acl,
    /// Firewalls.
    Firewall,
    /// Chains of IP rules.
    Ipc,
    /// Rules of a switch with OpenFlow.
    OpenFlow,
    /// A file of filters or of parameters in the format of ClassBench.
    File(String),
}

/// A word that can stand first in a name, and what it means.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The word.
    pub word: &'static str,
    /// What it is.
    pub what: &'static str,
}

/// All words that can stand first; a path to a file can, too.
pub const SOURCES: &[Source] = &[
    Source { word: "ofd", what: "OF-DPA as in CORD: 10 tables, 5 traversals" },
    Source { word: "psc", what: "PISCES L2, L3 and access list: 7 tables, 2 traversals" },
    Source { word: "ols", what: "OVN logical switch: 30 tables, 23 traversals" },
    Source { word: "ant", what: "Antrea: 22 tables, 20 traversals" },
    Source { word: "otl", what: "ONF table type pattern: 8 tables, 11 traversals" },
    Source { word: "classbench-acl", what: "one table of an access list" },
    Source { word: "classbench-fw", what: "one table of a firewall" },
    Source { word: "classbench-ipc", what: "one table of an IP chain" },
    Source { word: "classbench-of", what: "one table of a switch with OpenFlow" },
    Source { word: "coflow", what: "a cluster whose UDP flows come in coflows" },
];

impl SourceName {
    /// Reads a word of [`SOURCES`], or a path.
    #[must_use]
    pub fn find(word: &str) -> Option<Self> {
        if is_path(word) {
            return Some(match word.strip_suffix(".json") {
                Some(_) => Self::PipelineFile(word.to_owned()),
                None => Self::ClassBench(FilterName::File(word.to_owned())),
            });
        }
        let source = SOURCES.iter().find(|source| source.word == word)?;
        if source.word == "coflow" {
            return Some(Self::Coflow);
        }
        Some(match source.word.strip_prefix("classbench-") {
            Some(filters) => Self::ClassBench(FilterName::find(filters)?),
            None => Self::Pipeline(source.word),
        })
    }
}

impl FilterName {
    /// The words that [`find`](Self::find) knows beside paths.
    pub(super) const WORDS: &[&str] = &["acl", "fw", "ipc", "of"];

    /// Reads a word, or a path.
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

/// Words of a name have neither dots nor slashes, paths of files hardly lack both.
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

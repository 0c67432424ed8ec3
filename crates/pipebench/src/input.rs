//! Reads input files, and detects their kind.
//!
//! The beginning of a file determines its kind. A pipeline is JSON, and a filter begins with `@`.
//! Parameters of ClassBench begin with the `-` of a section name, and rules of a switch contain
//! actions.

use std::{
    fs::File,
    io::{self, Read},
};

use shunt_flow::text::nearest_of;

use crate::{name::SOURCES, nearest::Suggestion};

/// The text of a file, and its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// Path of the file.
    pub path: String,
    /// The whole text of the file.
    pub text: String,
}

/// Kind of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// The text is a pipeline, as JSON.
    Pipeline,
    /// Filters in the format of ClassBench.
    Filters,
    /// The text has parameters of ClassBench.
    Parameters,
    /// Rules of a switch, as `ovs-ofctl dump-flows` prints them.
    Rules,
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// The file does not exist.
    #[error("there is no file {path}{}", Suggestion(*nearest, ""))]
    Missing {
        /// Name of the file.
        path: String,
        /// The source of a workload that the user probably meant.
        nearest: Option<&'static str>,
    },
    /// The kernel reports an error.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        /// Name of the file.
        path: String,
        /// The error of the kernel.
        source: io::Error,
    },
    /// The file exceeds the size limit.
    #[error("{path} has more than {} MiB: use a part of it", BYTES_MAX >> 20)]
    TooLarge {
        /// Name of the file.
        path: String,
    },
    /// The file is not a text.
    #[error("{path} is {what}: {instead}")]
    NoText {
        /// Name of the file.
        path: String,
        /// Kind of the file.
        what: &'static str,
        /// The advice for a file of this kind.
        instead: &'static str,
    },
    /// The file has no content.
    #[error("{path} has only blanks and comments: name a file with content")]
    Empty {
        /// Name of the file.
        path: String,
    },
}

/// Magic numbers of files that are not texts.
const MAGIC: &[(&[u8], &str, &str)] = &[
    (&[0x1f, 0x8b], "compressed", "unpack it with `gunzip` first"),
    (b"BZh", "compressed", "unpack it with `bunzip2` first"),
    (b"\xfd7zXZ", "compressed", "unpack it with `unxz` first"),
    (&[0x28, 0xb5, 0x2f, 0xfd], "compressed", "unpack it with `unzstd` first"),
    (&[0xd4, 0xc3, 0xb2, 0xa1], CAPTURE, STATS),
    (&[0xa1, 0xb2, 0xc3, 0xd4], CAPTURE, STATS),
    (&[0x4d, 0x3c, 0xb2, 0xa1], CAPTURE, STATS),
    (&[0xa1, 0xb2, 0x3c, 0x4d], CAPTURE, STATS),
    (&[0x0a, 0x0d, 0x0d, 0x0a], CAPTURE, STATS),
];
/// The words of an error for a capture file.
const CAPTURE: &str = "a capture";
/// The advice of an error for a capture file.
const STATS: &str = "print its packet statistics with `pipebench stats FILE`";

impl Input {
    /// Reads a text file.
    ///
    /// # Errors
    ///
    /// If the file does not exist, is not a text, or is empty.
    pub fn read(path: &str) -> Result<Self, InputError> {
        let bytes = read_to(path, BYTES_MAX).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => {
                InputError::Missing { path: path.to_owned(), nearest: probable_source(path) }
            }
            io::ErrorKind::FileTooLarge => InputError::TooLarge { path: path.to_owned() },
            _ => InputError::Unreadable { path: path.to_owned(), source },
        })?;
        Self::of(path, bytes)
    }

    /// Creates an input from the content of a file.
    ///
    /// # Errors
    ///
    /// If the content is not a text, or is empty.
    pub fn of(path: &str, bytes: Vec<u8>) -> Result<Self, InputError> {
        let no_text = |what, instead| InputError::NoText { path: path.to_owned(), what, instead };
        if let Some((_, what, instead)) = MAGIC.iter().find(|(magic, ..)| bytes.starts_with(magic))
        {
            return Err(no_text(what, instead));
        }
        let other = || no_text("not a text", "use a pipeline, filters, parameters or rules");
        if bytes.contains(&0) {
            return Err(other());
        }
        let text = String::from_utf8(bytes).map_err(|_| other())?;
        let input = Self { path: path.to_owned(), text };
        match input.beginning() {
            "" => Err(InputError::Empty { path: input.path }),
            _ => Ok(input),
        }
    }

    /// Returns the kind of the input, by its beginning.
    #[must_use]
    pub fn kind(&self) -> InputKind {
        let beginning = self.beginning();
        let is_reply = beginning.starts_with("NXST_FLOW") || beginning.starts_with("OFPST_FLOW");
        match beginning.chars().next() {
            Some('{' | '[') => InputKind::Pipeline,
            Some('-') => InputKind::Parameters,
            Some('@') => InputKind::Filters,
            _ if is_reply || beginning.contains("actions=") => InputKind::Rules,
            // For any other text, the parser of filters reports an error with the expected text.
            _ => InputKind::Filters,
        }
    }

    /// Returns the first line that is not a comment.
    fn beginning(&self) -> &str {
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| !line.is_empty() && !line.starts_with('#')).unwrap_or_default()
    }
}

/// Maximum length of a text in bytes: millions of rules have a tenth of it.
const BYTES_MAX: u64 = 1 << 30;

/// Number of bytes at the beginning that determine whether a file is a text.
const BEGINNING: u64 = 1 << 16;

/// Reads a file up to a limit, because a device file may have no end.
///
/// Reads only the beginning of a file that is not a text.
fn read_to(path: &str, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?;
    file.by_ref().take(BEGINNING.min(max + 1)).read_to_end(&mut bytes)?;
    if bytes.contains(&0) || MAGIC.iter().any(|(magic, ..)| bytes.starts_with(magic)) {
        return Ok(bytes);
    }
    let left = (max + 1).saturating_sub(bytes.len() as u64);
    file.take(left).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

/// Returns whether a file begins like a capture.
#[must_use]
pub fn is_capture(beginning: &[u8]) -> bool {
    MAGIC.iter().any(|(magic, what, _)| *what == CAPTURE && beginning.starts_with(magic))
}

/// Returns the source of a workload that a path probably means.
///
/// A dot in place of a colon makes the name of a workload look like a file.
fn probable_source(path: &str) -> Option<&'static str> {
    let word = path.split('.').next().filter(|_| !path.contains('/'))?;
    nearest_of(word, SOURCES.iter().map(|source| source.word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error of a file with some bytes.
    fn message(bytes: &[u8]) -> String {
        Input::of("x", bytes.to_vec()).unwrap_err().to_string()
    }

    #[test]
    fn the_beginning_determines_the_kind_of_a_file() {
        let kind = |text: &str| Input::of("x", text.as_bytes().to_vec()).unwrap().kind();
        assert_eq!(kind("# mine\n\n {\"pipeline\""), InputKind::Pipeline);
        assert_eq!(kind("[]"), InputKind::Pipeline);
        assert_eq!(kind("@10.0.0.0/8\t"), InputKind::Filters);
        assert_eq!(kind("10.0.0.0/8\t"), InputKind::Filters);
        assert_eq!(kind("-scale\n1000\n#\n"), InputKind::Parameters);
        assert_eq!(kind("NXST_FLOW reply (xid=0x4):\n"), InputKind::Rules);
        assert_eq!(kind(" cookie=0x0, table=0, priority=0 actions=drop"), InputKind::Rules);
    }

    #[test]
    fn binary_files_are_named_by_kind() {
        assert_eq!(message(&[0x1f, 0x8b, 8]), "x is compressed: unpack it with `gunzip` first");
        assert!(message(&[0x0a, 0x0d, 0x0d, 0x0a, 0]).starts_with(
            "x is a capture: print its packet \
             statistics with `pipebench stats"
        ));
        assert!(message(&[b'a', 0xff]).starts_with("x is not a text: "));
        assert_eq!(
            message(b"# nothing\n \n"),
            "x has only blanks and comments: name a file with content"
        );
    }

    #[test]
    fn endless_files_are_refused() {
        assert_eq!(read_to("/dev/zero", BYTES_MAX).unwrap().len() as u64, BEGINNING);
        assert!(Input::read("/dev/zero").unwrap_err().to_string().contains("is not a text"));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), [b'a'; 100]).unwrap();
        let read = |max| read_to(file.path().to_str().unwrap(), max).map(|bytes| bytes.len());
        assert_eq!(read(100).unwrap(), 100);
        assert!(read(99).is_err());
    }

    #[test]
    fn a_missing_file_error_suggests_a_source() {
        let message = |path| Input::read(path).unwrap_err().to_string();
        assert_eq!(message("ols.high:100k"), "there is no file ols.high:100k; did you mean `ols`?");
        assert_eq!(message("./nothing.here"), "there is no file ./nothing.here");
    }
}

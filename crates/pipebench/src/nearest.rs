//! Suggestions for misspelled names.

/// A suggestion in an error message, if any.
pub(crate) struct Suggestion<'a>(pub(crate) Option<&'a str>, pub(crate) &'static str);

impl std::fmt::Display for Suggestion<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean `{}{name}`?", self.1))
    }
}

/// The error of a name that is not known; it names the nearest known one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{name}`{}: the names are {known}", Suggestion(nearest.as_deref(), ""))]
pub struct UnknownName {
    /// The kind of name.
    pub what: &'static str,
    /// The name that is not known.
    pub name: String,
    /// The known name that is most similar.
    pub nearest: Option<String>,
    /// All names that are known.
    pub known: String,
}

impl UnknownName {
    /// Returns the error for `name`, with the nearest and all known names.
    pub(crate) fn new<'a>(
        what: &'static str,
        name: &str,
        nearest: Option<&str>,
        known: impl Iterator<Item = &'a str>,
    ) -> Self {
        let (name, nearest) = (name.to_owned(), nearest.map(str::to_owned));
        Self { what, name, nearest, known: known.collect::<Vec<_>>().join(", ") }
    }
}

//! The name that a user probably meant.

/// A suggestion, if there is one.
pub(crate) struct Meant<'a>(pub(crate) Option<&'a str>, pub(crate) &'static str);

impl std::fmt::Display for Meant<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, "; did you mean `{}{name}`?", self.1))
    }
}

/// A name that is not one of those known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no {what} `{name}`{}: there are {known}", Meant(nearest.as_deref(), ""))]
pub struct UnknownName {
    /// What it should be the name of.
    pub what: &'static str,
    /// What was given.
    pub name: String,
    /// What was probably meant.
    pub nearest: Option<String>,
    /// All names there are.
    pub known: String,
}

impl UnknownName {
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

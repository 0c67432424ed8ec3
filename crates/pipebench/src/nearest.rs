//! The name that a user probably meant.

/// The known name that is nearest to a misspelled one, if any is near at all.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_lowercase();
    let slips = |name: &str| strsim::osa_distance(&word, &name.to_lowercase());
    let near = known.into_iter().map(|name| (slips(name), name));
    let near = near.filter(|(slips, name)| *slips <= name.chars().count().div_ceil(3));
    near.min_by_key(|(slips, _)| *slips).map(|(_, name)| name)
}

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

//! Types of atoms.

/// The types of OVSDB values that have no parts (`<atomic-type>`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomType {
    /// A signed integer of 64 bits.
    Integer,
    /// A floating-point number of 64 bits.
    Real,
    /// A value that is true or false.
    Boolean,
    /// A string in UTF-8.
    String,
    /// The UUID of a row.
    Uuid,
}

impl AtomType {
    /// All types of values without parts.
    const ALL: [Self; 5] = [Self::Integer, Self::Real, Self::Boolean, Self::String, Self::Uuid];

    /// Returns the name of the type in the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Integer => "integer",
            Self::Real => "real",
            Self::Boolean => "boolean",
            Self::String => "string",
            Self::Uuid => "uuid",
        }
    }

    /// Returns the type with the given name of the protocol.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

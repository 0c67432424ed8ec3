//! The bearer token of clients (RFC 6750).

use std::{fs, io, os::unix::fs::MetadataExt, path::Path};

use hyper::header::{AUTHORIZATION, HeaderMap};
use thiserror::Error;
use tracing::warn;

/// The token that clients of the HTTP server send.
pub(super) struct BearerToken(String);

/// The reason why a token file cannot be used.
#[derive(Debug, Error)]
pub(crate) enum TokenError {
    /// The file cannot be read.
    #[error(
        "cannot read the bearer token in {path}: {source}: create the file, readable by the user of shuntd"
    )]
    Unreadable {
        /// Path of the token file.
        path: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The token is too short or too long.
    #[error(
        "the bearer token in {path} has {length} characters, and must have {LENGTH_MIN} to \
         {LENGTH_MAX}: write one with `openssl rand -hex 32`"
    )]
    Length {
        /// Path of the token file.
        path: String,
        /// Number of characters of the token.
        length: usize,
    },
    /// The token has a character that an HTTP header cannot carry.
    #[error(
        "the bearer token in {path} has the character {character:?}: use letters, digits and -._~+/="
    )]
    Character {
        /// Path of the token file.
        path: String,
        /// First character that is not allowed in a token.
        character: char,
    },
}

/// Minimum number of characters; shorter tokens can be guessed.
const LENGTH_MIN: usize = 16;

/// Maximum number of characters of a token.
const LENGTH_MAX: usize = 512;

/// The authentication scheme, which precedes the token.
const SCHEME: &str = "bearer";

impl BearerToken {
    /// Reads a token from a file; white space around it is ignored.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or does not contain a valid token.
    pub(super) fn read(file: &Path) -> Result<Self, TokenError> {
        let path = file.display().to_string();
        let unreadable = |source| TokenError::Unreadable { path: path.clone(), source };
        let text = fs::read_to_string(file).map_err(unreadable)?;
        let mode = fs::metadata(file).map(|file| file.mode()).unwrap_or_default();
        if mode & OTHERS_MAY_READ != 0 {
            warn!("http: every user can read the bearer token in {path}: run chmod 600 {path}");
        }
        Self::parse(&text, path)
    }

    /// Parses the content of a token file.
    fn parse(text: &str, path: String) -> Result<Self, TokenError> {
        let token = text.trim();
        let is_valid = |own: char| own.is_ascii_alphanumeric() || "-._~+/=".contains(own);
        if let Some(character) = token.chars().find(|own| !is_valid(*own)) {
            return Err(TokenError::Character { path, character });
        }
        match token.len() {
            LENGTH_MIN..=LENGTH_MAX => Ok(Self(token.to_owned())),
            length => Err(TokenError::Length { path, length }),
        }
    }

    /// Returns whether a request has exactly one token, and it is this token.
    pub(super) fn is_in(&self, headers: &HeaderMap) -> bool {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (values.next(), values.next()) else { return false };
        let Some((scheme, token)) = value.to_str().ok().and_then(|text| text.split_once(' '))
        else {
            return false;
        };
        scheme.eq_ignore_ascii_case(SCHEME) && is_same(token.trim(), &self.0)
    }
}

/// The mode bit by which all users may read a file.
const OTHERS_MAY_READ: u32 = 0o004;

/// Compares two texts in a time that depends only on their lengths.
fn is_same(given: &str, own: &str) -> bool {
    let differences = given.bytes().zip(own.bytes()).map(|(given, own)| given ^ own);
    given.len() == own.len() && differences.fold(0, |all, next| all | next) == 0
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    /// A valid token with all kinds of characters.
    const TOKEN: &str = "0123456789abcdef-._~+/=";

    /// Returns a valid token.
    fn token() -> BearerToken {
        BearerToken::parse(&format!(" {TOKEN}\n"), String::new()).ok().unwrap()
    }

    fn is_accepted(values: &[&[u8]]) -> bool {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        token().is_in(&headers)
    }

    #[test]
    fn only_the_whole_token_is_accepted() {
        let good = format!("Bearer {TOKEN}");
        assert!(is_accepted(&[good.as_bytes()]));
        assert!(is_accepted(&[format!("bEARER   {TOKEN}").as_bytes()]));
        let bad = [
            String::new(),
            TOKEN.to_owned(),
            "Bearer".to_owned(),
            "Bearer ".to_owned(),
            format!("Basic {TOKEN}"),
            format!("Bearer{TOKEN}"),
            format!("Bearer {}", &TOKEN[1..]),
            format!("Bearer {}", &TOKEN[..TOKEN.len() - 1]),
            format!("Bearer {TOKEN}0"),
            format!("Bearer {}", TOKEN.to_uppercase()),
            format!("Bearer {TOKEN}, Bearer {TOKEN}"),
            format!("Bearer \"{TOKEN}\""),
        ];
        for value in bad {
            assert!(!is_accepted(&[value.as_bytes()]), "{value}");
        }
        assert!(!is_accepted(&[]));
        assert!(!is_accepted(&[good.as_bytes(), good.as_bytes()]), "two headers");
        assert!(!is_accepted(&[b"Bearer \xff\xfe"]), "bytes that are no text");
    }

    #[test]
    fn a_weak_token_is_refused_with_the_rule() {
        let error = |text: &str| match BearerToken::parse(text, "/t".to_owned()) {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        assert!(error("").contains("has 0 characters, and must have 16 to 512"));
        assert!(error("short").contains("has 5 characters"));
        assert!(error(&"a".repeat(513)).contains("has 513 characters"));
        assert!(error("0123456789abcdef ghi").contains("the character ' '"));
        assert!(error("0123456789abcdef\u{e9}").contains("'\u{e9}'"));
        assert_eq!(error(&"a".repeat(16)), "");
    }
}

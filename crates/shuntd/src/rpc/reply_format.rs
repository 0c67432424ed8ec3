//! The format of replies that a client of the control socket has chosen.

use serde_json::{Value, json};

/// The format of the replies on one connection.
///
/// `ovs-appctl --format json` of Open vSwitch 3.4 and later sends `set-options` before its command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReplyFormat {
    /// The result is the text of the answer.
    #[default]
    Text,
    /// The result is a JSON object with the text of the answer.
    Json,
}

impl ReplyFormat {
    /// The method that chooses the format of a connection.
    pub(super) const METHOD: &'static str = "set-options";

    /// Parses the parameters of `set-options`.
    ///
    /// # Errors
    ///
    /// If they do not name a format.
    pub(super) fn parse(parameters: &[String]) -> Result<Self, String> {
        let words: Vec<&str> = parameters.iter().map(String::as_str).collect();
        let name = match words.as_slice() {
            ["--format", name] => *name,
            [word] => word.strip_prefix("--format=").unwrap_or(word),
            _ => "",
        };
        match name {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!(
                "set-options {}: the only option is the format of replies: use --format text or \
                 --format json",
                words.join(" ")
            )),
        }
    }

    /// Returns the result of a call with this answer.
    ///
    /// The object is that of Open vSwitch for a command that has no JSON of its own.
    pub(super) fn result(self, answer: String) -> Value {
        match self {
            Self::Text => Value::String(answer),
            Self::Json => json!({"reply-format": "plain", "reply": answer}),
        }
    }
}

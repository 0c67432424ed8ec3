//! The section `[http]` of the configuration file.

use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};
use shunt_switch::ConfigStep;
use shunt_tls::TlsFiles;

use crate::tls::WrongKey;

/// The options of the HTTP server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HttpOptions {
    /// Addresses to listen on, as `IP:PORT`; empty: there is no HTTP server.
    #[serde(deserialize_with = "one_or_more")]
    pub(crate) listen: Vec<String>,
    /// File with the bearer token of clients; empty: clients need no token.
    pub(crate) token_file: PathBuf,
    /// File with the private key of the server; empty: the server has no TLS.
    pub(crate) private_key: PathBuf,
    /// File with the certificate of the server.
    pub(crate) certificate: PathBuf,
    /// True if `/` is a live page of the switch (the window).
    pub(crate) window: bool,
}

/// The reason why the options cannot be used, with the wrong key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct HttpOptionsError {
    /// The path from the section to the wrong value.
    pub(crate) key: [ConfigStep; 3],
    /// Description of the mistake, and its correction.
    pub(crate) message: String,
}

impl HttpOptions {
    /// Returns the addresses to listen on.
    ///
    /// # Errors
    ///
    /// If a text is not an address, or an address that other hosts can reach has no bearer token.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, HttpOptionsError> {
        let address = |(index, text): (usize, &String)| {
            self.address(text).map_err(|message| {
                let key = [ConfigStep::Field("http"), ConfigStep::Field("listen")];
                HttpOptionsError { key: [key[0], key[1], ConfigStep::Index(index)], message }
            })
        };
        self.listen.iter().enumerate().map(address).collect()
    }

    /// Parses a listening address; a remote one needs a bearer token.
    fn address(&self, text: &str) -> Result<SocketAddr, String> {
        let address: SocketAddr = text.parse().map_err(|_| {
            format!(
                "`{text}` is not an address to listen on: write an IP address and a port, such as \
                 127.0.0.1:9475 or [::1]:9475"
            )
        })?;
        if address.ip().is_loopback() || self.has_token() {
            return Ok(address);
        }
        Err(format!(
            "{address} is reachable from other hosts, which needs a bearer token: set `token_file` to \
             a file with a token, or listen on 127.0.0.1"
        ))
    }

    /// Returns whether clients need a bearer token.
    pub(crate) fn has_token(&self) -> bool {
        self.token_file.as_path() != Path::new("")
    }

    /// Returns the key and the certificate of the server; `None` if it has no TLS.
    ///
    /// # Errors
    ///
    /// If only one of key and certificate is set.
    pub(crate) fn tls(&self) -> Result<Option<TlsFiles>, WrongKey> {
        let files = [&self.private_key, &self.certificate];
        match files.map(|file| file.as_os_str().is_empty()) {
            [true, true] => Ok(None),
            [false, false] => Ok(Some(TlsFiles {
                private_key: self.private_key.clone(),
                certificate: self.certificate.clone(),
                ca_certificate: None,
                bootstraps: false,
            })),
            _ => {
                let message = "TLS needs both `private_key` and `certificate` of [http]".to_owned();
                Err((message, vec![ConfigStep::Field("http")]))
            }
        }
    }

    /// Returns the keys with different values in `self` and `other`.
    pub(crate) fn keys_that_differ(&self, other: &Self) -> impl Iterator<Item = &'static str> {
        let keys = [
            ("http.listen", self.listen != other.listen),
            ("http.token_file", self.token_file != other.token_file),
            ("http.private_key", self.private_key != other.private_key),
            ("http.certificate", self.certificate != other.certificate),
            ("http.window", self.window != other.window),
        ];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key))
    }
}

/// Reads one text, or a list of texts.
fn one_or_more<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    struct Texts;

    impl<'de> Visitor<'de> for Texts {
        type Value = Vec<String>;

        fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str("an address in quotes, or a list of them in brackets")
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
            Ok(vec![text.to_owned()])
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
            Vec::deserialize(SeqAccessDeserializer::new(list))
        }
    }

    deserializer.deserialize_any(Texts)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the options of the HTTP server.
    fn options(text: &str) -> HttpOptions {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn one_address_needs_no_brackets() {
        let one = options("listen = '127.0.0.1:9475'");
        assert_eq!(one, options("listen = ['127.0.0.1:9475']"));
        assert_eq!(one.addresses().unwrap(), ["127.0.0.1:9475".parse::<SocketAddr>().unwrap()]);
        assert!(toml::from_str::<HttpOptions>("listen = 9475").is_err());
        assert!(options("").addresses().unwrap().is_empty());
    }

    #[test]
    fn only_loopback_needs_no_token() {
        for address in ["127.0.0.1:1", "127.9.9.9:1", "[::1]:1"] {
            assert!(options(&format!("listen = '{address}'")).addresses().is_ok(), "{address}");
        }
        for address in ["0.0.0.0:1", "192.0.2.1:1", "[::]:1", "[::ffff:127.0.0.1]:1"] {
            let error = options(&format!("listen = ['[::1]:1', '{address}']")).addresses();
            let error = error.unwrap_err();
            assert!(error.message.contains("set `token_file`"), "{}", error.message);
            assert_eq!(error.key[2], ConfigStep::Index(1));
            let text = format!("listen = '{address}'\ntoken_file = '/t'");
            assert!(options(&text).addresses().is_ok(), "{address}");
        }
    }

    #[test]
    fn a_text_that_is_no_address_is_refused() {
        for text in ["localhost:9475", "127.0.0.1", ":9475", "127.0.0.1:99999", ""] {
            let error = options(&format!("listen = '{text}'")).addresses().unwrap_err();
            assert!(error.message.contains("is not an address to listen on"), "{text}");
        }
    }
}

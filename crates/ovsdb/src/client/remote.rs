//! The address of a server (`ovsdb(7)`, section "Connection Methods").

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    str::FromStr,
};

use thiserror::Error;

/// The address of a server that a client connects to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OvsdbRemote {
    /// The address of a Unix socket: `unix:FILE`.
    Unix(PathBuf),
    /// The address of a TCP port: `tcp:IP[:PORT]`.
    Tcp(SocketAddr),
    /// A TCP port with TLS: `ssl:IP[:PORT]`.
    Tls(SocketAddr),
}

/// A text that is not an address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum InvalidRemote {
    /// An address on which a server listens, such as `ptcp:`.
    #[error(
        "`{0}` is an address to listen on: use unix:FILE, tcp:IP:PORT or ssl:IP:PORT of the server"
    )]
    Passive(String),
    /// A text in no known form of an address.
    #[error("`{0}` is not the address of a database: use unix:FILE, tcp:IP:PORT or ssl:IP:PORT")]
    Other(String),
}

/// The TCP port of an OVSDB server (RFC 7047, section 7).
const PORT: u16 = 6640;

impl FromStr for OvsdbRemote {
    type Err = InvalidRemote;

    fn from_str(text: &str) -> Result<Self, InvalidRemote> {
        let other = || InvalidRemote::Other(text.to_owned());
        match text.split_once(':') {
            Some(("unix", path)) if Path::new(path).is_absolute() => Ok(Self::Unix(path.into())),
            Some(("tcp", address)) => socket_address(address).map(Self::Tcp).ok_or_else(other),
            Some(("ssl", address)) => socket_address(address).map(Self::Tls).ok_or_else(other),
            Some(("punix" | "ptcp" | "pssl", _)) => Err(InvalidRemote::Passive(text.to_owned())),
            _ => Err(other()),
        }
    }
}

impl fmt::Display for OvsdbRemote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
            Self::Tls(address) => write!(f, "ssl:{address}"),
        }
    }
}

/// Parses `IP[:PORT]`. An IPv6 address has brackets if a port follows.
fn socket_address(text: &str) -> Option<SocketAddr> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then_some(address);
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let ip = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().map(IpAddr::V6),
        None => text.parse::<IpAddr>(),
    };
    ip.ok().map(|ip| SocketAddr::new(ip, PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_through_text() {
        for (text, shown) in [
            ("unix:/run/openvswitch/db.sock", "unix:/run/openvswitch/db.sock"),
            ("tcp:192.0.2.1", "tcp:192.0.2.1:6640"),
            ("tcp:192.0.2.1:7000", "tcp:192.0.2.1:7000"),
            ("tcp:[2001:db8::1]", "tcp:[2001:db8::1]:6640"),
            ("tcp:[2001:db8::1]:1", "tcp:[2001:db8::1]:1"),
            ("ssl:192.0.2.1", "ssl:192.0.2.1:6640"),
            ("ssl:[2001:db8::1]:1", "ssl:[2001:db8::1]:1"),
        ] {
            let remote: OvsdbRemote = text.parse().unwrap();
            assert_eq!(remote.to_string(), shown);
            assert_eq!(shown.parse(), Ok(remote));
        }
    }

    #[test]
    fn other_texts_are_refused_with_a_correction() {
        for (text, words) in [
            ("pssl:6640", "an address to listen on"),
            ("punix:/run/db.sock", "an address to listen on"),
            ("unix:db.sock", "not the address of a database"),
            ("ssl:localhost", "not the address of a database"),
            ("tcp:localhost", "not the address of a database"),
            ("tcp:192.0.2.1:0", "not the address of a database"),
            ("/run/db.sock", "not the address of a database"),
            ("", "not the address of a database"),
        ] {
            let error = text.parse::<OvsdbRemote>().unwrap_err().to_string();
            assert!(error.contains(words) && error.contains("use unix:FILE"), "{error}");
        }
    }
}

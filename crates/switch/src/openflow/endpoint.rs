//! Addresses of controllers, as Open vSwitch spells them.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use thiserror::Error;

/// The port that OpenFlow has at IANA.
const OPENFLOW_PORT: u16 = 6653;

/// Where a controller is, or where controllers may connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `tcp:IP[:PORT]`: connect there.
    Connect(SocketAddr),
    /// `ptcp:[PORT][:IP]`: listen there.
    Listen(SocketAddr),
}

/// Why a text is not an address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The scheme is not one of those that exist.
    #[error("`{0}` begins with neither `tcp:` nor `ptcp:`; write tcp:IP:PORT or ptcp:PORT:IP")]
    Scheme(String),
    /// The address is not one.
    #[error("`{text}` is not {wanted}")]
    Address {
        /// What was written.
        text: String,
        /// What it should look like.
        wanted: &'static str,
    },
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        if let Some(rest) = text.strip_prefix("tcp:") {
            return connect(rest).map(Self::Connect).ok_or_else(|| EndpointError::Address {
                text: text.to_owned(),
                wanted: "an address like tcp:127.0.0.1:6653 or tcp:[::1]:6653",
            });
        }
        if let Some(rest) = text.strip_prefix("ptcp:") {
            return listen(rest).map(Self::Listen).ok_or_else(|| EndpointError::Address {
                text: text.to_owned(),
                wanted: "an address like ptcp:6653 or ptcp:6653:127.0.0.1",
            });
        }
        Err(EndpointError::Scheme(text.to_owned()))
    }
}

fn connect(text: &str) -> Option<SocketAddr> {
    let without_port = || text.parse::<IpAddr>().ok().map(|ip| (ip, OPENFLOW_PORT).into());
    text.parse().ok().or_else(without_port)
}

fn listen(text: &str) -> Option<SocketAddr> {
    let (port, ip) = text.split_once(':').unwrap_or((text, ""));
    let port = if port.is_empty() { OPENFLOW_PORT } else { port.parse().ok()? };
    let ip = if ip.is_empty() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED)
    } else {
        ip.trim_start_matches('[').trim_end_matches(']').parse().ok()?
    };
    Some((ip, port).into())
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(address) => write!(f, "tcp:{address}"),
            Self::Listen(address) => write!(f, "ptcp:{}:{}", address.port(), address.ip()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let shown = text.parse::<Endpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(shown.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn addresses_are_read_as_open_vswitch_reads_them() {
        check("tcp:127.0.0.1:6633", "tcp:127.0.0.1:6633");
        check("tcp:127.0.0.1", "tcp:127.0.0.1:6653");
        check("tcp:[::1]:6633", "tcp:[::1]:6633");
        check("ptcp:", "ptcp:6653:0.0.0.0");
        check("ptcp:6634", "ptcp:6634:0.0.0.0");
        check("ptcp:6634:10.66.0.2", "ptcp:6634:10.66.0.2");
        check("ptcp:6634:[::1]", "ptcp:6634:::1");
    }

    #[test]
    fn an_address_that_is_none_says_what_one_looks_like() {
        check(
            "ssl:1.2.3.4",
            "`ssl:1.2.3.4` begins with neither `tcp:` nor `ptcp:`; write tcp:IP:PORT or ptcp:PORT:IP",
        );
        check(
            "tcp:localhost",
            "`tcp:localhost` is not an address like tcp:127.0.0.1:6653 or tcp:[::1]:6653",
        );
        check("ptcp:x", "`ptcp:x` is not an address like ptcp:6653 or ptcp:6653:127.0.0.1");
    }
}

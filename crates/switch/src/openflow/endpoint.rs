//! Addresses of controllers, in the syntax of Open vSwitch.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    str::FromStr,
};

use thiserror::Error;

/// Port of OpenFlow, assigned by IANA.
const OPENFLOW_PORT: u16 = 6653;

/// The address of a controller, or an address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControllerEndpoint {
    /// `tcp:IP[:PORT]`: connects to a controller.
    Connect(SocketAddr),
    /// `ptcp:[PORT][:IP]`: listens for controllers.
    Listen(SocketAddr),
}

/// A reason why a text is not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The scheme is not supported.
    #[error(
        "`{0}` begins with neither `tcp:` nor `ptcp:`: write tcp:IP:PORT or ptcp:PORT:IP (TLS is not supported)"
    )]
    Scheme(String),
    /// The address is not valid.
    #[error("`{text}` is not {wanted}")]
    Address {
        /// The text.
        text: String,
        /// Description of a valid address.
        wanted: &'static str,
    },
}

impl FromStr for ControllerEndpoint {
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

impl fmt::Display for ControllerEndpoint {
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
        let shown = text.parse::<ControllerEndpoint>().map(|endpoint| endpoint.to_string());
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
    fn an_invalid_address_shows_a_valid_one() {
        check(
            "ssl:1.2.3.4",
            "`ssl:1.2.3.4` begins with neither `tcp:` nor `ptcp:`: write tcp:IP:PORT or ptcp:PORT:IP (TLS is not supported)",
        );
        check(
            "tcp:localhost",
            "`tcp:localhost` is not an address like tcp:127.0.0.1:6653 or tcp:[::1]:6653",
        );
        check("ptcp:x", "`ptcp:x` is not an address like ptcp:6653 or ptcp:6653:127.0.0.1");
    }
}

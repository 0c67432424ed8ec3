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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControllerEndpoint {
    /// `tcp:IP[:PORT]` or `ssl:IP[:PORT]`: connects to a controller.
    Connect(ControllerTransport, SocketAddr),
    /// `ptcp:[PORT][:IP]` or `pssl:[PORT][:IP]`: listens for controllers.
    Listen(ControllerTransport, SocketAddr),
}

/// The transport protocol below OpenFlow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ControllerTransport {
    /// OpenFlow over TCP, without TLS.
    Tcp,
    /// OpenFlow over TLS.
    Tls,
}

/// The reason why a text is not the address of a controller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EndpointError {
    /// The scheme of the address is unknown.
    #[error(
        "`{0}` begins with none of `tcp:`, `ssl:`, `ptcp:` and `pssl:`: write tcp:IP:PORT or \
         ptcp:PORT:IP"
    )]
    Scheme(String),
    /// The address listens in a list of addresses to connect to, or vice versa.
    #[error("`{text}`: `{list}` takes {wanted}")]
    Direction {
        /// The text of the address.
        text: String,
        /// Configuration key of the list.
        list: &'static str,
        /// The form of the addresses of the list.
        wanted: &'static str,
    },
    /// The address of a controller has port 0.
    #[error(
        "`{0}` has port 0, on which no controller listens: use a port from 1 to 65535, such as \
         {port}",
        port = OPENFLOW_PORT
    )]
    NoPort(String),
    /// The list already has the address.
    #[error("`{0}` is given twice: remove one of them")]
    Repeated(String),
    /// The IP address or port is not valid.
    #[error("`{text}` is not {wanted}")]
    Address {
        /// The text of the address.
        text: String,
        /// Description of a valid address.
        wanted: &'static str,
    },
}

impl FromStr for ControllerEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let wrong = |wanted| EndpointError::Address { text: text.to_owned(), wanted };
        let connect = |transport, rest, wanted| match connect(rest) {
            Some(address) if address.port() == 0 => Err(EndpointError::NoPort(text.to_owned())),
            Some(address) => Ok(Self::Connect(transport, address)),
            None => Err(wrong(wanted)),
        };
        let (scheme, rest) = text.split_once(':').unwrap_or((text, ""));
        match scheme {
            "tcp" => connect(
                ControllerTransport::Tcp,
                rest,
                "an address like tcp:127.0.0.1:6653 or tcp:[::1]:6653",
            ),
            "ssl" => connect(
                ControllerTransport::Tls,
                rest,
                "an address like ssl:192.0.2.1:6653 or ssl:[2001:db8::1]:6653",
            ),
            "ptcp" => listen(rest)
                .map(|address| Self::Listen(ControllerTransport::Tcp, address))
                .ok_or_else(|| wrong("an address like ptcp:6653 or ptcp:6653:127.0.0.1")),
            "pssl" => listen(rest)
                .map(|address| Self::Listen(ControllerTransport::Tls, address))
                .ok_or_else(|| wrong("an address like pssl:6653 or pssl:6653:192.0.2.1")),
            _ => Err(EndpointError::Scheme(text.to_owned())),
        }
    }
}

/// A list of addresses in the configuration of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndpointList {
    /// Controllers to connect to.
    Controllers,
    /// Addresses to listen on.
    Listen,
}

impl EndpointList {
    /// Returns the key of this list in the configuration file.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Controllers => "controllers",
            Self::Listen => "listen",
        }
    }

    /// Parses an address of this list.
    ///
    /// The scheme is checked first: for a wrong scheme, the message shows the form of a valid
    /// address.
    pub(crate) fn parse(self, text: &str) -> Result<ControllerEndpoint, EndpointError> {
        let (other_schemes, wanted) = match self {
            Self::Controllers => (["ptcp:", "pssl:"], "tcp:IP:PORT, such as tcp:127.0.0.1:6653"),
            Self::Listen => (["tcp:", "ssl:"], "ptcp:PORT, such as ptcp:6653"),
        };
        if other_schemes.iter().any(|scheme| text.starts_with(scheme)) {
            let (text, list) = (text.to_owned(), self.key());
            return Err(EndpointError::Direction { text, list, wanted });
        }
        text.parse()
    }
}

impl ControllerTransport {
    /// Returns the scheme of addresses to connect to with this transport.
    const fn scheme(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "ssl",
        }
    }
}

/// Parses the address of a controller; the port may be absent.
fn connect(text: &str) -> Option<SocketAddr> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let without_port = || {
        let ip = bracketed.unwrap_or(text).parse::<IpAddr>().ok()?;
        Some((ip, OPENFLOW_PORT).into())
    };
    text.parse().ok().or_else(without_port)
}

/// Parses the address of a listener.
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
            Self::Connect(transport, address) => write!(f, "{}:{address}", transport.scheme()),
            Self::Listen(transport, address) => {
                write!(f, "p{}:{}:{}", transport.scheme(), address.port(), address.ip())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the parsed form of an address, or the error.
    fn check(text: &str, expected: &str) {
        let shown = text.parse::<ControllerEndpoint>().map(|endpoint| endpoint.to_string());
        assert_eq!(shown.unwrap_or_else(|error| error.to_string()), expected);
    }

    #[test]
    fn addresses_are_read_as_open_vswitch_reads_them() {
        check("tcp:127.0.0.1:6633", "tcp:127.0.0.1:6633");
        check("tcp:127.0.0.1", "tcp:127.0.0.1:6653");
        check("tcp:[::1]:6633", "tcp:[::1]:6633");
        check("tcp:[::1]", "tcp:[::1]:6653");
        check("ssl:192.0.2.1", "ssl:192.0.2.1:6653");
        check("ssl:[::1]:6654", "ssl:[::1]:6654");
        check("pssl:", "pssl:6653:0.0.0.0");
        check("pssl:6654:10.66.0.2", "pssl:6654:10.66.0.2");
        check("ptcp:", "ptcp:6653:0.0.0.0");
        check("ptcp:6634", "ptcp:6634:0.0.0.0");
        check("ptcp:6634:10.66.0.2", "ptcp:6634:10.66.0.2");
        check("ptcp:6634:[::1]", "ptcp:6634:::1");
    }

    #[test]
    fn an_invalid_address_shows_a_valid_one() {
        check(
            "udp:1.2.3.4",
            "`udp:1.2.3.4` begins with none of `tcp:`, `ssl:`, `ptcp:` and `pssl:`: write \
             tcp:IP:PORT or ptcp:PORT:IP",
        );
        check(
            "ssl:localhost",
            "`ssl:localhost` is not an address like ssl:192.0.2.1:6653 or ssl:[2001:db8::1]:6653",
        );
        check(
            "tcp:192.0.2.1:0",
            "`tcp:192.0.2.1:0` has port 0, on which no controller listens: use a port from 1 to \
             65535, such as 6653",
        );
        check("ptcp:0", "ptcp:0:0.0.0.0");
        check("pssl:x", "`pssl:x` is not an address like pssl:6653 or pssl:6653:192.0.2.1");
        check(
            "tcp:localhost",
            "`tcp:localhost` is not an address like tcp:127.0.0.1:6653 or tcp:[::1]:6653",
        );
        let in_list = |list: EndpointList, text: &str| list.parse(text).unwrap_err().to_string();
        // `tcp:6653` is also no valid address, but the error names the wrong scheme.
        assert_eq!(
            in_list(EndpointList::Listen, "tcp:6653"),
            "`tcp:6653`: `listen` takes ptcp:PORT, such as ptcp:6653"
        );
        assert_eq!(
            in_list(EndpointList::Listen, "ssl:6653"),
            "`ssl:6653`: `listen` takes ptcp:PORT, such as ptcp:6653"
        );
        assert_eq!(
            in_list(EndpointList::Controllers, "ptcp:x"),
            "`ptcp:x`: `controllers` takes tcp:IP:PORT, such as tcp:127.0.0.1:6653"
        );
        check("ptcp:x", "`ptcp:x` is not an address like ptcp:6653 or ptcp:6653:127.0.0.1");
    }
}

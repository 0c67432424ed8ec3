//! Names of ports, which only a bridge knows.

use crate::PortNo;

/// The names of the ports of a bridge.
pub trait PortNames {
    /// The number of the port called `name`.
    fn number(&self, name: &str) -> Option<PortNo>;

    /// The name of a port.
    fn name(&self, port: PortNo) -> Option<String>;
}

/// No port has a name: ports are numbers, or the reserved ones.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoPortNames;

impl PortNames for NoPortNames {
    fn number(&self, _: &str) -> Option<PortNo> {
        None
    }

    fn name(&self, _: PortNo) -> Option<String> {
        None
    }
}

/// Reads a port: a number, a reserved name, a name in quotes or without.
///
/// Only quotes make a name of what is a number or a reserved name.
#[must_use]
pub fn parse_port(text: &str, ports: &dyn PortNames) -> Option<PortNo> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        Some(name) => ports.number(name),
        None => PortNo::parse(text).or_else(|| ports.number(text)),
    }
}

/// Writes a port by its name if it has one, in quotes where the name could be misread.
#[must_use]
pub fn format_port(port: PortNo, ports: &dyn PortNames) -> String {
    match ports.name(port) {
        Some(name) if is_plain(&name) => name,
        Some(name) => format!("\"{name}\""),
        None => port.to_string(),
    }
}

fn is_plain(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts_plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_plain && name.chars().all(inner) && PortNo::parse(name).is_none()
}

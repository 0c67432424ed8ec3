//! Names of ports, which belong to a bridge.

use crate::PortNo;

/// The names of the ports of a bridge.
pub trait PortNames {
    /// Returns the number of the port with this name.
    fn number(&self, name: &str) -> Option<PortNo>;

    /// Returns the name of a port.
    fn name(&self, port: PortNo) -> Option<String>;
}

/// A bridge without port names: ports are numbers or reserved names.
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

/// Parses a port: a number, a reserved name, or a name with or without quotes.
///
/// A name that looks like a number or a reserved name needs quotes.
#[must_use]
pub fn parse_port(text: &str, ports: &dyn PortNames) -> Option<PortNo> {
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    match quoted {
        Some(name) => ports.number(name),
        None => PortNo::parse(text).or_else(|| ports.number(text)),
    }
}

/// Writes a port by its name if it has one.
/// The name is in quotes unless it is an identifier and no reserved name.
#[must_use]
pub fn format_port(port: PortNo, ports: &dyn PortNames) -> String {
    match ports.name(port) {
        Some(name) if is_plain(&name) => name,
        Some(name) => format!("\"{name}\""),
        None => port.to_string(),
    }
}

/// Returns whether a port name needs no quotes.
fn is_plain(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let starts_plain = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_plain && name.chars().all(inner) && PortNo::parse(name).is_none()
}

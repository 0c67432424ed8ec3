//! `key=value` words of the command line.

use shunt_switch::config::{Port, PortType, Repeat};

use crate::config::distance;

/// Keys of a port on the command line.
const PORT_KEYS: &[&str] = &["type", "number", "device", "rx", "tx", "repeat", "peer"];

const PORT_TYPES: &[(&str, PortType)] = &[
    ("null", PortType::Null),
    ("pcap", PortType::Pcap),
    ("patch", PortType::Patch),
    ("af_packet", PortType::AfPacket),
    ("tap", PortType::Tap),
];

/// A port out of `name` and words like `type=patch peer=p2`.
///
/// # Errors
///
/// When a word is not `key=value`, or its key or value is unknown; the nearest is named.
pub(crate) fn port(name: &str, words: &[String]) -> Result<Port, String> {
    let mut port = Port { name: name.to_owned(), kind: PortType::AfPacket, ..Port::default() };
    for word in words {
        let (key, value) = split(word)?;
        match key {
            "type" => port.kind = port_type(value)?,
            "number" => {
                let wrong = |_| format!("number={value}: a port number is decimal");
                port.number = value.parse().map_err(wrong)?;
            }
            "device" => value.clone_into(&mut port.device),
            "rx" => port.rx = value.into(),
            "tx" => port.tx = value.into(),
            "repeat" => port.repeat = repeat(value)?,
            "peer" => value.clone_into(&mut port.peer),
            _ => return Err(unknown("key", key, PORT_KEYS)),
        }
    }
    Ok(port)
}

/// Splits `key=value`.
pub(crate) fn split(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| format!("`{word}` is not KEY=VALUE"))
}

/// What to say of a word that is none of those known.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let nearest = known.iter().min_by_key(|other| distance(word, other)).copied();
    let near = nearest.filter(|other| distance(word, other) <= word.len().div_ceil(2));
    match near {
        Some(nearest) => format!("unknown {what} `{word}`: did you mean `{nearest}`?"),
        None => format!("unknown {what} `{word}`: there are {}", known.join(", ")),
    }
}

fn port_type(value: &str) -> Result<PortType, String> {
    let found = PORT_TYPES.iter().find(|(name, _)| *name == value);
    let names: Vec<&str> = PORT_TYPES.iter().map(|(name, _)| *name).collect();
    found.map(|(_, kind)| *kind).ok_or_else(|| unknown("port type", value, &names))
}

fn repeat(value: &str) -> Result<Repeat, String> {
    match value {
        "once" => Ok(Repeat::Once),
        "endless" => Ok(Repeat::Endless),
        _ => Err(unknown("value of repeat", value, &["once", "endless"])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_port_is_read_from_words() {
        let port = port("in", &words("type=pcap rx=a.pcap repeat=endless number=4")).unwrap();
        assert_eq!((port.kind, port.repeat, port.number), (PortType::Pcap, Repeat::Endless, 4));
        assert_eq!(port.rx.to_str(), Some("a.pcap"));
    }

    #[test]
    fn a_misspelled_word_is_answered_with_the_nearest() {
        let complaint = |text: &str| port("x", &words(text)).unwrap_err();
        assert_eq!(complaint("tpye=null"), "unknown key `tpye`: did you mean `type`?");
        assert_eq!(complaint("type=nul"), "unknown port type `nul`: did you mean `null`?");
        assert!(complaint("type=zzzzzzzz").contains("there are null, pcap"));
        assert_eq!(complaint("null"), "`null` is not KEY=VALUE");
    }
}

//! The BFD session of a port from the rows of an OVSDB database, and its status as a column.

use shunt_ovsdb::{RowView, value::Datum};
use shunt_switch::{BridgePortStatus, config::BfdOptions, with_causes};

/// The keys of the column `bfd`, each with the key of the configuration.
const KEYS: [(&str, &str); 13] = [
    ("bfd_dst_ip", "dst_ip"),
    ("bfd_local_dst_mac", "local_dst_mac"),
    ("bfd_local_src_mac", "local_src_mac"),
    ("bfd_remote_dst_mac", "remote_dst_mac"),
    ("bfd_src_ip", "src_ip"),
    ("check_tnl_key", "check_tnl_key"),
    ("cpath_down", "cpath_down"),
    ("forwarding_if_rx", "forwarding_if_rx"),
    ("min_rx", "min_rx_ms"),
    // The least value of `decay_min_rx` is the value of `min_rx`.
    ("decay_min_rx", "decay_min_rx_ms"),
    ("min_tx", "min_tx_ms"),
    ("mult", "mult"),
    ("oam", "oam"),
];

/// Reads the BFD session of a row of `Interface`; `None` if the row has none.
///
/// The function also returns the reasons of ignored keys: such a key has its default, as in Open
/// vSwitch.
pub(super) fn bfd(interface: RowView<'_>) -> (Option<BfdOptions>, Vec<String>) {
    let entries = interface.string_map("bfd");
    if !entries.get("enable").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return (None, Vec::new());
    }
    let mut options = BfdOptions::default();
    let mut reasons = Vec::new();
    for (key, own) in KEYS {
        let Some(value) = entries.get(key).copied() else { continue };
        // As in Open vSwitch, 0 is replaced by the least interval, one millisecond.
        let is_zero = own.ends_with("_ms") && own != "decay_min_rx_ms" && value == "0";
        let value = if is_zero { "1" } else { value };
        let mut changed = options.clone();
        let set = changed.set(own, value).map_err(|error| with_causes(&error));
        match set.and_then(|_| changed.check().map_err(str::to_owned)) {
            Ok(()) => options = changed,
            Err(problem) => {
                reasons.push(format!("bfd:{key} has no effect: {}", with_column_keys(&problem)));
            }
        }
    }
    for key in entries.keys() {
        if *key != "enable" && !KEYS.iter().any(|(known, _)| known == key) {
            reasons.push(format!("bfd:{key} has no effect: Shunt does not have this key"));
        }
    }
    (Some(options), reasons)
}

/// Returns a text with keys of the column instead of keys of the configuration.
fn with_column_keys(text: &str) -> String {
    let renamed = KEYS.iter().filter(|(key, own)| key != own);
    renamed.fold(text.to_owned(), |text, (key, own)| text.replace(own, key))
}

/// Returns the column `bfd_status` of a port, empty without a session.
pub(super) fn bfd_status(port: Option<&BridgePortStatus>) -> Datum {
    let Some(status) = port.and_then(|port| port.bfd) else { return Datum::string_map([]) };
    let own = status.session;
    let flap_count = own.flap_count.to_string();
    Datum::string_map([
        ("diagnostic", own.diagnostic.text()),
        ("flap_count", flap_count.as_str()),
        ("forwarding", if own.forwarding { "true" } else { "false" }),
        ("remote_diagnostic", own.remote.diagnostic.text()),
        ("remote_state", own.remote.state.name()),
        ("state", own.state.name()),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_keys_of_the_column() {
        let mut options = BfdOptions::default();
        let error = options.set("min_rx_ms", "-3").map_err(|error| with_causes(&error));
        assert_eq!(
            with_column_keys(&error.unwrap_err()),
            "min_rx = -3: it must be a number of milliseconds, at most 4294967"
        );
        options.decay_min_rx_ms = 1;
        assert_eq!(
            with_column_keys(options.check().unwrap_err()),
            "`decay_min_rx` of `bfd` must be 0, or from `min_rx` to 4294967"
        );
        options = BfdOptions { local_dst_mac: "zz".to_owned(), ..BfdOptions::default() };
        assert_eq!(
            with_column_keys(options.check().unwrap_err()),
            "`bfd_local_src_mac`, `bfd_local_dst_mac` and `bfd_remote_dst_mac` of `bfd` must be \
             MAC addresses, like 02:00:00:00:00:01"
        );
    }
}

//! MAC addresses as text.

use crate::error::SwitchError;

/// Parses a unicast MAC address: six octets with colons.
///
/// # Errors
///
/// If the text is anything else; the error contains the name of the setting.
pub(crate) fn parse_mac(setting: &'static str, text: &str) -> Result<[u8; 6], SwitchError> {
    let octets = parse_any_mac(text);
    // No port has an address with the group bit or an address of zeros (IEEE 802).
    let usable = octets.filter(|octets| octets[0] & 1 == 0 && *octets != [0; 6]);
    usable.ok_or_else(|| SwitchError::Range {
        setting,
        value: text.to_owned(),
        range: "six octets of a unicast address, like 02:00:00:00:00:01",
    })
}

/// Parses any MAC address, also a group address: six octets with colons.
#[must_use]
pub fn parse_any_mac(text: &str) -> Option<[u8; 6]> {
    let is_hexadecimal = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Number parsing would also accept a sign.
    let octet = |text: &str| u8::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal(text));
    let octets: Option<Vec<u8>> = text.split(':').map(octet).collect();
    octets.and_then(|octets| <[u8; 6]>::try_from(octets).ok())
}

/// Returns the text of a MAC address.
#[must_use]
pub fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_unicast_mac_addresses_are_accepted() {
        let read = |text| parse_mac("mac", text).ok();
        assert_eq!(read("02:0a:ff:00:1:2"), Some([2, 0xa, 0xff, 0, 1, 2]));
        let address = [2, 0, 0, 0, 0xab, 1];
        let text = mac_text(address);
        assert_eq!(read(&text), Some(address));
        for wrong in [
            "",
            "zz",
            "02:00:00:00:00",
            "02:00:00:00:00:00:01",
            "02:00:00:00:00:+1",
            "02::00:00:00:01",
            "01:00:00:00:00:01",
            "00:00:00:00:00:00",
        ] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
    }
}

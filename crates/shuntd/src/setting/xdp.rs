//! Settings of `af_xdp` ports.

use shunt_switch::config::XdpMode;

use super::unknown;

/// Parses the mode of an `af_xdp` port.
pub(super) fn xdp_mode(value: &str) -> Result<XdpMode, String> {
    let known = XdpMode::ALL.map(XdpMode::name);
    let found = XdpMode::ALL.into_iter().find(|mode| mode.name() == value);
    found.ok_or_else(|| unknown("value of xdp_mode", value, &known))
}

/// Parses the time of `busy_poll_us`.
pub(super) fn busy_poll_us(value: &str) -> Result<u32, String> {
    let wrong = |_| format!("busy_poll_us={value}: a time is 1 to 10000 microseconds, or 0");
    value.parse().map_err(wrong)
}

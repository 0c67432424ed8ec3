//! Checks of header lengths against the frame length.
//!
//! A packet that claims to be longer than its frame, or is too short for its transport header, has
//! no such header in a flow key. The bytes at that position are padding, or missing. The parser
//! cannot check lengths, so the control block refuses packets with wrong lengths. `meta.left` is
//! the number of bytes after the link header, and after the network header the payload length that
//! the packet states.

use serde_json::Value;

use super::{
    bmv2::meta,
    graph::Graph,
    primitives::{assign, field, hex, op, valid},
};

/// Adds the length checks, which continue with `wrong` or `right`.
pub(super) fn check_lengths(graph: &mut Graph, wrong: &str, right: &str) {
    let left = meta("left");
    let is_within = |bytes: &Value| op(">=", &left, bytes);
    let is_at_least = |value: &Value, least| op(">=", value, &hex(least));

    let length = field("ipv4", "length");
    graph.branch("has_ipv4", &valid("ipv4"), "is_long_ipv4", Some("has_ipv6"));
    graph.branch("is_long_ipv4", &is_at_least(&length, 20), "is_whole_ipv4", Some(wrong));
    graph.branch("is_whole_ipv4", &is_within(&length), "enter_ipv4", Some(wrong));
    let inside = assign(&left, &op("-", &length, &hex(20)));
    graph.step("enter_ipv4", &[inside], Some("has_tcp"));

    let length = field("ipv6", "length");
    let whole = op("+", &length, &hex(40));
    graph.branch("has_ipv6", &valid("ipv6"), "is_whole_ipv6", Some(right));
    graph.branch("is_whole_ipv6", &is_within(&whole), "enter_ipv6", Some(wrong));
    graph.step("enter_ipv6", &[assign(&left, &length)], Some("has_tcp"));

    let words = field("tcp", "data_offset");
    graph.branch("has_tcp", &valid("tcp"), "is_long_tcp", Some("has_udp"));
    graph.branch("is_long_tcp", &is_at_least(&words, 5), "is_whole_tcp", Some(wrong));
    let whole = op("<<", &words, &hex(2));
    graph.branch("is_whole_tcp", &is_within(&whole), right, Some(wrong));

    graph.branch("has_udp", &valid("udp"), "is_whole_short", Some("has_icmp"));
    graph.branch("has_icmp", &valid("icmp"), "is_whole_short", Some(right));
    graph.branch("is_whole_short", &is_at_least(&left, 8), right, Some(wrong));
}

//! Tests streams in VXLAN between two hosts: the kernels pack, unpack and check the packets.

use shunt_datapath::port::Port;

use crate::{
    in_namespace, ip, packet_port, run_ip,
    streams::{Host, STREAM, Seen, moved, stream_to, switch},
    tap_port,
};

/// The address of the server in the tunnel.
const SERVER: &str = "10.9.0.2:5001";
/// Bytes of payload of a segment in the tunnel.
const SEGMENT: usize = 1398;

/// The UDP checksums of the tunnel.
const CHECKSUMS: [&str; 2] = ["udpcsum", "noudpcsum"];

/// The device of a host, and its port.
struct End {
    device: &'static str,
    port: Box<dyn Port>,
}

/// Returns a TAP.
fn tap(device: &'static str) -> End {
    End { device, port: tap_port(device) }
}

/// Returns a cable with a port at its end `port`.
fn cable(device: &'static str, port: &'static str) -> End {
    ip(&format!("link add {device} type veth peer name {port}"));
    ip(&format!("link set {port} up"));
    End { device, port: packet_port(port) }
}

/// Adds a VXLAN device to the host of the underlay address `local`.
fn add_tunnel(device: &str, [local, remote]: [u8; 2], checksum: &str) {
    let tunnel = format!("id 7 remote 10.0.0.{remote} dstport 4789 dev {device} {checksum}");
    ip(&format!("link add vx0 type vxlan {tunnel}"));
    ip(&format!("addr add 10.9.0.{local}/24 dev vx0"));
    ip("link set vx0 up");
}

#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn skip(why: &str) {
    eprintln!("skipped: {why}");
}

/// Returns whether the kernel has VXLAN devices.
fn has_vxlan() -> bool {
    let has = run_ip("link add vx9 type vxlan id 9 dstport 4789").status.success();
    if !has {
        skip("the kernel has no VXLAN devices");
    }
    has
}

/// Runs a stream in a tunnel from the first end to the second.
fn stream(mut ends: [End; 2], checksum: &'static str) -> Seen {
    let (client, server) = stream_to(SERVER);
    let [from, to] = [ends[0].device, ends[1].device];
    let client = move || {
        add_tunnel(from, [1, 2], checksum);
        client()
    };
    let server = move || {
        add_tunnel(to, [2, 1], checksum);
        server()
    };
    let hosts = [
        Host::new(from, "10.0.0.1", moved(from), client),
        Host::new(to, "10.0.0.2", moved(to), server),
    ];
    let [first, second] = &mut ends;
    let seen = switch([&mut first.port, &mut second.port], &hosts, |own| own);
    assert_eq!(seen.answers, [STREAM, STREAM], "{seen:?}");
    assert!(seen.tunnelled > 0 && seen.refused == 0, "{seen:?}");
    seen
}

/// Returns whether the kernel takes packets in tunnels from a TAP.
fn knows_tunnels(end: &End) -> bool {
    let knows = end.port.capabilities().tx_tunnel_segmentation;
    if !knows {
        skip("a TAP has no UDP tunnel offload before Linux 6.17");
    }
    knows
}

#[test]
fn vxlan_stream_crosses_two_taps_whole() {
    for checksum in CHECKSUMS {
        in_namespace(move || {
            let ends = [tap("tap0"), tap("tap1")];
            if has_vxlan() && knows_tunnels(&ends[0]) {
                let seen = stream(ends, checksum);
                assert_eq!(seen.finished, seen.packets, "no packet is segmented: {seen:?}");
                assert!(seen.packets < STREAM / SEGMENT, "{seen:?}");
            }
        });
    }
}

#[test]
fn vxlan_stream_from_tap_is_segmented_for_a_cable() {
    for checksum in CHECKSUMS {
        in_namespace(move || {
            let ends = [tap("tap0"), cable("s0", "p1")];
            if has_vxlan() && knows_tunnels(&ends[0]) {
                let seen = stream(ends, checksum);
                assert!(seen.finished > STREAM / SEGMENT, "{seen:?}");
                assert!(seen.packets < STREAM / SEGMENT, "{seen:?}");
            }
        });
    }
}

#[test]
fn vxlan_stream_crosses_two_cables() {
    for checksum in CHECKSUMS {
        in_namespace(move || {
            let ends = [cable("g0", "p0"), cable("s0", "p1")];
            if has_vxlan() {
                let seen = stream(ends, checksum);
                assert!(seen.finished > STREAM / SEGMENT, "{seen:?}");
            }
        });
    }
}

#[test]
fn vxlan_stream_from_cable_reaches_tap_whole() {
    in_namespace(|| {
        let ends = [cable("g0", "p0"), tap("tap1")];
        if has_vxlan() && knows_tunnels(&ends[1]) {
            let seen = stream(ends, "udpcsum");
            assert!(seen.packets < STREAM / SEGMENT, "{seen:?}");
        }
    });
}

//! The demo with a capture file, for systems without permission to create namespaces.

use std::{fs, process::Command};

use shunt_tests::{capture::write_frames, daemon::text};

/// Number of flows in the capture.
const FLOWS: u8 = 200;

/// Replays a capture of [`FLOWS`] flows in a loop through the policy.
pub(crate) fn run() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let file = folder.path().join("in.pcap");
    let frames = (0..FLOWS).map(|flow| echo_request([10, 10, 0, 1], [10, 10, 0, flow]));
    fs::write(&file, write_frames(frames))
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let ports = format!(
        "[[bridge.port]]\nname = \"p1\"\nnumber = 1\ntype = \"pcap\"\nrx = \"{}\"\n\
         repeat = \"endless\"\n\n[[bridge.port]]\nname = \"p2\"\nnumber = 2\ntype = \"null\"\n",
        file.display()
    );
    let daemon = crate::start("", &ports, |program| Command::new(program));
    crate::load_policy(&daemon);
    println!("\n3. {FLOWS} flows in a loop; the caches as they fill");
    crate::watch_caches(&daemon);
    print!("{}", text(&daemon.shuntctl(&["drops"])));
}

/// Returns an ICMP echo request.
pub(crate) fn echo_request(source: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
    ip.extend(source.iter().chain(&target));
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend([8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Returns the Internet checksum of an even number of bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

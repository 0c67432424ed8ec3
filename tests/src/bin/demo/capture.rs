//! The demo over a capture file, for where namespaces are not allowed.

use std::{fs, process::Command};

use shunt_tests::daemon::text;

/// Flows of the capture.
const FLOWS: u8 = 200;

/// Plays a capture of [`FLOWS`] flows over and over through the policy.
pub(crate) fn run() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("no folder: {error}"));
    let file = folder.path().join("in.pcap");
    fs::write(&file, capture()).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let ports = format!(
        "[[bridge.port]]\nname = \"p1\"\nnumber = 1\ntype = \"pcap\"\nrx = \"{}\"\n\
         repeat = \"endless\"\n\n[[bridge.port]]\nname = \"p2\"\nnumber = 2\ntype = \"null\"\n",
        file.display()
    );
    let daemon = crate::start(&ports, |program| Command::new(program));
    crate::load_policy(&daemon);
    println!("\n3. {FLOWS} flows, over and over; the caches as they fill");
    crate::watch_caches(&daemon);
    print!("{}", text(&daemon.shuntctl(&["drops"])));
}

/// One ICMP echo request per flow, in the classic capture format.
fn capture() -> Vec<u8> {
    let mut file = vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    file.extend([0, 0, 1, 0, 1, 0, 0, 0]);
    for flow in 0..FLOWS {
        let frame = echo_request(flow);
        let length = u32::try_from(frame.len()).unwrap_or_default().to_le_bytes();
        file.extend([0; 8]);
        file.extend(length);
        file.extend(length);
        file.extend(frame);
    }
    file
}

fn echo_request(flow: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut ip = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0, 10, 10, 0, 1, 10, 10, 0, flow];
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(ip);
    frame.extend([8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// The Internet checksum of an even number of bytes (RFC 1071).
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or_default()
}

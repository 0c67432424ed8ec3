//! Tests of traces of packets that cannot exist.

use crate::Daemon;

fn daemon() -> Daemon {
    let ports = [1, 2].map(|number| format!("[[bridge.port]]\nname = \"vm-{number}\"\n"));
    Daemon::start(&format!("[[bridge]]\nname = \"br0\"\n{}", ports.concat()))
}

#[test]
fn an_unknown_port_name_lists_the_existing_ports() {
    let message = daemon().error_text(&["trace", "br0", "in_port=vm-z,tcp"]);
    assert_eq!(
        message,
        "shuntctl: bridge br0 has no port vm-z; existing ports: vm-1 (1), vm-2 (2), \
         LOCAL\n"
    );
}

#[test]
fn a_trace_without_ingress_port_gives_a_warning() {
    let daemon = daemon();
    let warned = |flow| daemon.answer(&["trace", "br0", flow]).contains("Warning: ");
    let text = daemon.answer(&["trace", "br0", "in_port=7,tcp"]);
    let expected = "Warning: port 7 does not exist, so no packet arrives on it; existing ports: vm-1 (1), vm-2 (2), LOCAL\n";
    assert!(text.contains(expected), "{text}");
    let fine = ["in_port=1,tcp", "in_port=vm-2", "in_port=LOCAL", "in_port=CONTROLLER", "tcp"];
    assert_eq!(fine.map(warned), [false; 5]);
}

#[test]
fn an_invalid_frame_is_refused_with_the_rule() {
    let daemon = daemon();
    let whole = "ff".repeat(14);
    for frame in ["abcd", "0", &whole[1..], &format!("{whole}f")] {
        for flow in [&["trace", "br0", frame][..], &["trace", "br0", "in_port=1", frame]] {
            let message = daemon.error_text(flow);
            assert!(message.contains("a frame has at least 14 bytes"), "{flow:?}: {message}");
        }
    }
    let text = daemon.answer(&["trace", "br0", &whole]);
    assert!(text.contains("Warning: the frame has no ingress port"), "{text}");
    let text = daemon.answer(&["trace", "br0", "in_port=1", &whole]);
    assert!(!text.contains("Warning"), "{text}");
}

#[test]
fn a_trace_takes_a_flow_and_a_frame() {
    let daemon = daemon();
    let help = daemon.answer(&["trace", "--help"]);
    assert!(help.contains("<BRIDGE> <FLOW> [FRAME]"), "{help}");
    let frame = "ff".repeat(14);
    assert!(daemon.error_text(&["trace", "br0", "tcp", &frame, &frame]).contains("unexpected"));
    let message = daemon.error_text(&["trace", "in_port=1,tcp"]);
    let expected = "trace takes the bridge before the packet: shuntctl trace BRIDGE FLOW";
    assert_eq!(message, format!("shuntctl: {expected}\n"));
}

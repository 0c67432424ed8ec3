//! Tests of the screen of `top`.

use ratatui::{Terminal, backend::TestBackend};
use serde_json::json;

use super::*;

/// Returns a snapshot of the daemon at a second of the test.
fn snapshot(second: u64, packets: u64) -> TopSnapshot {
    let port = |name: &str, number| {
        json!({"bridge": "br0", "name": name, "number": number, "link": "up",
            "rx_packets": packets, "rx_bytes": 60 * packets, "rx_dropped": 0,
            "forward_dropped": 0, "tx_packets": 0, "tx_bytes": 0, "tx_dropped": 0})
    };
    TopSnapshot {
        taken: Duration::from_secs(second),
        bridges: json!([{"ports": [port("p1", 1), port("p2", 2)]}]),
        caches: json!({"received": packets, "exact_hits": packets / 2,
            "megaflow_hits": packets / 2, "upcalls": 0, "entries": 1, "gigaflow": null}),
        drops: json!({"dropped": [["metered", packets / 10]], "not_received": []}),
        evictions: json!({"by_cause": [["rule_added", packets / 5], ["group", 0]]}),
    }
}

/// Returns the lines of a drawn screen.
fn drawn(screen: &mut TopScreen) -> Vec<String> {
    drawn_in(screen, 140, 20)
}

/// Returns the lines of a screen that is drawn in a terminal of a given size.
fn drawn_in(screen: &mut TopScreen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| screen.draw(frame)).unwrap();
    let cells = terminal.backend().buffer().content();
    let line = |line: &[ratatui::buffer::Cell]| -> String {
        line.iter().map(ratatui::buffer::Cell::symbol).collect()
    };
    cells.chunks(usize::from(width)).map(|cells| line(cells).trim_end().to_owned()).collect()
}

/// Checks that a line has a text.
fn has(lines: &[String], wanted: &str) {
    assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}:\n{}", lines.join("\n"));
}

#[test]
fn the_screen_shows_what_happened_in_the_interval() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(0, 100));
    has(&drawn(&mut screen), "waits for the first interval");
    screen.add(snapshot(2, 300));
    let lines = drawn(&mut screen);
    has(&lines, "100 packets/s received, 10 dropped/s   1 bridge, 2 ports");
    has(&lines, "exact match   50.0 % ######");
    has(&lines, "        10 metered");
    has(&lines, "evicted/s by cause");
    has(&lines, "        20 rule_added");
    has(&lines, "br0     1     p1    100");
    has(&lines, "br0     2     p2    100");
    has(&lines, "q quit");
    assert!(!lines.iter().any(|line| line.contains("group")), "no eviction by a group");
}

#[test]
fn ports_scroll_to_the_last_one_and_back() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    // A terminal of six lines has space for one port.
    has(&drawn_in(&mut screen, 140, 6), " p1 ");
    for _ in 0..3 {
        screen.scroll(1);
    }
    let lines = drawn_in(&mut screen, 140, 6);
    assert!(!lines.iter().any(|line| line.contains(" p1 ")), "{}", lines.join("\n"));
    has(&lines, " p2 ");
    screen.scroll(-1);
    has(&drawn_in(&mut screen, 140, 6), " p1 ");
}

#[test]
fn a_list_that_fits_does_not_scroll() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    drawn(&mut screen);
    screen.scroll(10);
    has(&drawn(&mut screen), " p1 ");
    // A terminal that becomes higher shows the first line again.
    drawn_in(&mut screen, 140, 6);
    screen.scroll(10);
    assert_eq!(screen.first, 1);
    has(&drawn(&mut screen), " p1 ");
    screen.toggle_flows();
    let flow = json!({"entry": "0.1.2", "packets": 7, "bytes": 420, "idle_ms": 3,
        "actions": ["output:p2"], "megaflow": "in_port=p1"});
    screen.set_flows(json!({"total": 9, "entries": [flow]}));
    drawn_in(&mut screen, 140, 6);
    screen.scroll(10);
    has(&drawn_in(&mut screen, 140, 6), "8 more");
    screen.scroll(-1);
    has(&drawn_in(&mut screen, 140, 6), "0.1.2");
}

#[test]
fn the_flow_list_replaces_the_port_list() {
    let mut screen = TopScreen::default();
    screen.toggle_flows();
    assert_eq!(screen.lower(), LowerPart::Flows);
    let flows = json!({"total": 1, "entries": [{"entry": "0.1.2", "packets": 7, "bytes": 420,
        "idle_ms": 3, "actions": ["output:p2"], "megaflow": "in_port=p1"}]});
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    screen.set_flows(flows);
    let lines = drawn(&mut screen);
    has(&lines, "0.1.2");
    has(&lines, "output:p2");
    assert!(!lines.iter().any(|line| line.contains("rx packets/s")), "{}", lines.join("\n"));
}

#[test]
fn flows_scroll_sideways() {
    let megaflow = format!("{}end", "x".repeat(80));
    let mut screen = TopScreen::default();
    screen.toggle_flows();
    let flows = json!({"total": 1, "entries": [{"entry": "0.1.2", "packets": 7, "bytes": 420,
        "idle_ms": 3, "actions": ["output:p2"], "megaflow": megaflow}]});
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    screen.set_flows(flows);
    assert!(!drawn_in(&mut screen, 80, 24).iter().any(|line| line.contains("end")));
    screen.scroll_sideways(60);
    has(&drawn_in(&mut screen, 80, 24), "xend");
    screen.scroll_sideways(-100);
    has(&drawn_in(&mut screen, 80, 24), "0.1.2");
}

#[test]
fn ports_are_ordered_by_number_traffic_or_drops() {
    let mut screen = TopScreen::default();
    let row = |name: &str, received: u64, sent: u64, dropped: u64| {
        let cells = [0, 0, 0, received, 0, 0, dropped, sent, 0, 0, 0];
        let mut row: Vec<String> = cells.iter().map(u64::to_string).collect();
        row[2] = name.to_owned();
        row
    };
    let names = |order: PortOrder| {
        let mut rows = vec![row("p1", 1, 1, 0), row("p2", 0, 9, 1), row("p3", 3, 3, 0)];
        order.sort(&mut rows);
        rows.iter().map(|row| row[2].clone()).collect::<Vec<_>>().join(" ")
    };
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(names(screen.order));
        screen.next_order();
    }
    assert_eq!(seen, ["p1 p2 p3", "p2 p3 p1", "p2 p1 p3"]);
    screen.next_order();
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    has(&drawn(&mut screen), "ports, most packets first");
}

#[test]
fn a_terminal_of_any_size_is_drawn() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(1, 1));
    screen.add(snapshot(2, 2));
    for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
    }
}

/// A busy daemon answers late, so its packets belong to a longer interval.
#[test]
fn a_late_snapshot_does_not_raise_the_rates() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(0, 0));
    screen.add(snapshot(60, 6_000));
    has(&drawn(&mut screen), "100 packets/s received, 10 dropped/s");
    has(&drawn(&mut screen), "br0     1     p1    100 ");
}

#[test]
fn rates_restart_after_a_pause() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(0, 0));
    screen.add(snapshot(1, 10));
    screen.toggle_pause();
    has(&drawn(&mut screen), "paused   10 packets/s received");
    screen.toggle_pause();
    // The screen keeps its content until the first interval after the pause is complete.
    has(&drawn(&mut screen), "resumes   10 packets/s received");
    screen.add(snapshot(60, 50_000));
    let lines = drawn(&mut screen);
    has(&lines, "resumes   10 packets/s received");
    has(&lines, " p2 ");
    screen.add(snapshot(61, 50_020));
    let lines = drawn(&mut screen);
    has(&lines, "20 packets/s received");
    assert!(lines.iter().all(|line| !line.contains("resumes")), "{}", lines.join("\n"));
}

#[test]
fn a_terminal_of_80_columns_has_all_panels() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(0, 0));
    screen.add(snapshot(1, 100));
    let lines = drawn_in(&mut screen, 80, 24);
    for title in ["received packets/s", "packets by cache", "dropped/s by reason"] {
        has(&lines, title);
    }
    has(&lines, "exact match   50.0 % ########");
    has(&lines, "        10 metered");
    has(&lines, "        20 rule_added");
    has(&lines, "ports, 4 columns hidden: make the terminal wider");
    has(&lines, "port  name  rx packets/s  rx dropped/s  forward dropped/s  tx packets/s  link");
    has(&lines, KEYS);
    let lines = drawn_in(&mut screen, 120, 24);
    has(&lines, "ports, 1 column hidden: make the terminal wider");
    assert!(drawn_in(&mut screen, 125, 24).iter().all(|line| !line.contains("hidden")));
}

#[test]
fn a_small_terminal_has_the_rates_of_ports() {
    let mut screen = TopScreen::default();
    screen.add(snapshot(0, 0));
    screen.add(snapshot(1, 100));
    let lines = drawn_in(&mut screen, 40, 10);
    has(&lines, "100 packets/s received, 10 dropped/s");
    has(&lines, "name  rx packets/s  tx packets/s  link");
    has(&lines, "p2    100           0             up");
    has(&lines, SHORT_KEYS);
}

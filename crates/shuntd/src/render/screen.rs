//! The screen of `top` in a terminal: rates over time, caches, losses, evictions and ports.

use std::collections::VecDeque;

use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Paragraph, Row, Sparkline, Table},
};
use serde_json::Value;

use super::{
    caches::packets_by_cache,
    count, counted,
    drops::total,
    evict, list, percent, ports_of,
    top::{TITLES, TopSnapshot, losses_by_reason, port_rates},
};

/// Number of intervals of which the screen shows the rates.
const HISTORY: usize = 120;

/// Lines of the panels above the ports.
const PANEL_LINES: u16 = 9;

/// Width of the bar of a cache that finds all packets.
const BAR_WIDTH: u64 = 20;

/// Keys in the last line.
const KEYS: &str = "q quit   p pause   f top flows   up, down, page up, page down: scroll";

/// The content of the lower part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LowerPart {
    /// The ports with their rates.
    #[default]
    Ports,
    /// The cache entries with most packets.
    Flows,
}

/// The content of the screen, and its state.
#[derive(Default)]
pub(crate) struct TopScreen {
    /// The last two snapshots.
    snapshots: [Option<TopSnapshot>; 2],
    /// Received packets per second, oldest first.
    received: VecDeque<u64>,
    /// Time between two snapshots.
    seconds: u64,
    /// The cache entries of the last look.
    flows: Value,
    lower: LowerPart,
    is_paused: bool,
    /// First line of the lower part.
    first: usize,
}

impl TopScreen {
    /// Creates a screen of snapshots that are `seconds` apart.
    pub(crate) fn new(seconds: u64) -> Self {
        Self { seconds: seconds.max(1), ..Self::default() }
    }

    /// Adds a snapshot, with the cache entries if [`Self::lower`] shows them.
    pub(crate) fn add(&mut self, now: TopSnapshot, flows: Value) {
        self.flows = flows;
        let [_, last] = std::mem::take(&mut self.snapshots);
        if let Some(last) = &last {
            let key = "received";
            let packets = count(&now.caches[key]).saturating_sub(count(&last.caches[key]));
            self.received.push_back(packets / self.seconds);
            if self.received.len() > HISTORY {
                self.received.pop_front();
            }
        }
        self.snapshots = [last, Some(now)];
    }

    /// Returns what the lower part shows.
    pub(crate) const fn lower(&self) -> LowerPart {
        self.lower
    }

    /// Changes between ports and flows.
    pub(crate) const fn toggle_flows(&mut self) {
        self.lower = match self.lower {
            LowerPart::Ports => LowerPart::Flows,
            LowerPart::Flows => LowerPart::Ports,
        };
        self.first = 0;
    }

    /// Stops or goes on to take snapshots.
    ///
    /// The first interval after a pause begins with its end.
    pub(crate) fn toggle_pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.snapshots = [None, None];
        }
    }

    /// Returns whether no snapshots are taken.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Moves the lower part down by a number of lines, or up by a negative one.
    pub(crate) fn scroll(&mut self, lines: isize) {
        let last = match (&self.lower, &self.snapshots[1]) {
            (LowerPart::Ports, Some(now)) => list(&ports_of(&now.bridges)).len(),
            (LowerPart::Flows, _) => list(&self.flows["entries"]).len(),
            (LowerPart::Ports, None) => 0,
        };
        self.first = self.first.saturating_add_signed(lines).min(last.saturating_sub(1));
    }

    /// Draws the screen.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let [head, panels, lower, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(PANEL_LINES),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(KEYS).style(Style::new().dim()), keys);
        let [Some(before), Some(now)] = &self.snapshots else {
            return frame.render_widget(Paragraph::new("waits for the first interval"), head);
        };
        frame.render_widget(Paragraph::new(self.head(before, now)).style(BOLD), head);
        self.draw_panels(frame, panels, before, now);
        match self.lower {
            LowerPart::Ports => self.draw_ports(frame, lower, before, now),
            LowerPart::Flows => self.draw_flows(frame, lower),
        }
    }

    fn head(&self, before: &TopSnapshot, now: &TopSnapshot) -> String {
        let bridges = counted(list(&now.bridges).len() as u64, "bridge");
        let ports = counted(list(&ports_of(&now.bridges)).len() as u64, "port");
        let received = self.received.back().copied().unwrap_or_default();
        let lost = total(&now.drops).saturating_sub(total(&before.drops)) / self.seconds;
        let paused = if self.is_paused { "   paused" } else { "" };
        let version = env!("CARGO_PKG_VERSION");
        format!(
            "shunt {version}   {bridges}, {ports}   {received} packets/s received   {lost} dropped/s{paused}"
        )
    }

    fn draw_panels(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        before: &TopSnapshot,
        now: &TopSnapshot,
    ) {
        let [received, caches, drops, evictions] =
            Layout::horizontal([Constraint::Ratio(1, 4); 4]).areas(area);
        // The newest values are at the right end.
        let width = usize::from(received.width.saturating_sub(2));
        let shown = self.received.iter().skip(self.received.len().saturating_sub(width));
        let chart = Sparkline::default().data(shown.copied().collect::<Vec<_>>());
        frame.render_widget(chart.block(Block::bordered().title("received packets/s")), received);
        frame.render_widget(panel("packets by cache", caches_lines(before, now)), caches);
        let losses = losses_by_reason(&before.drops, &now.drops, self.seconds);
        frame.render_widget(panel("dropped/s by reason", numbered(&losses)), drops);
        let evicted = evictions_by_cause(&before.evictions, &now.evictions);
        frame.render_widget(panel("evicted, by cause", numbered(&evicted)), evictions);
    }

    fn draw_ports(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        before: &TopSnapshot,
        now: &TopSnapshot,
    ) {
        let rows = port_rates(before, now, self.seconds);
        let widths: Vec<Constraint> = TITLES
            .iter()
            .enumerate()
            .map(|(column, title)| {
                let longest = rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
                let width = longest.unwrap_or_default().max(title.len());
                Constraint::Length(u16::try_from(width).unwrap_or(u16::MAX))
            })
            .collect();
        let shown = rows.into_iter().skip(self.first).map(Row::new);
        let table = Table::new(shown, widths).header(Row::new(TITLES).style(BOLD));
        frame.render_widget(table.column_spacing(2).block(Block::bordered().title("ports")), area);
    }

    fn draw_flows(&self, frame: &mut Frame<'_>, area: Rect) {
        let text = evict::entries(&self.flows);
        let mut lines = text.lines();
        let title = lines.next().map(|title| Line::styled(title.to_owned(), BOLD));
        let rest = lines.skip(self.first).map(|line| Line::raw(line.to_owned()));
        let lines: Vec<Line<'_>> = title.into_iter().chain(rest).collect();
        let block = Block::bordered().title("cache entries with most packets");
        frame.render_widget(Paragraph::new(lines).block(block), area);
    }
}

/// The style of titles, which does not depend on colours.
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

fn panel(title: &'static str, lines: Vec<String>) -> Paragraph<'static> {
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    Paragraph::new(lines).block(Block::bordered().title(title))
}

/// Returns the share of each cache in the packets of the interval, with a bar.
fn caches_lines(before: &TopSnapshot, now: &TopSnapshot) -> Vec<String> {
    let parts = packets_by_cache(&before.caches, &now.caches);
    let all: u64 = parts.iter().map(|(_, packets)| packets).sum();
    let line = |(name, packets): &(&str, u64)| {
        let bar = (packets * BAR_WIDTH).checked_div(all).unwrap_or_default();
        let bar = "#".repeat(usize::try_from(bar).unwrap_or_default());
        format!("{name:<12} {} {bar}", percent(*packets, all))
    };
    parts.iter().map(line).collect()
}

/// Returns the evictions between two snapshots by cause, most entries first.
fn evictions_by_cause<'a>(before: &Value, now: &'a Value) -> Vec<(&'a str, u64)> {
    let pairs = |value: &'a Value| {
        list(&value["by_cause"])
            .iter()
            .filter_map(|pair| Some((pair[0].as_str()?, count(&pair[1]))))
    };
    let earlier = |cause: &str| {
        let own = list(&before["by_cause"]).iter().find(|pair| pair[0] == cause);
        own.map_or(0, |pair| count(&pair[1]))
    };
    let mut evicted: Vec<_> = pairs(now)
        .map(|(cause, entries)| (cause, entries.saturating_sub(earlier(cause))))
        .filter(|(_, entries)| *entries > 0)
        .collect();
    evicted.sort_by_key(|(cause, entries)| (std::cmp::Reverse(*entries), *cause));
    evicted
}

/// Returns a line for each value: the number, then its name.
fn numbered(values: &[(&str, u64)]) -> Vec<String> {
    if values.is_empty() {
        return vec!["none".to_owned()];
    }
    values.iter().map(|(name, value)| format!("{value:>10} {name}")).collect()
}

#[cfg(test)]
mod tests {
    use ratatui::{Terminal, backend::TestBackend};
    use serde_json::json;

    use super::*;

    fn snapshot(packets: u64) -> TopSnapshot {
        let port = |name: &str, number| {
            json!({"bridge": "br0", "name": name, "number": number, "link": "up",
                "rx_packets": packets, "rx_bytes": 60 * packets, "rx_dropped": 0,
                "forward_dropped": 0, "tx_packets": 0, "tx_bytes": 0, "tx_dropped": 0})
        };
        TopSnapshot {
            bridges: json!([{"ports": [port("p1", 1), port("p2", 2)]}]),
            caches: json!({"received": packets, "exact_hits": packets / 2,
                "megaflow_hits": packets / 2, "upcalls": 0, "entries": 1, "gigaflow": null}),
            drops: json!({"dropped": [["metered", packets / 10]], "not_received": []}),
            evictions: json!({"by_cause": [["rule_added", packets / 5], ["group", 0]]}),
        }
    }

    /// Returns the lines of a drawn screen.
    fn drawn(screen: &TopScreen) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(140, 20)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |line: &[ratatui::buffer::Cell]| -> String {
            line.iter().map(ratatui::buffer::Cell::symbol).collect()
        };
        cells.chunks(140).map(|cells| line(cells).trim_end().to_owned()).collect()
    }

    fn has(lines: &[String], wanted: &str) {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}:\n{}", lines.join("\n"));
    }

    #[test]
    fn the_screen_shows_what_happened_in_the_interval() {
        let mut screen = TopScreen::new(2);
        screen.add(snapshot(100), Value::Null);
        has(&drawn(&screen), "waits for the first interval");
        screen.add(snapshot(300), Value::Null);
        let lines = drawn(&screen);
        has(&lines, "1 bridge, 2 ports   100 packets/s received   10 dropped/s");
        has(&lines, "exact match   50.0 % ##########");
        has(&lines, "        10 metered");
        has(&lines, "        40 rule_added");
        has(&lines, "br0     1     p1    100");
        has(&lines, "br0     2     p2    100");
        has(&lines, "q quit");
        assert!(!lines.iter().any(|line| line.contains("group")), "no eviction by a group");
    }

    #[test]
    fn ports_scroll_to_the_last_one_and_back() {
        let mut screen = TopScreen::new(1);
        screen.add(snapshot(1), Value::Null);
        screen.add(snapshot(2), Value::Null);
        screen.scroll(10);
        let lines = drawn(&screen);
        assert!(!lines.iter().any(|line| line.contains(" p1 ")), "{}", lines.join("\n"));
        has(&lines, " p2 ");
        screen.scroll(-10);
        has(&drawn(&screen), " p1 ");
    }

    #[test]
    fn flows_take_the_place_of_ports() {
        let mut screen = TopScreen::new(1);
        screen.toggle_flows();
        assert_eq!(screen.lower(), LowerPart::Flows);
        let flows = json!({"total": 1, "entries": [{"entry": "0.1.2", "packets": 7, "bytes": 420,
            "idle_ms": 3, "actions": ["output:p2"], "megaflow": "in_port=p1"}]});
        screen.add(snapshot(1), Value::Null);
        screen.add(snapshot(2), flows);
        let lines = drawn(&screen);
        has(&lines, "0.1.2");
        has(&lines, "output:p2");
        assert!(!lines.iter().any(|line| line.contains("rx packets/s")), "{}", lines.join("\n"));
    }

    #[test]
    fn a_small_terminal_is_no_fault() {
        let mut screen = TopScreen::new(1);
        screen.add(snapshot(1), Value::Null);
        screen.add(snapshot(2), Value::Null);
        for (width, height) in [(1, 1), (10, 3), (40, 12), (300, 100)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| screen.draw(frame)).unwrap();
        }
    }
}

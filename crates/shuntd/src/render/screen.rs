//! The screen of `top` in a terminal: rates over time, caches, losses, evictions and ports.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

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
    count, counted, evict, list, percent, ports_of,
    top::{TITLES, TopSnapshot, losses_by_reason, per_second_at_least, port_rates},
};

/// Number of intervals for which the screen shows rates.
const HISTORY: usize = 120;

/// Height in lines of a row of panels above the ports.
const PANEL_LINES: u16 = 9;

/// Height in lines of each row if the panels are two by two.
const LOW_PANEL_LINES: u16 = 5;

/// Least width at which all four panels are in one row.
const FOUR_PANELS_WIDTH: u16 = 120;

/// Least height at which panels are shown.
const PANELS_HEIGHT: u16 = 20;

/// Width of the bar of a cache with a share of all packets.
const BAR_WIDTH: u64 = 20;

/// Width of the name and the share, before a bar.
const SHARE_WIDTH: u64 = 21;

/// Help for keys, in the last line.
const KEYS: &str = "q quit   p pause   f top flows   o order   arrows, page up, page down: scroll";

/// Help for keys, in the last line of a narrow terminal.
const SHORT_KEYS: &str = "q quit  p pause  f flows  o order";

/// Columns of the table of ports, most important first, as indices of [`TITLES`].
const BY_IMPORTANCE: [usize; 11] = [2, 3, 7, 10, 5, 6, 9, 4, 8, 0, 1];

/// Space between two columns.
const COLUMN_SPACING: u16 = 2;

/// The content of the lower part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum LowerPart {
    /// The ports with their rates.
    #[default]
    Ports,
    /// The cache entries with most packets.
    Flows,
}

/// The order of the ports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PortOrder {
    /// By bridge and number.
    #[default]
    Number,
    /// Most received and sent packets first.
    Traffic,
    /// Most dropped packets first.
    Dropped,
}

impl PortOrder {
    /// Returns the words for the title of the ports.
    const fn title(self) -> &'static str {
        match self {
            Self::Number => "ports",
            Self::Traffic => "ports, most packets first",
            Self::Dropped => "ports, most drops first",
        }
    }

    /// Returns the columns with the sum that orders ports, as indices of [`TITLES`].
    const fn columns(self) -> &'static [usize] {
        match self {
            Self::Number => &[],
            Self::Traffic => &[3, 7],
            Self::Dropped => &[5, 6, 9],
        }
    }

    /// Sorts rows of ports; rows with the same sum keep their order.
    fn sort(self, rows: &mut [Vec<String>]) {
        let sum = |row: &Vec<String>| -> u64 {
            let cells = self.columns().iter().filter_map(|column| row.get(*column));
            cells.filter_map(|cell| cell.parse::<u64>().ok()).fold(0, u64::saturating_add)
        };
        rows.sort_by_cached_key(|row| Reverse(sum(row)));
    }
}

/// The content of the screen, and its state.
#[derive(Default)]
pub(crate) struct TopScreen {
    /// The last two snapshots.
    snapshots: [Option<TopSnapshot>; 2],
    /// Received packets per second, oldest first.
    received: VecDeque<u64>,
    /// The cache entries that were requested last.
    flows: Value,
    lower: LowerPart,
    is_paused: bool,
    /// Number of the first shown line of the lower part.
    first: usize,
    /// Number of the first shown column of the flows.
    first_column: u16,
    order: PortOrder,
}

impl TopScreen {
    /// Adds a snapshot.
    pub(crate) fn add(&mut self, now: TopSnapshot) {
        let [_, last] = std::mem::take(&mut self.snapshots);
        if let Some(last) = &last {
            self.received.push_back(now.received_rate(last));
            if self.received.len() > HISTORY {
                self.received.pop_front();
            }
        }
        self.snapshots = [last, Some(now)];
    }

    /// Replaces the cache entries of [`LowerPart::Flows`].
    pub(crate) fn set_flows(&mut self, flows: Value) {
        self.flows = flows;
    }

    /// Returns which content the lower part shows.
    pub(crate) const fn lower(&self) -> LowerPart {
        self.lower
    }

    /// Switches the lower part between ports and flows.
    pub(crate) const fn toggle_flows(&mut self) {
        self.lower = match self.lower {
            LowerPart::Ports => LowerPart::Flows,
            LowerPart::Flows => LowerPart::Ports,
        };
        self.first = 0;
        self.first_column = 0;
    }

    /// Orders the ports in the next way: by number, by traffic, by drops.
    pub(crate) const fn next_order(&mut self) {
        self.order = match self.order {
            PortOrder::Number => PortOrder::Traffic,
            PortOrder::Traffic => PortOrder::Dropped,
            PortOrder::Dropped => PortOrder::Number,
        };
        self.first = 0;
    }

    /// Scrolls the flows to the right by a number of columns.
    ///
    /// A negative number scrolls to the left.
    pub(crate) fn scroll_sideways(&mut self, columns: i16) {
        let text = evict::entries(&self.flows);
        let longest = text.lines().map(|line| line.chars().count()).max().unwrap_or_default();
        let last = u16::try_from(longest).unwrap_or(u16::MAX).saturating_sub(1);
        self.first_column = self.first_column.saturating_add_signed(columns).min(last);
    }

    /// Pauses or resumes the snapshots.
    ///
    /// After a pause, the first interval begins when the pause ends.
    pub(crate) fn toggle_pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.snapshots = [None, None];
        }
    }

    /// Returns whether the snapshots are paused.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Scrolls the lower part down by a number of lines; a negative number scrolls up.
    pub(crate) fn scroll(&mut self, lines: isize) {
        let last = match (&self.lower, &self.snapshots[1]) {
            (LowerPart::Ports, Some(now)) => list(&ports_of(&now.bridges)).len(),
            (LowerPart::Flows, _) => list(&self.flows["entries"]).len(),
            (LowerPart::Ports, None) => 0,
        };
        self.first = self.first.saturating_add_signed(lines).min(last.saturating_sub(1));
    }

    /// Draws the screen into a frame of the terminal.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let panel_lines = match (area.width, area.height) {
            (_, ..PANELS_HEIGHT) => 0,
            (..FOUR_PANELS_WIDTH, _) => 2 * LOW_PANEL_LINES,
            _ => PANEL_LINES,
        };
        let [head, panels, lower, keys] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(panel_lines),
            Constraint::Min(3),
            Constraint::Length(1),
        ])
        .areas(area);
        let all_keys = if usize::from(area.width) < KEYS.len() { SHORT_KEYS } else { KEYS };
        frame.render_widget(Paragraph::new(all_keys).style(Style::new().dim()), keys);
        let [Some(before), Some(now)] = &self.snapshots else {
            return frame.render_widget(Paragraph::new("waits for the first interval"), head);
        };
        frame.render_widget(Paragraph::new(self.header_line(before, now)).style(BOLD), head);
        if panel_lines > 0 {
            self.draw_panels(frame, panels, before, now);
        }
        match self.lower {
            LowerPart::Ports => self.draw_ports(frame, lower, before, now),
            LowerPart::Flows => self.draw_flows(frame, lower),
        }
    }

    fn header_line(&self, before: &TopSnapshot, now: &TopSnapshot) -> String {
        let bridges = counted(list(&now.bridges).len() as u64, "bridge");
        let ports = counted(list(&ports_of(&now.bridges)).len() as u64, "port");
        let (received, lost) = (now.received_rate(before), now.loss_rate(before));
        let paused = if self.is_paused { "paused   " } else { "" };
        let version = env!("CARGO_PKG_VERSION");
        // A narrow terminal cuts off the end of the line.
        format!(
            "{paused}{received} packets/s received, {lost} dropped/s   {bridges}, {ports}   shunt {version}"
        )
    }

    fn draw_panels(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        before: &TopSnapshot,
        now: &TopSnapshot,
    ) {
        let [received, caches, drops, evictions] = panel_areas(area);
        // The newest values are at the right.
        let width = usize::from(received.width.saturating_sub(2));
        let shown = self.received.iter().skip(self.received.len().saturating_sub(width));
        let chart = Sparkline::default().data(shown.copied().collect::<Vec<_>>());
        frame.render_widget(chart.block(Block::bordered().title("received packets/s")), received);
        let bar_width = u64::from(caches.width.saturating_sub(2)).saturating_sub(SHARE_WIDTH);
        let shares = caches_lines(before, now, bar_width.min(BAR_WIDTH));
        frame.render_widget(panel("packets by cache", shares), caches);
        let elapsed = now.since(before);
        let losses = losses_by_reason(&before.drops, &now.drops, elapsed);
        frame.render_widget(panel("dropped/s by reason", numbered(&losses)), drops);
        let evicted = evictions_by_cause(&before.evictions, &now.evictions, elapsed);
        frame.render_widget(panel("evicted/s by cause", numbered(&evicted)), evictions);
    }

    fn draw_ports(
        &self,
        frame: &mut Frame<'_>,
        area: Rect,
        before: &TopSnapshot,
        now: &TopSnapshot,
    ) {
        let mut rows = vec![TITLES.map(str::to_owned).to_vec()];
        let mut ports = port_rates(before, now);
        self.order.sort(&mut ports);
        rows.extend(ports);
        let columns = shown_columns(&rows, area.width.saturating_sub(2));
        let title = match TITLES.len().saturating_sub(columns.len()) {
            0 => self.order.title().to_owned(),
            hidden => {
                format!("{}, without {}", self.order.title(), counted(hidden as u64, "column"))
            }
        };
        let widths = columns.iter().map(|(_, width)| Constraint::Length(*width));
        let mut shown = rows.iter().map(|row| {
            Row::new(columns.iter().filter_map(|(column, _)| row.get(*column).cloned()))
        });
        let header = shown.next().unwrap_or_default().style(BOLD);
        let table = Table::new(shown.skip(self.first), widths).header(header);
        let block = Block::bordered().title(title);
        frame.render_widget(table.column_spacing(COLUMN_SPACING).block(block), area);
    }

    fn draw_flows(&self, frame: &mut Frame<'_>, area: Rect) {
        let text = evict::entries(&self.flows);
        let mut lines = text.lines();
        let title = lines.next().map(|title| Line::styled(title.to_owned(), BOLD));
        let rest = lines.skip(self.first).map(|line| Line::raw(line.to_owned()));
        let lines: Vec<Line<'_>> = title.into_iter().chain(rest).collect();
        let block = Block::bordered().title("cache entries with most packets");
        let paragraph = Paragraph::new(lines).scroll((0, self.first_column));
        frame.render_widget(paragraph.block(block), area);
    }
}

/// The style of titles, which does not depend on colours.
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Returns the areas of four panels: in one row, or two by two.
fn panel_areas(area: Rect) -> [Rect; 4] {
    if area.width >= FOUR_PANELS_WIDTH {
        return Layout::horizontal([Constraint::Ratio(1, 4); 4]).areas(area);
    }
    let [upper, lower]: [Rect; 2] = Layout::vertical([Constraint::Ratio(1, 2); 2]).areas(area);
    let halves = Layout::horizontal([Constraint::Ratio(1, 2); 2]);
    let [first, second]: [Rect; 2] = halves.areas(upper);
    let [third, fourth]: [Rect; 2] = halves.areas(lower);
    [first, second, third, fourth]
}

/// Returns the columns that fit into a width, each with its width.
///
/// The first of `rows` has the titles. If a column does not fit, less important columns may take
/// its space.
fn shown_columns(rows: &[Vec<String>], width: u16) -> Vec<(usize, u16)> {
    let mut room = width;
    let mut shown = Vec::new();
    for column in BY_IMPORTANCE {
        let longest = rows.iter().filter_map(|row| row.get(column)).map(String::len).max();
        let own = u16::try_from(longest.unwrap_or_default()).unwrap_or(u16::MAX);
        let spacing = if shown.is_empty() { 0 } else { COLUMN_SPACING };
        if let Some(left) = room.checked_sub(own.saturating_add(spacing)) {
            room = left;
            shown.push((column, own));
        }
    }
    shown.sort_unstable();
    shown
}

fn panel(title: &'static str, lines: Vec<String>) -> Paragraph<'static> {
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    Paragraph::new(lines).block(Block::bordered().title(title))
}

/// Returns a line for each cache:
/// its share of the packets in the interval, with a bar.
///
/// `bar_width` is the width of the bar for a share of all packets.
fn caches_lines(before: &TopSnapshot, now: &TopSnapshot, bar_width: u64) -> Vec<String> {
    let parts = packets_by_cache(&before.caches, &now.caches);
    let all: u64 = parts.iter().map(|(_, packets)| packets).sum();
    let line = |(name, packets): &(&str, u64)| {
        let bar = packets.saturating_mul(bar_width).checked_div(all).unwrap_or_default();
        let bar = "#".repeat(usize::try_from(bar).unwrap_or_default());
        format!("{name:<12} {} {bar}", percent(*packets, all))
    };
    parts.iter().map(line).collect()
}

/// Returns the evicted entries per second by cause, most entries first.
fn evictions_by_cause<'a>(
    before: &Value,
    now: &'a Value,
    elapsed: Duration,
) -> Vec<(&'a str, u64)> {
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
        .map(|(cause, entries)| {
            (cause, per_second_at_least(entries.saturating_sub(earlier(cause)), elapsed))
        })
        .filter(|(_, entries)| *entries > 0)
        .collect();
    evicted.sort_by_key(|(cause, entries)| (Reverse(*entries), *cause));
    evicted
}

/// Returns a line for each value, with the number before the name.
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
    fn drawn(screen: &TopScreen) -> Vec<String> {
        drawn_in(screen, 140, 20)
    }

    /// Returns the lines of a screen that is drawn in a terminal of a given size.
    fn drawn_in(screen: &TopScreen, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let cells = terminal.backend().buffer().content();
        let line = |line: &[ratatui::buffer::Cell]| -> String {
            line.iter().map(ratatui::buffer::Cell::symbol).collect()
        };
        cells.chunks(usize::from(width)).map(|cells| line(cells).trim_end().to_owned()).collect()
    }

    fn has(lines: &[String], wanted: &str) {
        assert!(lines.iter().any(|line| line.contains(wanted)), "{wanted}:\n{}", lines.join("\n"));
    }

    #[test]
    fn the_screen_shows_what_happened_in_the_interval() {
        let mut screen = TopScreen::default();
        screen.add(snapshot(0, 100));
        has(&drawn(&screen), "waits for the first interval");
        screen.add(snapshot(2, 300));
        let lines = drawn(&screen);
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
        screen.scroll(10);
        let lines = drawn(&screen);
        assert!(!lines.iter().any(|line| line.contains(" p1 ")), "{}", lines.join("\n"));
        has(&lines, " p2 ");
        screen.scroll(-10);
        has(&drawn(&screen), " p1 ");
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
        let lines = drawn(&screen);
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
        assert!(!drawn_in(&screen, 80, 24).iter().any(|line| line.contains("end")));
        screen.scroll_sideways(60);
        has(&drawn_in(&screen, 80, 24), "xend");
        screen.scroll_sideways(-100);
        has(&drawn_in(&screen, 80, 24), "0.1.2");
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
        has(&drawn(&screen), "ports, most packets first");
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
        has(&drawn(&screen), "100 packets/s received, 10 dropped/s");
        has(&drawn(&screen), "br0     1     p1    100 ");
    }

    #[test]
    fn rates_restart_after_a_pause() {
        let mut screen = TopScreen::default();
        screen.add(snapshot(0, 0));
        screen.add(snapshot(1, 10));
        screen.toggle_pause();
        has(&drawn(&screen), "paused   10 packets/s received");
        screen.toggle_pause();
        screen.add(snapshot(60, 50_000));
        has(&drawn(&screen), "waits for the first interval");
        screen.add(snapshot(61, 50_020));
        has(&drawn(&screen), "20 packets/s received");
    }

    #[test]
    fn a_terminal_of_80_columns_has_all_panels() {
        let mut screen = TopScreen::default();
        screen.add(snapshot(0, 0));
        screen.add(snapshot(1, 100));
        let lines = drawn_in(&screen, 80, 24);
        for title in ["received packets/s", "packets by cache", "dropped/s by reason"] {
            has(&lines, title);
        }
        has(&lines, "exact match   50.0 % ########");
        has(&lines, "        10 metered");
        has(&lines, "        20 rule_added");
        has(&lines, "ports, without 4 columns");
        has(
            &lines,
            "port  name  rx packets/s  rx dropped/s  forward dropped/s  tx packets/s  link",
        );
        has(&lines, KEYS);
    }

    #[test]
    fn a_small_terminal_has_the_rates_of_ports() {
        let mut screen = TopScreen::default();
        screen.add(snapshot(0, 0));
        screen.add(snapshot(1, 100));
        let lines = drawn_in(&screen, 40, 10);
        has(&lines, "100 packets/s received, 10 dropped/s");
        has(&lines, "name  rx packets/s  tx packets/s  link");
        has(&lines, "p2    100           0             up");
        has(&lines, SHORT_KEYS);
    }
}

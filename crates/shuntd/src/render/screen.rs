//! The screen of `top` in a terminal: rates over time, caches, losses, evictions and ports.

use std::{cmp::Reverse, collections::VecDeque, rc::Rc, time::Duration};

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

/// Width of the bar that shows the share of a cache in all packets.
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

/// The order of the ports on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PortOrder {
    /// Ports are ordered by bridge and number.
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
    /// The snapshot that starts the next interval; `None` at first and after a pause.
    last: Option<Rc<TopSnapshot>>,
    /// The start and the end of the interval that is shown.
    shown: Option<[Rc<TopSnapshot>; 2]>,
    /// Received packets per second, oldest first.
    received: VecDeque<u64>,
    /// The cache entries that were requested last.
    flows: Value,
    /// The content of the lower part.
    lower: LowerPart,
    /// True while the screen shows no new values.
    is_paused: bool,
    /// Number of the first shown line of the lower part.
    first: usize,
    /// Number of lines that the lower part had space for when it was drawn last.
    lower_lines: usize,
    /// Number of the first shown column of the flows.
    first_column: u16,
    /// The order of the ports.
    order: PortOrder,
}

impl TopScreen {
    /// Adds a snapshot of the counters.
    pub(crate) fn add(&mut self, now: TopSnapshot) {
        let now = Rc::new(now);
        if let Some(last) = self.last.replace(Rc::clone(&now)) {
            self.received.push_back(now.received_rate(&last));
            if self.received.len() > HISTORY {
                self.received.pop_front();
            }
            self.shown = Some([last, now]);
        }
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
    /// After a pause, the first interval begins when the pause ends. Until it is complete, the screen
    /// shows the interval before the pause.
    pub(crate) fn toggle_pause(&mut self) {
        self.is_paused = !self.is_paused;
        if !self.is_paused {
            self.last = None;
        }
    }

    /// Returns whether a pause has ended, and no interval since then.
    fn is_resuming(&self) -> bool {
        let end = self.shown.as_ref().map(|[_, end]| end);
        match (end, &self.last) {
            (Some(end), Some(last)) => !Rc::ptr_eq(end, last),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Returns whether the snapshots are paused.
    pub(crate) const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Scrolls the lower part down by a number of lines; a negative number scrolls up.
    ///
    /// A list scrolls only until its last line is at the end of the lower part.
    pub(crate) fn scroll(&mut self, lines: isize) {
        self.first = self.first.saturating_add_signed(lines).min(self.first_max());
    }

    /// Returns the maximum of `first`, with the last line at the end of the lower part.
    fn first_max(&self) -> usize {
        let lines = match (&self.lower, &self.shown) {
            (LowerPart::Ports, Some([_, now])) => list(&ports_of(&now.bridges)).len(),
            // The first line has the titles.
            (LowerPart::Flows, _) => evict::entries(&self.flows).lines().skip(1).count(),
            (LowerPart::Ports, None) => 0,
        };
        lines.saturating_sub(self.lower_lines.max(1))
    }

    /// Draws the screen into a frame of the terminal.
    pub(crate) fn draw(&mut self, frame: &mut Frame<'_>) {
        let areas = screen_areas(frame.area());
        self.lower_lines = usize::from(areas.lower.height.saturating_sub(FRAME_LINES));
        // The list may have become shorter, or the terminal higher.
        self.first = self.first.min(self.first_max());
        let all_keys = if usize::from(frame.area().width) < KEYS.len() { SHORT_KEYS } else { KEYS };
        frame.render_widget(Paragraph::new(all_keys).style(Style::new().dim()), areas.keys);
        let Some([before, now]) = &self.shown else {
            return frame.render_widget(Paragraph::new("waits for the first interval"), areas.head);
        };
        frame.render_widget(Paragraph::new(self.header_line(before, now)).style(BOLD), areas.head);
        if areas.panels.height > 0 {
            self.draw_panels(frame, areas.panels, before, now);
        }
        match self.lower {
            LowerPart::Ports => self.draw_ports(frame, areas.lower, before, now),
            LowerPart::Flows => self.draw_flows(frame, areas.lower),
        }
    }

    /// Formats the first line: the rates of the whole switch.
    fn header_line(&self, before: &TopSnapshot, now: &TopSnapshot) -> String {
        let bridges = counted(list(&now.bridges).len() as u64, "bridge");
        let ports = counted(list(&ports_of(&now.bridges)).len() as u64, "port");
        let (received, lost) = (now.received_rate(before), now.loss_rate(before));
        let paused = match (self.is_paused, self.is_resuming()) {
            (true, _) => "paused   ",
            (false, true) => "resumes   ",
            (false, false) => "",
        };
        let version = env!("CARGO_PKG_VERSION");
        // A narrow terminal cuts off the end of the line.
        format!(
            "{paused}{received} packets/s received, {lost} dropped/s   {bridges}, {ports}   shunt {version}"
        )
    }

    /// Draws the panels of received packets, caches, drops and evictions.
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
        frame.render_widget(panel("dropped/s by reason", lines_with_numbers(&losses)), drops);
        let evicted = evictions_by_cause(&before.evictions, &now.evictions, elapsed);
        frame.render_widget(panel("evicted/s by cause", lines_with_numbers(&evicted)), evictions);
    }

    /// Draws the table of ports.
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
            hidden => format!(
                "{}, {} hidden: make the terminal wider",
                self.order.title(),
                counted(hidden as u64, "column")
            ),
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

    /// Draws the table of flows.
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

/// The parts of the screen, from top to bottom.
struct ScreenAreas {
    /// The line with the name and the rates of the switch.
    head: Rect,
    /// The panels; without height in a low terminal.
    panels: Rect,
    /// The table of ports or of flows.
    lower: Rect,
    /// The line with the keys.
    keys: Rect,
}

/// Number of lines of the lower part for its border and its titles.
const FRAME_LINES: u16 = 3;

/// Divides the area of the screen.
fn screen_areas(area: Rect) -> ScreenAreas {
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
    ScreenAreas { head, panels, lower, keys }
}

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

/// Returns a bordered panel with a title.
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
fn lines_with_numbers(values: &[(&str, u64)]) -> Vec<String> {
    if values.is_empty() {
        return vec!["none".to_owned()];
    }
    values.iter().map(|(name, value)| format!("{value:>10} {name}")).collect()
}

#[cfg(test)]
mod tests;

//! The SVG plot of an experiment: a panel of horizontal bars for each metric, and a line panel for
//! each row with curves.
//!
//! Our bar is above the rival's. Bars begin at zero unless the values of a panel are far apart.
//! Whiskers reach from the smallest to the largest round, so that noise is visible. Many panels are
//! laid out in columns. The SVG is written by hand, because it consists of rectangles and text
//! only.

use std::fmt::Write as _;

use super::{
    Better, Experiment, Row, Samples, Verdict,
    axis::Axis,
    columns::{self, Block},
    machine,
    table::{number, times},
};

/// Width of the picture, in SVG units.
pub(super) const WIDTH: f64 = 1000.0;
/// Distance of the text from the left and right edge.
pub(super) const MARGIN: f64 = 28.0;
/// Left and right end of the bars.
/// Names are on the left of the bars, and ratios on the right.
const BARS_LEFT: f64 = 290.0;
const BARS_RIGHT: f64 = 760.0;
const BAR_HEIGHT: f64 = 15.0;
const BAR_GAP: f64 = 13.0;
/// Height of a panel above its first bar.
const PANEL_HEAD: f64 = 76.0;
/// Baseline of the heading in its panel, and of the line below it.
const HEADING: f64 = 30.0;
const BELOW_HEADING: f64 = 49.0;
/// Maximum characters of a heading at full size.
/// Longer headings have a smaller font.
const HEADING_LENGTH: usize = 76;
const PANEL_FOOT: f64 = 44.0;

/// Maximum rows of a panel.
const ROWS_MAX: usize = 32;

/// Maximum characters of a row name at full size.
const NAME_LENGTH: usize = 38;

pub(super) const OURS: &str = "#0b7285";
pub(super) const RIVAL: &str = "#e8a33d";
pub(super) const PUBLISHED: &str = "#adb5bd";
pub(super) const INK: &str = "#212529";
pub(super) const GREY: &str = "#868e96";
pub(super) const GRID: &str = "#e9ecef";
/// Colour of a ratio that is better than 1.
const GOOD: &str = "#2b8a3e";
/// Colour of a ratio that is worse than 1.
const BAD: &str = "#c92a2a";

/// A drawing with a cursor that moves down the page.
pub(super) struct Drawing {
    pub(super) body: String,
    pub(super) y: f64,
    /// True if there are several rivals: each bar then names the rival.
    names_rivals: bool,
}

/// Horizontal alignment of a text.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Style of a text.
#[derive(Clone, Copy)]
pub(super) struct Font {
    pub(super) size: u32,
    pub(super) is_bold: bool,
    pub(super) color: &'static str,
    pub(super) anchor: Anchor,
}

/// The font of the title of the picture.
const TITLE: Font = Font { size: 23, is_bold: true, color: INK, anchor: Anchor::Start };
/// The font of the heading of a panel.
pub(super) const HEAD: Font = Font { size: 16, ..TITLE };
pub(super) const PLAIN: Font = Font { size: 13, is_bold: false, ..TITLE };
pub(super) const FAINT: Font = Font { color: GREY, ..PLAIN };
/// The font of names beside bars.
const NAME: Font = Font { anchor: Anchor::End, ..PLAIN };
/// The font of numbers at an axis.
pub(super) const TICK: Font = Font { size: 11, anchor: Anchor::Middle, ..FAINT };
/// The font of values after bars.
const VALUE: Font = Font { size: 12, ..PLAIN };
/// The font of ratios at the right edge.
const RATIO: Font = Font { size: 15, is_bold: true, anchor: Anchor::End, ..PLAIN };

/// Draws a bar panel for each metric and a line panel for each row with curves.
///
/// Rows without a rival, a published value and a better direction are left out.
#[must_use]
pub fn plot(experiment: &Experiment, rows: &[Row]) -> String {
    let rivals = rivals(rows);
    let names_rivals = rivals.len() > 1;
    let mut page = Drawing { y: MARGIN, ..Drawing::new(names_rivals) };
    page.head(experiment, rows, &rivals);
    let with_curves = rows.iter().filter(|row| !row.curves.is_empty());
    let mut blocks: Vec<Block> =
        with_curves.map(|row| block(names_rivals, |drawing| drawing.lines(row))).collect();
    let is_sampled = |row: &&Row| row.better != Better::Neither || row.published.is_some();
    let is_bar = |row: &&Row| row.curves.is_empty();
    let rows: Vec<&Row> = rows.iter().filter(is_sampled).filter(is_bar).collect();
    let mut metrics: Vec<&str> = rows.iter().map(|row| row.metric).collect();
    let mut seen = std::collections::HashSet::new();
    metrics.retain(|metric| seen.insert(*metric));
    for metric in metrics {
        let panel: Vec<&Row> = rows.iter().filter(|row| row.metric == metric).copied().collect();
        blocks.extend(panels(&panel, names_rivals));
    }
    page.finish(&blocks)
}

/// Returns the panels of one metric: several panels if the metric has many rows.
fn panels(rows: &[&Row], names_rivals: bool) -> Vec<Block> {
    let bars = rows.iter().flat_map(|row| {
        let rival = row.rival.as_ref().map(|(_, samples)| samples.median());
        [Some(row.ours.median()), rival, row.published_alike()].into_iter().flatten()
    });
    let axis = Axis::of(bars, most_of(rows));
    let parts_count = rows.len().div_ceil(ROWS_MAX).max(1);
    let parts = rows.chunks(rows.len().div_ceil(parts_count).max(1));
    parts
        .zip(1..)
        .map(|(part, number)| {
            let rest = if parts_count == 1 {
                String::new()
            } else {
                format!(", {number} of {parts_count}")
            };
            block(names_rivals, |drawing| drawing.panel(part, axis, &rest))
        })
        .collect()
}

fn block(names_rivals: bool, draw: impl FnOnce(&mut Drawing)) -> Block {
    let mut drawing = Drawing::new(names_rivals);
    draw(&mut drawing);
    Block { body: drawing.body, height: drawing.y }
}

impl Drawing {
    fn new(names_rivals: bool) -> Self {
        Self { body: String::new(), y: 0.0, names_rivals }
    }

    pub(super) fn text(&mut self, (x, y): (f64, f64), font: Font, text: &str) {
        let anchor = match font.anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let weight = if font.is_bold { "bold" } else { "normal" };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{}\" font-weight=\"{weight}\" \
             fill=\"{}\" text-anchor=\"{anchor}\">{text}</text>",
            font.size, font.color,
        );
    }

    pub(super) fn rectangle(
        &mut self,
        (x, y): (f64, f64),
        (width, height): (f64, f64),
        color: &str,
    ) {
        let _ = writeln!(
            self.body,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
             rx=\"2\" fill=\"{color}\"/>",
        );
    }

    pub(super) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), color: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" \
             stroke=\"{color}\"/>",
        );
    }

    /// Draws title, description and legend.
    fn head(&mut self, experiment: &Experiment, rows: &[Row], rivals: &[&str]) {
        self.text((MARGIN, self.y + 16.0), TITLE, experiment.title);
        self.text((MARGIN, self.y + 40.0), PLAIN, experiment.what);
        let source = format!("{}; {}", experiment.source, machine());
        self.text((MARGIN, self.y + 60.0), FAINT, &source);
        let y = self.y + 78.0;
        let mut x = MARGIN;
        let rival = rivals.first();
        let rival =
            rival.map(|name| if self.names_rivals { "rival, named at each bar" } else { name });
        let published = rows.iter().any(|row| row.published_alike().is_some());
        let legend = [("Shunt", OURS)]
            .into_iter()
            .chain(rival.map(|name| (name, RIVAL)))
            .chain(published.then_some(("published", PUBLISHED)));
        for (name, color) in legend {
            self.rectangle((x, y), (14.0, 14.0), color);
            self.text((x + 20.0, y + 12.0), PLAIN, name);
            x += 48.0 + 7.6 * name.chars().count() as f64;
        }
        self.text((x, y + 12.0), FAINT, "whiskers: smallest and largest round");
        self.y = y + 22.0;
    }

    /// Draws the rows of one metric.
    fn panel(&mut self, rows: &[&Row], axis: Axis, rest: &str) {
        let Some(first) = rows.first() else { return };
        let unit = if first.unit.is_empty() { String::new() } else { format!(" ({})", first.unit) };
        let heading = format!("{}{unit}{}{rest}", first.metric, axis.words());
        let is_long = heading.chars().count() > HEADING_LENGTH;
        let font = if is_long { Font { size: 12, ..HEAD } } else { HEAD };
        self.text((MARGIN, self.y + HEADING), font, &heading);
        let below = self.y + BELOW_HEADING;
        self.text((MARGIN, below), FAINT, first.better.words());
        if rows.iter().any(|row| row.ratio().is_some()) {
            let faint = Font { anchor: Anchor::End, ..FAINT };
            self.text((WIDTH - MARGIN, below), faint, "ratio to the rival, above 1 is better");
        }
        let top = self.y + PANEL_HEAD - 14.0;
        self.y += PANEL_HEAD;
        let height: f64 = rows.iter().map(|row| row_height(row)).sum();
        self.axis(axis, (top, self.y + height));
        for row in rows {
            self.row(row, axis);
        }
        self.y += PANEL_FOOT;
    }

    /// Draws grid and ticks.
    fn axis(&mut self, axis: Axis, (top, bottom): (f64, f64)) {
        for (number, (tick, word)) in axis.ticks().into_iter().enumerate() {
            let x = x_of(tick, axis);
            self.line((x, top), (x, bottom), if number == 0 { GREY } else { GRID });
            self.text((x, bottom + 15.0), TICK, &word);
        }
    }

    fn row(&mut self, row: &Row, axis: Axis) {
        let middle = self.y + (row_height(row) - BAR_GAP) / 2.0;
        let is_long = row.name.chars().count() > NAME_LENGTH;
        let font = if is_long { Font { size: 10, ..NAME } } else { NAME };
        // If the bar of a rival has a name, the name of the row is beside the first bar.
        let of_bar = |bar: f64| self.y + bar * (BAR_HEIGHT + 2.0) + BAR_HEIGHT - 3.0;
        let rival = row.rival.as_ref().filter(|_| self.names_rivals);
        let (at, beside) = (rival.map_or(middle + 4.5, |_| of_bar(0.0)), of_bar(1.0));
        self.text((BARS_LEFT - 12.0, at), font, &row.name);
        if let Some((name, _)) = rival {
            let small = Font { size: 10, color: GREY, ..NAME };
            self.text((BARS_LEFT - 12.0, beside), small, name);
        }
        if let Some(ratio) = row.ratio() {
            let word = times(ratio.middle);
            let (color, text) = match ratio.verdict() {
                Verdict::Better => (GOOD, format!("{word} ×")),
                Verdict::Worse => (BAD, format!("{word} ×")),
                Verdict::Noise => (GREY, format!("{word} × (noise)")),
                Verdict::Unsure => (GREY, format!("{word} × (?)")),
            };
            self.text((WIDTH - MARGIN, middle + 5.0), Font { color, ..RATIO }, &text);
        }
        self.bar(&row.ours, axis, OURS);
        if let Some((_, samples)) = &row.rival {
            self.y += 2.0;
            self.bar(samples, axis, RIVAL);
        }
        if let Some(published) = row.published_alike() {
            self.y += 2.0;
            self.bar(&Samples::from(published), axis, PUBLISHED);
        }
        self.y += BAR_GAP;
    }

    fn bar(&mut self, samples: &Samples, axis: Axis, color: &str) {
        let right = x_of(samples.median(), axis);
        self.rectangle((BARS_LEFT, self.y), ((right - BARS_LEFT).max(1.0), BAR_HEIGHT), color);
        let (least, most) = (x_of(samples.least(), axis), x_of(samples.most(), axis));
        if most - least > 1.0 {
            let middle = self.y + BAR_HEIGHT / 2.0;
            self.line((least, middle), (most, middle), INK);
            for x in [least, most] {
                self.line((x, middle - 3.5), (x, middle + 3.5), INK);
            }
        }
        let text = number(samples.median());
        self.text((right.max(most) + 7.0, self.y + BAR_HEIGHT - 3.0), VALUE, &text);
        self.y += BAR_HEIGHT;
    }

    fn finish(mut self, blocks: &[Block]) -> String {
        let (width, height) = columns::put(&mut self.body, blocks, self.y);
        let height = height + MARGIN / 2.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width} {height:.0}\" \
             font-family=\"DejaVu Sans, Helvetica, Arial, sans-serif\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}</svg>\n",
            self.body
        )
    }
}

/// Returns the rivals of all rows, each once.
fn rivals(rows: &[Row]) -> Vec<&str> {
    let mut rivals: Vec<&str> = Vec::new();
    for (name, _) in rows.iter().filter_map(|row| row.rival.as_ref()) {
        if !rivals.contains(&name.as_str()) {
            rivals.push(name);
        }
    }
    rivals
}

/// Returns the largest value in a panel.
fn most_of(rows: &[&Row]) -> f64 {
    let of = |row: &&Row| {
        let rival = row.rival.as_ref().map_or(0.0, |(_, samples)| samples.most());
        row.ours.most().max(rival).max(row.published_alike().unwrap_or(0.0))
    };
    rows.iter().map(of).fold(0.0, f64::max)
}

fn row_height(row: &Row) -> f64 {
    let more = usize::from(row.rival.is_some()) + usize::from(row.published_alike().is_some());
    BAR_HEIGHT + more as f64 * (BAR_HEIGHT + 2.0) + BAR_GAP
}

/// Returns the x coordinate of a value.
fn x_of(value: f64, axis: Axis) -> f64 {
    BARS_LEFT + (BARS_RIGHT - BARS_LEFT) * axis.part(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::EXPERIMENTS;

    #[test]
    fn many_rows_fill_several_panels() {
        let rows: Vec<Row> = (1..=200)
            .map(|number| Row {
                ours: Samples::from(f64::from(number)),
                ..Row::new(format!("row {number}"), "time", "ns")
            })
            .collect();
        let text = plot(&EXPERIMENTS[0], &rows);
        assert!(rows.iter().all(|row| text.contains(&format!(">{}<", row.name))));
        assert!(text.contains(">time (ns), 7 of 7<") && text.contains("width=\"4000\""), "{text}");
    }

    #[test]
    fn a_plot_names_rival_and_better_direction() {
        let rival = Some(("A & B".to_owned(), Samples(vec![20.0; 3])));
        let row = Row { ours: Samples(vec![10.0; 3]), rival, ..Row::new("one", "time", "ns") };
        let text = plot(&EXPERIMENTS[0], &[row]);
        for words in [">Shunt<", ">A &amp; B<", ">time (ns)<", ">lower is better<", ">2.00 ×<"] {
            assert!(text.contains(words), "{words}");
        }
        assert_eq!(text.matches('<').count(), text.matches('>').count());
    }

    #[test]
    fn a_long_heading_overlaps_no_text() {
        let metric = "stale packets at 100 Gbit/s of 64 bytes, by engine, as computed from the change \
             times";
        let rival = Some(("other".to_owned(), Samples(vec![20.0; 3])));
        let row = Row { ours: Samples(vec![10.0; 3]), rival, ..Row::new("one", metric, "count") };
        let text = plot(&EXPERIMENTS[0], &[row]);
        let line = |words: &str| text.lines().find(|line| line.contains(words)).unwrap();
        let place = |words: &str| {
            let (_, rest) = line(words).split_once("y=\"").unwrap();
            rest.split('"').next().unwrap().parse::<f64>().unwrap()
        };
        let heading = place(metric);
        assert!(line(metric).contains("font-size=\"12\""), "{}", line(metric));
        for words in ["lower is better", "ratio to the rival"] {
            assert!((place(words) - heading).abs() >= 16.0, "{words}");
        }
    }

    #[test]
    fn published_values_are_drawn() {
        let row = Row {
            better: Better::Neither,
            ours: Samples::from(10.0),
            published: Some(12.0),
            ..Row::new("one", "rules", "")
        };
        let text = plot(&EXPERIMENTS[0], &[row]);
        for words in [">published<", ">rules<", ">12.0<", PUBLISHED] {
            assert!(text.contains(words), "{words}");
        }
    }
}

//! Line plots over time: one panel per row.

use std::fmt::Write as _;

use super::{
    Row,
    axis::{tick_label, tick_step},
    plot::{
        Anchor, Drawing, FAINT, Font, GREY, GRID, HEAD, MARGIN, OURS, PLAIN, PUBLISHED, RIVAL,
        TICK, WIDTH,
    },
};

/// Left edge of the panel, after the axis labels.
const LEFT: f64 = 96.0;
/// Height of the area with the lines, in SVG units.
const HEIGHT: f64 = 190.0;
/// Height of the text above that area.
const HEAD_HEIGHT: f64 = 72.0;
/// Height of the axis labels below it, with the gap to the next panel.
const FOOT: f64 = 52.0;

/// Colours of the lines in order. A plot has at most this number of lines.
const COLORS: [&str; 4] = ["#74b816", OURS, RIVAL, PUBLISHED];

/// Maps values to page coordinates.
struct Scale {
    x: (f64, f64),
    y_end: f64,
    top: f64,
}

impl Scale {
    fn x(&self, value: f64) -> f64 {
        let (begin, end) = self.x;
        LEFT + (WIDTH - MARGIN - LEFT) * (value - begin) / (end - begin).max(1e-9)
    }

    fn y(&self, value: f64) -> f64 {
        self.top + HEIGHT * (1.0 - value / self.y_end)
    }
}

impl Drawing {
    /// Draws the lines of a row. The time of a point is relative to the event.
    pub(super) fn lines(&mut self, row: &Row) {
        let points = || row.curves.iter().flat_map(|curve| &curve.points);
        let begin = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let end = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let most = points().map(|point| point.1).fold(0.0, f64::max);
        let step = tick_step(most);
        let y_end = step * (most / step).ceil().max(1.0);
        let unit = if row.unit.is_empty() { String::new() } else { format!(" ({})", row.unit) };
        let head = format!("{}: {}{unit}", row.metric, row.name);
        self.text((MARGIN, self.y + 30.0), HEAD, &head);
        self.names(row);
        let scale = Scale { x: (begin, end), y_end, top: self.y + HEAD_HEIGHT };
        self.grid(&scale, step);
        for (curve, color) in row.curves.iter().zip(COLORS) {
            let places = curve.points.iter().map(|(x, y)| (scale.x(*x), scale.y(*y)));
            let places: Vec<String> = places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                self.body,
                "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"1.6\" points=\"{}\"/>",
                places.join(" "),
            );
        }
        self.y += HEAD_HEIGHT + HEIGHT + FOOT;
    }

    fn names(&mut self, row: &Row) {
        let mut x = LEFT;
        for (curve, color) in row.curves.iter().zip(COLORS) {
            let y = self.y + 42.0;
            self.rectangle((x, y), (14.0, 14.0), color);
            self.text((x + 20.0, y + 12.0), PLAIN, &curve.name);
            x += 48.0 + 7.6 * curve.name.chars().count() as f64;
        }
    }

    fn grid(&mut self, scale: &Scale, step: f64) {
        let (left, right) = (LEFT, WIDTH - MARGIN);
        let mut tick = 0.0;
        while tick <= scale.y_end * 1.000_001 {
            let y = scale.y(tick);
            self.line((left, y), (right, y), if tick == 0.0 { GREY } else { GRID });
            let font = Font { anchor: Anchor::End, ..TICK };
            self.text((left - 8.0, y + 4.0), font, &tick_label(tick, step));
            tick += step;
        }
        let (begin, end) = scale.x;
        let bottom = scale.top + HEIGHT;
        let step = tick_step(end - begin);
        let mut tick = (begin / step).ceil() * step;
        while tick <= end {
            let x = scale.x(tick);
            let color = if tick.abs() < 1e-9 { GREY } else { GRID };
            self.line((x, scale.top), (x, bottom), color);
            self.text((x, bottom + 15.0), TICK, &format!("{tick:.0}"));
            tick += step;
        }
        let font = Font { anchor: Anchor::End, ..FAINT };
        self.text((right, bottom + 32.0), font, "milliseconds from the change");
    }
}

#[cfg(test)]
mod tests {
    use crate::experiment::{Better, Curve, EXPERIMENTS, Row, Samples, plot};

    #[test]
    fn a_row_with_curves_is_drawn_as_lines() {
        let curve = |name: &str, low: f64| Curve {
            name: name.to_owned(),
            points: vec![(-10.0, 100.0), (0.0, low), (10.0, 100.0)],
        };
        let row = Row {
            better: Better::Neither,
            ours: Samples::from(100.0),
            curves: vec![curve("off", 20.0), curve("on & on", 60.0)],
            ..Row::new("all", "packets", "")
        };
        let text = plot(&EXPERIMENTS[0], &[row]);
        assert_eq!(text.matches("<polyline").count(), 2);
        for words in [">packets: all<", ">off<", ">on &amp; on<", ">-10<", ">10<"] {
            assert!(text.contains(words), "{words}");
        }
        assert_eq!(text.matches('<').count(), text.matches('>').count());
    }
}

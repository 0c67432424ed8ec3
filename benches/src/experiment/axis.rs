//! The value axis of a bar panel: positions of values, and ticks.

use std::ops::RangeInclusive;

/// A linear axis from zero, or a logarithmic one for values that are far apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Axis {
    /// Linear, from zero.
    Even {
        /// Distance between two ticks.
        step: f64,
        /// The last tick.
        end: f64,
    },
    /// Logarithmic.
    Powers {
        /// The first power of ten.
        low: i32,
        /// The last power of ten.
        high: i32,
    },
}

/// Ratio of values above which a linear axis hides small bars.
const FAR_APART: f64 = 3e3;

/// Maximum number of ticks on a logarithmic axis.
const POWERS_MAX: i32 = 8;

/// Supported powers of ten.
const POWERS: RangeInclusive<i32> = -12..=40;

impl Axis {
    /// Returns an axis that fits values up to `most`, including the values of `bars`.
    pub(super) fn of(bars: impl IntoIterator<Item = f64>, most: f64) -> Self {
        let least = bars.into_iter().fold(f64::INFINITY, f64::min);
        if least > 0.0 && most.is_finite() && most / least > FAR_APART {
            // The shortest bar must be visible, too.
            return Self::Powers { low: floor(least / 2.0), high: floor(most) + 1 };
        }
        let step = tick_step(most);
        Self::Even { step, end: step * (most / step).ceil().max(1.0) }
    }

    /// Returns the position of a value as a fraction of the axis.
    pub(super) fn part(self, value: f64) -> f64 {
        let part = match self {
            Self::Even { end, .. } => value / end,
            Self::Powers { low, high } => {
                (value.max(f64::MIN_POSITIVE).log10() - f64::from(low)) / f64::from(high - low)
            }
        };
        part.clamp(0.0, 1.0)
    }

    /// Returns the ticks in order, with their labels.
    pub(super) fn ticks(self) -> Vec<(f64, String)> {
        match self {
            Self::Even { step, end } => {
                let ticks = (0_u32..).map(|number| f64::from(number) * step);
                let ticks = ticks.take_while(|tick| *tick <= end * 1.000_001);
                ticks.map(|tick| (tick, tick_label(tick, step))).collect()
            }
            Self::Powers { low, high } => {
                let every = usize::try_from((high - low) / POWERS_MAX + 1).unwrap_or(1);
                let tick = |power: i32| (10f64.powi(power), format!("1e{power}"));
                (low..=high).step_by(every).map(tick).collect()
            }
        }
    }

    /// Returns a note for the panel heading.
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Even { .. } => "",
            Self::Powers { .. } => ", logarithmic",
        }
    }
}

/// Returns the largest power of ten that is not above a value.
fn floor(value: f64) -> i32 {
    POWERS.rev().find(|power| 10f64.powi(*power) <= value).unwrap_or(*POWERS.start())
}

/// Returns a round tick distance that divides `most` into four to ten steps.
pub(super) fn tick_step(most: f64) -> f64 {
    if most <= 0.0 {
        return 1.0;
    }
    let power = 10f64.powf((most / 4.0).log10().floor());
    let steps = [5.0, 2.0, 1.0].map(|digit| digit * power);
    steps.into_iter().find(|step| most / step >= 4.0).unwrap_or(power)
}

/// Formats a tick label with just enough digits to differ from neighbouring labels.
pub(super) fn tick_label(tick: f64, step: f64) -> String {
    let (divisor, suffix) = match step {
        step if step >= 1e6 => (1e6, " M"),
        step if step >= 1e3 => (1e3, " K"),
        _ => (1.0, ""),
    };
    let digits = if step / divisor >= 1.0 { 0 } else { 2 };
    if tick == 0.0 { "0".to_owned() } else { format!("{:.digits$}{suffix}", tick / divisor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axis_ticks_are_few_round_numbers() {
        for (most, step) in [(1.0, 0.2), (149.0, 20.0), (349.0, 50.0), (40_000.0, 10_000.0)] {
            assert_eq!(tick_step(most), step, "{most}");
        }
        assert_eq!(tick_label(150_000.0, 50_000.0), "150 K");
        assert_eq!(tick_label(0.4, 0.2), "0.40");
        let words = |axis: Axis| axis.ticks().into_iter().map(|(_, word)| word).collect::<Vec<_>>();
        assert_eq!(words(Axis::of([3.0], 4.0)), ["0", "1", "2", "3", "4"]);
        assert_eq!(words(Axis::of([30.0], 2e12)).first().map(String::as_str), Some("1e1"));
        assert!(words(Axis::of([1e-3], 1e38)).len() <= 9);
    }

    #[test]
    fn bars_of_very_different_values_are_all_visible() {
        let even = Axis::of([10.0, 40.0], 40.0);
        assert_eq!((even.part(0.0), even.part(20.0), even.part(40.0)), (0.0, 0.5, 1.0));
        let powers = Axis::of([10.0, 1e7], 1e7);
        assert_eq!(powers, Axis::Powers { low: 0, high: 8 });
        assert_eq!((powers.part(10.0), powers.part(1e4)), (0.125, 0.5));
        assert_eq!(powers.part(0.0), 0.0);
        assert!(matches!(Axis::of([0.0, 1e9], 1e9), Axis::Even { .. }), "zero has no logarithm");
    }
}

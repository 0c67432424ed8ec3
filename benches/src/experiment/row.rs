//! One measured value of an experiment with its spread, compared with the value of a rival.
//!
//! Both values are measured in alternating rounds, so that other load on the machine affects both.
//! Each round has a ratio, and the spread of these ratios is the noise.

/// The values of several rounds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples(pub Vec<f64>);

impl Samples {
    /// Returns the median; zero without samples.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = sorted.get(middle).copied().unwrap_or_default();
        let lower = sorted.get(middle.saturating_sub(1)).copied().unwrap_or_default();
        if sorted.len().is_multiple_of(2) { f64::midpoint(lower, upper) } else { upper }
    }

    /// Applies a function to each sample.
    #[must_use]
    pub fn map(&self, each: impl Fn(f64) -> f64) -> Self {
        Self(self.0.iter().map(|sample| each(*sample)).collect())
    }

    /// Returns the mean of each pair of samples.
    ///
    /// Adding and removing a rule have different costs, so both together are one sample.
    #[must_use]
    pub fn in_pairs(&self) -> Self {
        Self(self.0.chunks_exact(2).map(|pair| f64::midpoint(pair[0], pair[1])).collect())
    }

    /// Returns the smallest sample.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.0.iter().copied().min_by(f64::total_cmp).unwrap_or_default()
    }

    /// Returns the largest sample.
    #[must_use]
    pub fn most(&self) -> f64 {
        self.0.iter().copied().max_by(f64::total_cmp).unwrap_or_default()
    }
}

/// Returns the `percent` percentile; `None` without samples.
#[must_use]
pub fn quantile(samples: &[f64], percent: usize) -> Option<f64> {
    quantile_per_mille(samples, percent * 10)
}

/// Returns the quantile of `per_mille` thousandths; `None` without samples.
#[must_use]
pub fn quantile_per_mille(samples: &[f64], per_mille: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let place = (sorted.len() * per_mille).div_ceil(1000);
    sorted.get(place.saturating_sub(1)).copied()
}

impl From<f64> for Samples {
    fn from(value: f64) -> Self {
        Self(vec![value])
    }
}

/// The better direction of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Smaller values are better, such as times and bytes.
    Less,
    /// Larger values are better, such as rates.
    More,
    /// Neither: context, such as the share of a CPU.
    Neither,
}

impl Better {
    /// Returns the label for plots.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Less => "lower is better",
            Self::More => "higher is better",
            Self::Neither => "for information only",
        }
    }
}

/// One measured value.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the measured object.
    pub name: String,
    /// Name of the measured quantity.
    pub metric: &'static str,
    /// Unit of the value.
    pub unit: &'static str,
    /// The better direction.
    pub better: Better,
    /// Shunt's samples, one per round.
    pub ours: Samples,
    /// The rival's name and its samples of the same rounds.
    pub rival: Option<(String, Samples)>,
    /// The published value.
    pub published: Option<f64>,
    /// True if the published value is shown but not compared with this value.
    ///
    /// The published value is then a bound, or has another unit.
    pub is_of_another: bool,
    /// The reason why the value differs from the published value,
    /// or from the rival's value.
    pub reason: &'static str,
    /// Curves over time, drawn instead of a bar.
    pub curves: Vec<Curve>,
}

/// A line through points.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// Label of the line.
    pub name: String,
    /// Milliseconds relative to the event, and the value.
    pub points: Vec<(f64, f64)>,
}

impl Row {
    /// Creates a row without a rival.
    #[must_use]
    pub fn new(name: impl Into<String>, metric: &'static str, unit: &'static str) -> Self {
        let (better, ours) = (Better::Less, Samples::default());
        Self {
            name: name.into(),
            metric,
            unit,
            better,
            ours,
            rival: None,
            published: None,
            is_of_another: false,
            reason: "",
            curves: Vec::new(),
        }
    }

    /// Adds the published value, and the reason if it differs by more than 10 %.
    #[must_use]
    pub fn beside_published(self, published: Option<f64>, reason: &'static str) -> Self {
        let row = Self { published, ..self };
        if row.is_far_from_published() { Self { reason, ..row } } else { row }
    }

    /// Adds a published value that is not comparable, and the reason.
    #[must_use]
    pub fn beside_another(self, published: Option<f64>, reason: &'static str) -> Self {
        let reason = if published.is_some() { reason } else { self.reason };
        Self { published, is_of_another: true, reason, ..self }
    }

    /// Returns whether the value differs by more than 10 % from the published value.
    #[must_use]
    pub fn is_far_from_published(&self) -> bool {
        self.part_of_published().is_some_and(|part| (part - 1.0).abs() > 0.1)
    }

    /// Returns the published value if it is comparable.
    #[must_use]
    pub fn published_alike(&self) -> Option<f64> {
        self.published.filter(|_| !self.is_of_another)
    }

    /// Returns the value divided by the published value;
    /// `None` without a published value.
    #[must_use]
    pub fn part_of_published(&self) -> Option<f64> {
        let published = self.published_alike().filter(|published| *published != 0.0)?;
        Some(self.ours.median() / published)
    }

    /// Returns how many times better Shunt is; `None` without a rival's samples.
    #[must_use]
    pub fn ratio(&self) -> Option<Ratio> {
        let (_, rival) = self.rival.as_ref().filter(|_| self.better != Better::Neither)?;
        let over = |ours: f64, rival: f64| match self.better {
            Better::More => ours / rival,
            Better::Less | Better::Neither => rival / ours,
        };
        let is_apart = self.ours.most() < rival.least() || rival.most() < self.ours.least();
        let (ratios, rounds) = if self.ours.0.len() == rival.0.len() {
            let pairs = self.ours.0.iter().zip(&rival.0).map(|(ours, rival)| over(*ours, *rival));
            let pairs: Vec<f64> = pairs.collect();
            // A ratio to zero is infinite. Without such rounds, only the worst rounds remain.
            if pairs.iter().any(|ratio| !ratio.is_finite()) {
                return None;
            }
            let rounds = pairs.len();
            (Samples(pairs), rounds)
        } else {
            // The values were not measured in alternating rounds: each of our samples may pair with
            // each sample of the rival.
            let ends = [
                over(self.ours.most(), rival.least()),
                over(self.ours.median(), rival.median()),
                over(self.ours.least(), rival.most()),
            ];
            let known = ends.into_iter().filter(|ratio| ratio.is_finite()).collect();
            (Samples(known), self.ours.0.len().min(rival.0.len()))
        };
        let is_known = rounds > 0 && !ratios.0.is_empty();
        is_known.then(|| Ratio {
            middle: ratios.median(),
            least: ratios.least(),
            most: ratios.most(),
            rounds,
            is_apart,
            varies: VARYING.contains(&self.unit),
        })
    }
}

/// The advantage of Shunt over the rival as a ratio, with the spread over rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// Median ratio of the rounds.
    pub middle: f64,
    /// Ratio of our worst round.
    pub least: f64,
    /// Ratio of our best round.
    pub most: f64,
    /// Number of rounds.
    pub rounds: usize,
    /// True if all of our samples lie on one side of all of the rival's.
    pub is_apart: bool,
    /// True if the value varies between measurements: times vary, counts do not.
    pub varies: bool,
}

/// Units of values that vary between rounds.
const VARYING: [&str; 9] = ["ns", "us", "ms", "s", "1/s", "cycles", "cores", "Mpps", "Gbit/s"];

/// The conclusion from a ratio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Shunt is better.
    Better,
    /// Shunt is worse.
    Worse,
    /// The rounds disagree, or the difference is below 2 %.
    Noise,
    /// The value varies, and there are only one or two rounds,
    /// which agree by chance in every other row.
    Unsure,
}

/// Largest difference that is noise.
///
/// The code layout of a build alone causes differences of this size.
const NOISE: f64 = 0.02;

impl Ratio {
    /// Returns the conclusion from the ratio.
    ///
    /// Five rounds agree by chance in one row of sixteen. Three rounds without overlap agree by
    /// chance in one row of ten. A count that never varies needs no second round.
    #[must_use]
    pub fn verdict(self) -> Verdict {
        let agrees = self.least > 1.0 || self.most < 1.0;
        match self.rounds {
            2 => Verdict::Unsure,
            1 if self.varies => Verdict::Unsure,
            3 | 4 if !self.is_apart => Verdict::Noise,
            _ if !agrees => Verdict::Noise,
            _ if self.middle > 1.0 + NOISE => Verdict::Better,
            _ if self.middle < 1.0 - NOISE => Verdict::Worse,
            _ => Verdict::Noise,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(better: Better, ours: &[f64], rival: &[f64]) -> Row {
        let rival = Some(("rival".to_owned(), Samples(rival.to_vec())));
        Row { better, ours: Samples(ours.to_vec()), rival, ..Row::new("x", "time", "ns") }
    }

    #[test]
    fn only_large_differences_have_a_reason() {
        let beside = |value: f64, published| {
            let row = Row { ours: value.into(), ..Row::new("one", "time", "ns") };
            let row = row.beside_published(published, "the reason");
            (row.published, row.reason)
        };
        assert_eq!(beside(91.0, Some(100.0)), (Some(100.0), ""));
        assert_eq!(beside(89.0, Some(100.0)), (Some(100.0), "the reason"));
        assert_eq!(beside(111.0, Some(100.0)), (Some(100.0), "the reason"));
        assert_eq!(beside(89.0, None), (None, ""));
    }

    #[test]
    fn incomparable_values_are_shown_only() {
        let row = Row { ours: 50.0.into(), ..Row::new("one", "time", "ns") };
        let row = row.beside_another(Some(100.0), "a bound");
        assert_eq!((row.published, row.reason), (Some(100.0), "a bound"));
        assert_eq!((row.part_of_published(), row.is_far_from_published()), (None, false));
    }

    #[test]
    fn two_values_in_a_row_become_their_mean() {
        assert_eq!(Samples(vec![1.0, 3.0, 10.0, 20.0]).in_pairs(), Samples(vec![2.0, 15.0]));
    }

    #[test]
    fn ratio_above_one_always_favours_shunt() {
        let half = row(Better::Less, &[50.0], &[100.0]).ratio().unwrap();
        let twice = row(Better::More, &[100.0], &[50.0]).ratio().unwrap();
        assert_eq!((half.middle, twice.middle), (2.0, 2.0));
        assert_eq!(half.verdict(), Verdict::Unsure, "a time of one round");
        assert_eq!(Ratio { varies: false, ..half }.verdict(), Verdict::Better);
        assert_eq!(row(Better::Neither, &[1.0], &[2.0]).ratio(), None);
    }

    #[test]
    fn a_row_without_a_rival_has_no_ratio() {
        // Zero in two rounds of three is the best result. The third round alone is worse than the
        // rival.
        let best = row(Better::Less, &[0.0, 0.0, 5.0], &[7.0, 8.0, 1.0]);
        assert_eq!(best.ratio(), None);
        assert_eq!(row(Better::More, &[5.0, 5.0], &[0.0, 5.0]).ratio(), None);
        assert_eq!(row(Better::More, &[0.0], &[5.0]).ratio().map(|ratio| ratio.middle), Some(0.0));
    }

    #[test]
    fn differing_rounds_count_as_noise() {
        let mixed = row(Better::Less, &[100.0, 100.0, 100.0], &[90.0, 120.0, 130.0]);
        assert_eq!(mixed.ratio().unwrap().verdict(), Verdict::Noise);
        let tiny = row(Better::Less, &[100.0; 3], &[101.0; 3]);
        assert_eq!(tiny.ratio().unwrap().verdict(), Verdict::Noise);
        let worse = row(Better::Less, &[100.0, 101.0, 99.0], &[80.0, 82.0, 81.0]);
        assert_eq!(worse.ratio().unwrap().verdict(), Verdict::Worse);
    }

    #[test]
    fn few_rounds_need_a_larger_difference() {
        let verdict =
            |ours: &[f64], rival: &[f64]| row(Better::Less, ours, rival).ratio().unwrap().verdict();
        assert_eq!(verdict(&[10.0, 11.0], &[20.0, 22.0]), Verdict::Unsure);
        // Shunt is better in each round, but its worst round is worse than the rival's best.
        let (ours, rival) = ([10.0, 20.0, 10.0, 10.0, 10.0], [12.0, 24.0, 12.0, 12.0, 12.0]);
        assert_eq!(verdict(&ours[..3], &rival[..3]), Verdict::Noise);
        assert_eq!(verdict(&ours, &rival), Verdict::Better);
    }

    #[test]
    fn a_rate_of_one_round_decides_nothing() {
        for unit in ["Gbit/s", "cores"] {
            let one = Row { unit, ..row(Better::Less, &[1.0], &[2.0]) };
            assert_eq!(one.ratio().unwrap().verdict(), Verdict::Unsure, "{unit}");
        }
    }

    #[test]
    fn ratios_are_those_of_rounds_not_of_extremes() {
        // The machine was busy in the second round, for our value and for the rival's.
        let busy = row(Better::Less, &[100.0, 200.0], &[110.0, 220.0]).ratio().unwrap();
        assert!((busy.least - 1.1).abs() < 1e-9 && (busy.most - 1.1).abs() < 1e-9);
    }

    #[test]
    fn middle_of_ratio_lies_within_its_spread() {
        let uneven = row(Better::Less, &[1.0, 2.0, 90.0, 1.0, 1.5], &[40.0, 80.0]).ratio().unwrap();
        assert_eq!((uneven.middle, uneven.rounds), (40.0, 2));
        assert!(uneven.least < 0.5 && uneven.most == 80.0, "{uneven:?}");
        let even = row(Better::Less, &[1.0, 50.0, 2.0], &[10.0, 20.0, 30.0]).ratio().unwrap();
        assert_eq!((even.least, even.middle, even.most), (0.4, 10.0, 15.0));
    }

    #[test]
    fn a_rival_that_measured_nothing_has_no_ratio() {
        assert_eq!(row(Better::Less, &[1.0], &[]).ratio(), None);
        assert_eq!(row(Better::Less, &[0.0], &[1.0]).ratio(), None);
    }

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<f64> = (1..=2000).rev().map(f64::from).collect();
        assert_eq!(quantile(&samples, 50), Some(1000.0));
        assert_eq!(quantile_per_mille(&samples, 999), Some(1998.0));
        assert_eq!(quantile_per_mille(&samples[..10], 999), Some(2000.0));
        assert_eq!(quantile_per_mille(&[], 999), None);
    }

    #[test]
    fn an_even_sample_has_the_middle_median() {
        assert_eq!(Samples(vec![4.0, 1.0, 2.0, 9.0]).median(), 3.0);
        assert_eq!(Samples::default().median(), 0.0);
    }
}

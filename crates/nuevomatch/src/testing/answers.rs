//! Comparison of lookups with two judges: a linear scan, and TupleMerge.
//!
//! The judges share no code with the classifier. A scan takes as long as there are rules, so
//! TupleMerge judges many more headers. The results of TupleMerge are compared with the scan, too.

use std::collections::HashSet;

use super::{headers::HeaderStream, tuple_merge::TupleMerge};
use crate::{
    AnyStartIndex, BestMatch, BucketCapacity, Error, KeySchema, NuevoMatch, NuevoMatchSettings,
    PartitionSettings, PriorityRule, StartIndexKind,
};

/// A rule set with a classifier by each kind of index.
#[derive(Debug)]
pub struct CheckedSet {
    rules: Vec<PriorityRule<5>>,
    classifiers: [(StartIndexKind, NuevoMatch<5, AnyStartIndex>); 3],
}

/// A lookup with a result that the judge does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongAnswer {
    /// The kind of the index, or `None` if the second judge differs from the first.
    pub kind: Option<StartIndexKind>,
    /// The header that was looked up.
    pub header: [u32; 5],
    /// The result of the wrong lookup.
    pub found: Option<BestMatch>,
    /// The result of the judge.
    pub expected: Option<BestMatch>,
}

/// Number of headers that are generated at once.
const BATCH: usize = 8_192;

/// The widths of the lanes of a 5-tuple.
const WIDTHS: [u8; 5] = [32, 32, 16, 16, 8];

/// Largest number of rules in a bucket of a learned index.
///
/// Learned indexes have small errors over few starts, so small buckets give them many starts.
const BUCKET_RULES: usize = 4;

impl CheckedSet {
    /// Builds the classifiers of a rule set.
    ///
    /// # Errors
    ///
    /// The errors of [`NuevoMatch::build`].
    pub fn new(rules: Vec<PriorityRule<5>>) -> Result<Self, Error> {
        let schema = KeySchema::five_tuple();
        let partition = PartitionSettings {
            sets_max: 3,
            bucket_rules: BUCKET_RULES,
            spare_percent: 0,
            coverage_permille_min: 0,
        };
        let small = NuevoMatchSettings { partition, capacity: BucketCapacity::Fixed, seed: 1 };
        let build = |kind| {
            let is_tree = kind == StartIndexKind::Tree;
            let settings = if is_tree { NuevoMatchSettings::default() } else { small };
            Ok((kind, NuevoMatch::build_with(&schema, &rules, &settings, &kind)?))
        };
        let classifiers = [
            build(StartIndexKind::Tree)?,
            build(StartIndexKind::Segments)?,
            build(StartIndexKind::Rqrmi)?,
        ];
        Ok(Self { rules, classifiers })
    }

    /// Returns the number of rules.
    #[must_use]
    pub const fn rules_count(&self) -> usize {
        self.rules.len()
    }

    /// Compares lookups of `count` distinct headers with a linear scan.
    ///
    /// Calls `advance` with the number of headers of each batch, and `wrong` for each difference.
    pub fn compare_with_scan(
        &self,
        count: usize,
        mut advance: impl FnMut(usize),
        mut wrong: impl FnMut(WrongAnswer),
    ) {
        let mut stream = HeaderStream::new(&self.rules, 7);
        let (mut seen, mut batch) = (HashSet::with_capacity(count), Vec::new());
        while seen.len() < count {
            batch.resize(BATCH, [0; 5]);
            stream.fill(&mut batch);
            batch.retain(|header| seen.len() < count && seen.insert(*header));
            self.compare(&batch, |header| self.scan(header), &mut wrong);
            advance(batch.len());
        }
    }

    /// Compares lookups of `count` headers with TupleMerge.
    ///
    /// TupleMerge is compared with a scan for the first headers. The arguments are those of
    /// [`Self::compare_with_scan`].
    pub fn compare_with_tuple_merge(
        &self,
        count: usize,
        mut advance: impl FnMut(usize),
        mut wrong: impl FnMut(WrongAnswer),
    ) {
        let rival = TupleMerge::new(&WIDTHS, &self.rules);
        let mut stream = HeaderStream::new(&self.rules, 8);
        let (mut compared, mut batch) = (0, vec![[0; 5]; BATCH]);
        while compared < count {
            batch.truncate(count - compared);
            stream.fill(&mut batch);
            for header in batch.iter().filter(|_| compared == 0) {
                let (header, found, expected) = (*header, rival.lookup(header), self.scan(header));
                if found != expected {
                    wrong(WrongAnswer { kind: None, header, found, expected });
                }
            }
            self.compare(&batch, |header| rival.lookup(header), &mut wrong);
            compared += batch.len();
            advance(batch.len());
        }
    }

    /// Looks up headers by each index, and compares the results with those of a judge.
    fn compare(
        &self,
        headers: &[[u32; 5]],
        judge: impl Fn(&[u32; 5]) -> Option<BestMatch>,
        wrong: &mut impl FnMut(WrongAnswer),
    ) {
        let expected: Vec<_> = headers.iter().map(judge).collect();
        let mut found = vec![None; headers.len()];
        for (kind, classifier) in &self.classifiers {
            classifier.lookup_batch(headers, &mut found);
            for ((header, found), expected) in headers.iter().zip(&found).zip(&expected) {
                if found != expected {
                    let (header, found, expected) = (*header, *found, *expected);
                    wrong(WrongAnswer { kind: Some(*kind), header, found, expected });
                }
            }
        }
    }

    /// Returns the first rule that matches, which has the best priority in a rule set.
    fn scan(&self, header: &[u32; 5]) -> Option<BestMatch> {
        let rule = self.rules.iter().find(|rule| rule.matches(header))?;
        Some(BestMatch { priority: rule.priority(), value: rule.value() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::SyntheticSet;

    /// A classifier without a rule gives wrong answers, which both judges report.
    #[test]
    fn wrong_answers_are_reported() {
        let rules = SyntheticSet::ALL[0].rules(200, 3);
        let mut set = CheckedSet::new(rules.clone()).unwrap();
        let (mut compared, mut wrong) = (0, Vec::new());
        set.compare_with_scan(3_000, |count| compared += count, |own| wrong.push(own));
        set.compare_with_tuple_merge(3_000, |count| compared += count, |own| wrong.push(own));
        assert!(compared == 6_000 && wrong.is_empty(), "{compared} {wrong:?}");
        let (kind, classifier) = &mut set.classifiers[2];
        let (kind, removed) = (*kind, &rules[0]);
        assert!(classifier.remove(removed));
        set.compare_with_scan(3_000, |_| (), |own| wrong.push(own));
        let of_scan = wrong.len();
        set.compare_with_tuple_merge(5_000, |_| (), |own| wrong.push(own));
        assert!(0 < of_scan && of_scan < wrong.len(), "{of_scan} {}", wrong.len());
        for own in wrong {
            assert_eq!(own.kind, Some(kind));
            assert_eq!(own.expected.map(|best| best.value), Some(removed.value()), "{own:?}");
        }
    }
}

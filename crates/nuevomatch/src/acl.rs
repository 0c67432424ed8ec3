//! A classifier with the contract of `rte_acl` of DPDK, for programs that use that library.
//!
//! A rule has a priority (the largest wins), a number for the caller (`userdata`, not 0), and a
//! mask of categories. A lookup returns the `userdata` of the rule that wins in each category. The
//! contract follows `rte_acl_add_rules`, `rte_acl_build` and `rte_acl_classify`, with these
//! differences:
//!
//! - Fields are in the byte order of the machine, where `rte_acl` reads packets in network order.
//! - Among rules of one priority, the rule with the smallest `userdata` wins. `rte_acl` does not
//!   define which rule wins.
//! - Any number of categories from 1 to 16 is legal. `rte_acl` requires 1 or a multiple of 4.
//! - [`AclClassifier::insert`] and [`AclClassifier::remove`] change rules without a new build.
//!
//! Each category has its own [`NuevoMatch`], so a lookup costs one search per category.

use crate::{
    BestMatch, Error, FieldMatch, KeySchema, NuevoMatch, NuevoMatchSettings, PRIORITY_MAX,
    PriorityRule,
};

/// Largest number of categories, `RTE_ACL_MAX_CATEGORIES`.
pub const ACL_CATEGORIES_MAX: usize = 16;

/// Largest priority of a rule, `RTE_ACL_MAX_PRIORITY`.
pub const ACL_PRIORITY_MAX: u32 = (1 << 29) - 1;

/// Number of keys of one call of a classifier.
const BATCH: usize = 32;

/// A rule over IPv4 5-tuples, with the fields of `rte_acl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AclRule {
    /// Bit `i` is set if the rule is in category `i`.
    pub category_mask: u32,
    /// Priority from 1 to [`ACL_PRIORITY_MAX`]; the largest wins.
    pub priority: u32,
    /// The result of a lookup that the rule wins.
    /// The `userdata` of a rule is not 0, because the result 0 means that no rule matches.
    pub userdata: u32,
    /// Source address and prefix length.
    pub source: (u32, u8),
    /// Destination address and prefix length.
    pub destination: (u32, u8),
    /// First and last source port.
    pub source_ports: (u16, u16),
    /// First and last destination port.
    pub destination_ports: (u16, u16),
    /// Protocol, and the mask of the bits of the protocol that are compared.
    pub protocol: (u8, u8),
}

impl AclRule {
    /// Returns the rule as a rule of a [`NuevoMatch`].
    fn priority_rule(&self) -> Result<PriorityRule<5>, Error> {
        if !(1..=ACL_PRIORITY_MAX).contains(&self.priority) {
            return Err(Error::AclPriority { priority: self.priority, max: ACL_PRIORITY_MAX });
        }
        if self.userdata == 0 {
            return Err(Error::AclUserData);
        }
        let prefix = |(value, length): (u32, u8)| FieldMatch::Prefix {
            value: value.into(),
            length: length.into(),
        };
        let ports =
            |(low, high): (u16, u16)| FieldMatch::Range { low: low.into(), high: high.into() };
        let (value, mask) = self.protocol;
        let fields = [
            prefix(self.source),
            prefix(self.destination),
            ports(self.source_ports),
            ports(self.destination_ports),
            FieldMatch::Mask { value: value.into(), mask: mask.into() },
        ];
        let priority = PRIORITY_MAX - self.priority;
        PriorityRule::new(&KeySchema::five_tuple(), &fields, priority, self.userdata)
    }

    /// Returns whether the rule is in a category.
    const fn is_in(&self, category: usize) -> bool {
        self.category_mask >> category & 1 != 0
    }
}

/// A classifier with the contract of `rte_acl`.
///
/// ```
/// use shunt_nuevomatch::{AclClassifier, AclRule};
///
/// let web = AclRule {
///     category_mask: 0b01,
///     priority: 10,
///     userdata: 7,
///     source: (0, 0),
///     destination: (0x0a00_0000, 8),
///     source_ports: (0, 65535),
///     destination_ports: (80, 80),
///     protocol: (6, 0xff),
/// };
/// let rest = AclRule { category_mask: 0b11, priority: 1, userdata: 1, ..web };
/// let rest = AclRule { destination: (0, 0), destination_ports: (0, 65535), protocol: (0, 0), ..rest };
/// let classifier = AclClassifier::build(&[web, rest], 2, 0)?;
///
/// // Source, destination, source port, destination port, protocol.
/// let keys = [[0xc0a8_0001, 0x0a01_0203, 40000, 80, 6], [0xc0a8_0001, 0x0b01_0203, 40000, 80, 6]];
/// let mut results = [0; 4];
/// classifier.classify(&keys, &mut results);
/// assert_eq!(results, [7, 1, 1, 1]);
/// # Ok::<(), shunt_nuevomatch::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct AclClassifier {
    categories: Vec<NuevoMatch<5>>,
}

impl AclClassifier {
    /// Builds a classifier of `categories` categories, with the seed of all hashes.
    ///
    /// # Errors
    ///
    /// - [`Error::AclCategories`] if there are no categories or more than [`ACL_CATEGORIES_MAX`].
    /// - [`Error::AclPriority`] or [`Error::AclUserData`] if the priority or `userdata` of a rule
    ///   is illegal.
    /// - [`Error::InvalidField`] if a prefix is too long or a range is empty.
    /// - [`Error::TooManyRules`] if the classifier cannot number the rules.
    /// - [`Error::Memory`] if the system refuses the memory that the build needs.
    pub fn build(rules: &[AclRule], categories: usize, seed: u64) -> Result<Self, Error> {
        if !(1..=ACL_CATEGORIES_MAX).contains(&categories) {
            return Err(Error::AclCategories { categories, max: ACL_CATEGORIES_MAX });
        }
        let settings = NuevoMatchSettings { seed, ..Default::default() };
        let build = |category: usize| {
            let rules = rules.iter().filter(|rule| rule.is_in(category));
            let rules: Vec<_> = rules.map(AclRule::priority_rule).collect::<Result<_, _>>()?;
            NuevoMatch::build(&KeySchema::five_tuple(), &rules, &settings)
        };
        // A rule that is in no category is checked too.
        rules.iter().try_for_each(|rule| rule.priority_rule().map(|_| ()))?;
        Ok(Self { categories: (0..categories).map(build).collect::<Result<_, _>>()? })
    }

    /// Writes the `userdata` of the winner in each category for each key, 0 for none.
    ///
    /// The results of a key are next to each other, in the order of categories.
    ///
    /// # Panics
    ///
    /// If `results` is shorter than the number of keys times the number of categories.
    pub fn classify(&self, keys: &[[u32; 5]], results: &mut [u32]) {
        let count = self.categories.len();
        let results = &mut results[..keys.len() * count];
        let mut best = [None; BATCH];
        for (keys, results) in keys.chunks(BATCH).zip(results.chunks_mut(BATCH * count)) {
            for (category, classifier) in self.categories.iter().enumerate() {
                classifier.lookup_batch(keys, &mut best);
                for (results, best) in results.chunks_mut(count).zip(&best) {
                    results[category] = best.map_or(0, |BestMatch { value, .. }| value);
                }
            }
        }
    }

    /// Adds a rule to its categories, and returns whether all of them had room.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::build`] for this rule.
    pub fn insert(&mut self, rule: &AclRule) -> Result<bool, Error> {
        let own = rule.priority_rule()?;
        let categories = self.categories.iter_mut().enumerate();
        let chosen = categories.filter(|(category, _)| rule.is_in(*category));
        Ok(chosen.fold(true, |has_room, (_, classifier)| classifier.insert(&own) && has_room))
    }

    /// Removes an equal rule from its categories; returns whether a category had it.
    ///
    /// # Errors
    ///
    /// The errors of [`Self::build`] for this rule.
    pub fn remove(&mut self, rule: &AclRule) -> Result<bool, Error> {
        let own = rule.priority_rule()?;
        let categories = self.categories.iter_mut().enumerate();
        let chosen = categories.filter(|(category, _)| rule.is_in(*category));
        Ok(chosen.fold(false, |had, (_, classifier)| classifier.remove(&own) || had))
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// Generates a rule.
    fn rule() -> impl Strategy<Value = AclRule> {
        let numbers = (0_u32..8, 1_u32..5, 1_u32..100);
        let address = || (0_u32..4, 30_u8..33);
        let ports = || (0_u16..4, 0_u16..4).prop_map(|(a, b)| (a.min(b), a.max(b)));
        let protocol = prop::sample::select(vec![(6, 0xff), (17, 0xff), (0, 0), (4, 4)]);
        (numbers, address(), address(), ports(), ports(), protocol).prop_map(
            |(numbers, source, destination, source_ports, destination_ports, protocol)| {
                let (category_mask, priority, userdata) = numbers;
                AclRule {
                    category_mask,
                    priority,
                    userdata,
                    source,
                    destination,
                    source_ports,
                    destination_ports,
                    protocol,
                }
            },
        )
    }

    /// Returns the value of the best rule, by comparing all rules.
    fn expected(rules: &[AclRule], category: usize, key: &[u32; 5]) -> u32 {
        let is_inside =
            |(low, high): (u16, u16), port: u32| (u32::from(low)..=u32::from(high)).contains(&port);
        let agrees = |(value, bits): (u32, u8), address: u32| {
            (value ^ address).checked_shr(32 - u32::from(bits)).unwrap_or(0) == 0
        };
        let matching = rules.iter().filter(|rule| {
            let (value, mask) = rule.protocol;
            rule.category_mask & 1 << category != 0
                && agrees(rule.source, key[0])
                && agrees(rule.destination, key[1])
                && is_inside(rule.source_ports, key[2])
                && is_inside(rule.destination_ports, key[3])
                && (u32::from(value) ^ key[4]) & u32::from(mask) == 0
        });
        let best = matching.min_by_key(|rule| (std::cmp::Reverse(rule.priority), rule.userdata));
        best.map_or(0, |rule| rule.userdata)
    }

    /// Compares the classifier with the list of rules.
    fn check(classifier: &AclClassifier, rules: &[AclRule], keys: &[[u32; 5]]) {
        let mut results = vec![7; keys.len() * 3];
        classifier.classify(keys, &mut results);
        for (key, results) in keys.iter().zip(results.chunks(3)) {
            let expected = [0, 1, 2].map(|category| expected(rules, category, key));
            assert_eq!(results, expected, "{key:?}");
        }
    }

    proptest! {
        #[test]
        fn each_category_has_its_winner(
            rules in vec(rule(), 0..60),
            more in vec(rule(), 0..20),
            keys in vec([0_u32..5, 0_u32..5, 0_u32..5, 0_u32..5, 4_u32..19], 1..80),
        ) {
            let mut classifier = AclClassifier::build(&rules, 3, 1).unwrap();
            check(&classifier, &rules, &keys);
            let mut rules = rules;
            for rule in more {
                prop_assert!(classifier.insert(&rule).unwrap());
                rules.push(rule);
            }
            check(&classifier, &rules, &keys);
            for rule in rules.drain(..rules.len() / 2) {
                let is_somewhere = rule.category_mask != 0;
                prop_assert_eq!(classifier.remove(&rule).unwrap(), is_somewhere);
            }
            check(&classifier, &rules, &keys);
        }
    }

    #[test]
    fn illegal_rules_are_refused() {
        let rule = AclRule {
            category_mask: 1,
            priority: 1,
            userdata: 1,
            source: (0, 0),
            destination: (0, 0),
            source_ports: (0, 65535),
            destination_ports: (0, 65535),
            protocol: (0, 0),
        };
        let refused =
            |rule: AclRule, categories| AclClassifier::build(&[rule], categories, 0).unwrap_err();
        let max = ACL_PRIORITY_MAX;
        let high = max + 1;
        let zero = AclRule { priority: 0, ..rule };
        assert_eq!(refused(zero, 1), Error::AclPriority { priority: 0, max });
        let above = AclRule { priority: high, category_mask: 0, ..rule };
        assert_eq!(refused(above, 1), Error::AclPriority { priority: high, max });
        assert_eq!(refused(AclRule { userdata: 0, ..rule }, 1), Error::AclUserData);
        let long = AclRule { source: (0, 33), ..rule };
        assert_eq!(refused(long, 1), Error::InvalidField { field: 0, bits: 32 });
        assert_eq!(refused(rule, 0), Error::AclCategories { categories: 0, max: 16 });
        assert_eq!(refused(rule, 17), Error::AclCategories { categories: 17, max: 16 });
    }
}

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
//!   [`LiveAclClassifier`] changes them while other threads classify.
//!
//! Each category has its own [`NuevoMatch`], so a lookup costs one search per category.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    AclError, AclRuleError, BestMatch, FieldMatch, KeySchema, LiveNuevoMatch, LiveReader,
    LiveSettings, LiveStatistics, NuevoMatch, NuevoMatchSettings, PRIORITY_MAX, PriorityRule,
    RuleUpdate, Trainer, memory::rule_list,
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
    /// Checks each field of the rule.
    fn check(&self) -> Result<(), AclRuleError> {
        if !(1..=ACL_PRIORITY_MAX).contains(&self.priority) {
            return Err(AclRuleError::Priority { priority: self.priority, max: ACL_PRIORITY_MAX });
        }
        if self.userdata == 0 {
            return Err(AclRuleError::UserData);
        }
        for (field, (_, length)) in [("source", self.source), ("destination", self.destination)] {
            if length > 32 {
                return Err(AclRuleError::Prefix { field, length });
            }
        }
        let ports =
            [("source_ports", self.source_ports), ("destination_ports", self.destination_ports)];
        for (field, (low, high)) in ports {
            if low > high {
                return Err(AclRuleError::Ports { field, low, high });
            }
        }
        Ok(())
    }

    /// Returns the rule as a rule of a [`NuevoMatch`].
    #[expect(clippy::expect_used, reason = "all fields are checked")]
    fn priority_rule(&self) -> Result<PriorityRule<5>, AclRuleError> {
        self.check()?;
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
        let rule = PriorityRule::new(&KeySchema::five_tuple(), &fields, priority, self.userdata);
        Ok(rule.expect("prefixes, ranges and the priority are legal"))
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
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct AclClassifier {
    /// The classifier of each category.
    categories: Vec<NuevoMatch<5>>,
}

impl AclClassifier {
    /// Builds a classifier of `categories` categories, with the seed of all hashes.
    ///
    /// # Errors
    ///
    /// - [`AclError::Categories`] if there are no categories or more than [`ACL_CATEGORIES_MAX`].
    /// - [`AclError::Rule`] with the number of a rule, if one of its fields is illegal: the
    ///   priority, the `userdata`, a prefix that is too long, or a range without ports.
    /// - [`AclError::Build`] if the classifier cannot number the rules, or the system refuses the
    ///   memory that the build needs.
    pub fn build(rules: &[AclRule], categories: usize, seed: u64) -> Result<Self, AclError> {
        let settings = NuevoMatchSettings { seed, ..Default::default() };
        let build = |rules: Vec<PriorityRule<5>>| {
            NuevoMatch::build(&KeySchema::five_tuple(), &rules, &settings)
        };
        let categories = by_category(rules, categories)?.into_iter().map(build);
        Ok(Self { categories: categories.collect::<Result<_, _>>()? })
    }

    /// Writes the `userdata` of the winner in each category for each key, 0 for none.
    ///
    /// The results of a key are next to each other, in the order of categories.
    ///
    /// # Panics
    ///
    /// If `results` is shorter than the number of keys times the number of categories.
    pub fn classify(&self, keys: &[[u32; 5]], results: &mut [u32]) {
        classify_by(self.categories.len(), keys, results, |category, keys, best| {
            self.categories[category].lookup_batch(keys, best);
        });
    }

    /// Adds a rule to its categories, and returns whether all of them had room.
    ///
    /// # Errors
    ///
    /// If a field of the rule is illegal, as for [`AclClassifier::build`].
    pub fn insert(&mut self, rule: &AclRule) -> Result<bool, AclRuleError> {
        let own = rule.priority_rule()?;
        let categories = self.categories.iter_mut().enumerate();
        let chosen = categories.filter(|(category, _)| rule.is_in(*category));
        Ok(chosen.fold(true, |has_room, (_, classifier)| classifier.insert(&own) && has_room))
    }

    /// Removes an equal rule from its categories; returns whether a category had it.
    ///
    /// # Errors
    ///
    /// If a field of the rule is illegal, as for [`AclClassifier::build`].
    pub fn remove(&mut self, rule: &AclRule) -> Result<bool, AclRuleError> {
        let own = rule.priority_rule()?;
        let categories = self.categories.iter_mut().enumerate();
        let chosen = categories.filter(|(category, _)| rule.is_in(*category));
        Ok(chosen.fold(false, |had, (_, classifier)| classifier.remove(&own) || had))
    }
}

/// An [`AclClassifier`] with rules that change while other threads classify.
///
/// A change is visible to every lookup that begins after its return. If a rule is in several
/// categories, a lookup during the change may see it in some of them. Changes of several threads
/// are applied one after another, so all categories have them in the same order.
///
/// ```
/// use shunt_nuevomatch::{AclRule, LiveAclClassifier};
///
/// let classifier = LiveAclClassifier::build(&[], 1, 0)?;
/// let reader = classifier.reader();
/// let web = AclRule {
///     category_mask: 1,
///     priority: 10,
///     userdata: 7,
///     source: (0, 0),
///     destination: (0x0a00_0000, 8),
///     source_ports: (0, 65535),
///     destination_ports: (80, 80),
///     protocol: (6, 0xff),
/// };
/// assert!(classifier.insert(&web)?);
/// let mut results = [0];
/// reader.classify(&[[0xc0a8_0001, 0x0a01_0203, 40000, 80, 6]], &mut results);
/// assert_eq!(results, [7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LiveAclClassifier {
    /// The classifier of each category.
    categories: Vec<LiveNuevoMatch<5>>,
    /// Locked during a change of all categories of a rule.
    changing: Mutex<()>,
}

/// A reader of a [`LiveAclClassifier`]. Each thread uses its own clone.
#[derive(Clone, Debug)]
pub struct AclReader {
    /// The reader of each category.
    categories: Vec<LiveReader<5>>,
}

impl LiveAclClassifier {
    /// Builds a classifier of `categories` categories, with the seed of all hashes.
    ///
    /// # Errors
    ///
    /// The errors of [`AclClassifier::build`].
    pub fn build(rules: &[AclRule], categories: usize, seed: u64) -> Result<Self, AclError> {
        let nuevomatch = NuevoMatchSettings { seed, ..Default::default() };
        let build = |rules: Vec<PriorityRule<5>>| {
            let settings = LiveSettings { nuevomatch, ..LiveSettings::default() };
            LiveNuevoMatch::new(&KeySchema::five_tuple(), &rules, settings)
        };
        let categories = by_category(rules, categories)?.into_iter().map(build);
        let categories = categories.collect::<Result<_, _>>()?;
        Ok(Self { categories, changing: Mutex::new(()) })
    }

    /// Returns a reader for another thread.
    #[must_use]
    pub fn reader(&self) -> AclReader {
        AclReader { categories: self.categories.iter().map(LiveNuevoMatch::reader).collect() }
    }

    /// Adds a rule to its categories, and returns whether all of them had room.
    ///
    /// # Errors
    ///
    /// If a field of the rule is illegal, as for [`AclClassifier::build`].
    pub fn insert(&self, rule: &AclRule) -> Result<bool, AclRuleError> {
        let update = RuleUpdate::Insert(rule.priority_rule()?);
        let _only = self.begin_change();
        // Every category gets the rule, also after one without room.
        let full = self.chosen(rule).filter(|live| live.apply(&[update]) != 1).count();
        Ok(full == 0)
    }

    /// Removes an equal rule from its categories; returns whether a category had it.
    ///
    /// # Errors
    ///
    /// If a field of the rule is illegal, as for [`AclClassifier::build`].
    pub fn remove(&self, rule: &AclRule) -> Result<bool, AclRuleError> {
        let update = RuleUpdate::Remove(rule.priority_rule()?);
        let _only = self.begin_change();
        let removed = self.chosen(rule).filter(|live| live.apply(&[update]) == 1).count();
        Ok(removed > 0)
    }

    /// Waits until no other thread changes rules.
    ///
    /// Without the lock, two changes of one rule could have another order in each category.
    fn begin_change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the classifiers of the categories of a rule.
    fn chosen(&self, rule: &AclRule) -> impl Iterator<Item = &LiveNuevoMatch<5>> {
        let rule = *rule;
        let categories = self.categories.iter().enumerate();
        categories.filter(move |(category, _)| rule.is_in(*category)).map(|(_, live)| live)
    }

    /// Starts a thread for each category, which rebuilds it whenever a rebuild is due.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn spawn_trainers(&self) -> std::io::Result<Vec<Trainer<5>>> {
        self.categories.iter().map(LiveNuevoMatch::spawn_trainer).collect()
    }

    /// Returns the sizes and counters of each category.
    #[must_use]
    pub fn statistics(&self) -> Vec<LiveStatistics> {
        self.categories.iter().map(LiveNuevoMatch::statistics).collect()
    }
}

impl AclReader {
    /// Writes the `userdata` of the winner in each category for each key, 0 for none.
    ///
    /// The results of a key are next to each other, in the order of categories. A lookup never
    /// waits for a change.
    ///
    /// # Panics
    ///
    /// If `results` is shorter than the number of keys times the number of categories.
    pub fn classify(&self, keys: &[[u32; 5]], results: &mut [u32]) {
        classify_by(self.categories.len(), keys, results, |category, keys, best| {
            self.categories[category].lookup_batch(keys, best);
        });
    }
}

/// Returns the rules of each category.
///
/// # Errors
///
/// If the number of categories or a rule is illegal. A rule that is in no category is checked too.
/// Also if the system refuses the memory of the copies: one for each category of a rule.
fn by_category(
    rules: &[AclRule],
    categories: usize,
) -> Result<Vec<Vec<PriorityRule<5>>>, AclError> {
    if !(1..=ACL_CATEGORIES_MAX).contains(&categories) {
        return Err(AclError::Categories { categories, max: ACL_CATEGORIES_MAX });
    }
    let of_category = |category| rules.iter().filter(|rule| rule.is_in(category)).count();
    let lists = (0..categories).map(|category| rule_list(of_category(category)));
    let mut all = lists.collect::<Result<Vec<Vec<_>>, _>>()?;
    for (position, rule) in rules.iter().enumerate() {
        let refused = |problem| AclError::Rule { rule: position, problem };
        let own = rule.priority_rule().map_err(refused)?;
        let chosen = all.iter_mut().enumerate().filter(|(category, _)| rule.is_in(*category));
        chosen.for_each(|(_, rules)| rules.push(own));
    }
    Ok(all)
}

/// Writes the results of `categories` categories, each by `look_up` in batches.
///
/// # Panics
///
/// If `results` is shorter than the number of keys times the number of categories.
fn classify_by(
    categories: usize,
    keys: &[[u32; 5]],
    results: &mut [u32],
    look_up: impl Fn(usize, &[[u32; 5]], &mut [Option<BestMatch>]),
) {
    let results = &mut results[..keys.len() * categories];
    let mut best = [None; BATCH];
    for (keys, results) in keys.chunks(BATCH).zip(results.chunks_mut(BATCH * categories)) {
        for category in 0..categories {
            look_up(category, keys, &mut best);
            for (results, best) in results.chunks_mut(categories).zip(&best) {
                results[category] = best.map_or(0, |BestMatch { value, .. }| value);
            }
        }
    }
}

#[cfg(test)]
mod tests;

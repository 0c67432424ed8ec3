//! Lookups with the bits that their results depend on.

use super::{
    nuevomatch::{BestMatch, NuevoMatch},
    proof::{LaneFit, LaneProof, NEIGHBOURS_MAX},
};
use crate::{
    StartIndex,
    blocks::{BlockRun, RuleArena},
    rule::{PriorityRule, rank},
};

impl<const N: usize, I: StartIndex> NuevoMatch<N, I> {
    /// Does a [`Self::lookup`], and adds the bits that the result depends on to `mask`.
    ///
    /// Every key that agrees with `key` under the added bits has the same result.
    ///
    /// ```
    /// use shunt_nuevomatch::{FieldMatch, KeySchema, NuevoMatch, PriorityRule};
    ///
    /// let schema = KeySchema::new(&[32, 16])?;
    /// let network = FieldMatch::Prefix { value: 0x0a01_0000, length: 16 };
    /// let rule = PriorityRule::<2>::new(&schema, &[network, FieldMatch::Any], 7, 0)?;
    /// let classifier = NuevoMatch::<2>::build(&schema, &[rule], &Default::default())?;
    /// let mut mask = [0; 2];
    /// // The first byte proves that 192.168.0.1 has no rule.
    /// assert_eq!(classifier.lookup_masked(&[0xc0a8_0001, 80], &mut mask), None);
    /// assert_eq!(mask, [0xff00_0000, 0]);
    /// # Ok::<(), shunt_nuevomatch::Error>(())
    /// ```
    pub fn lookup_masked(&self, key: &[u32; N], mask: &mut [u32; N]) -> Option<BestMatch> {
        let best = self.lookup(key);
        if let Some(best) = best {
            let mut proof = self.proof(key, mask);
            let (key, rank) = (proof.key, rank(best.priority, best.value));
            let remainder = self.remainder.arena();
            let indexed = self.runs(&key).find_map(|run| find_winner(&self.arena, run, &key, rank));
            let winner = indexed.or_else(|| {
                self.remainder.runs().find_map(|run| find_winner(remainder, run, &key, rank))
            });
            if let Some(winner) = winner {
                proof.keep_in(&winner);
            }
        }
        self.prove(key, best, mask, |_, _| true);
        best
    }

    /// Adds bits to `mask` that exclude all rules with a better rank than `best`.
    ///
    /// `best` is the result of [`Self::lookup_accepted`] for `key`, and the caller adds the bits of
    /// this rule before. `needs_bits` is called for better rules that the mask does not exclude.
    /// `needs_bits` returns whether a rule that differs from the key in a lane must be excluded.
    /// False is right for a rule that this lookup does not see, or that bits outside of the lanes
    /// exclude. A rule that does not differ in a lane gets no bits, so `needs_bits` must have
    /// excluded it.
    ///
    /// The call reads every rule of one bucket of each iSet, and every rule of the remainder.
    pub fn prove(
        &self,
        key: &[u32; N],
        best: Option<BestMatch>,
        mask: &mut [u32; N],
        mut needs_bits: impl FnMut(u32, LaneFit) -> bool,
    ) {
        let limit = best.map_or(u64::MAX, |best| rank(best.priority, best.value));
        let mut proof = self.proof(key, mask);
        let key = proof.key;
        for set in &self.sets {
            let (low, high) = set.interval(key[set.lane()], NEIGHBOURS_MAX, |run| {
                run.rules == 0 || self.arena.rank(run.first, 0) >= limit
            });
            proof.keep_between(set.lane(), low, high);
        }
        for run in self.runs(&key) {
            proof.exclude_run(&self.arena, run, limit, &mut needs_bits);
        }
        for run in self.remainder.runs() {
            proof.exclude_run(self.remainder.arena(), run, limit, &mut needs_bits);
        }
    }

    /// Returns a proof for `key` that adds bits to `mask`.
    fn proof<'a>(&self, key: &[u32; N], mask: &'a mut [u32; N]) -> LaneProof<'a, N> {
        let key = std::array::from_fn(|lane| key[lane] & self.max[lane]);
        LaneProof { key, max: self.max, mask }
    }

    /// Returns the bucket of a key in each iSet.
    fn runs<'a>(&'a self, key: &'a [u32; N]) -> impl Iterator<Item = BlockRun> + 'a {
        self.sets.iter().map(|set| set.run_of(key[set.lane()]))
    }
}

impl<const N: usize> LaneProof<'_, N> {
    /// Excludes the rules of a sorted run with a better rank than `limit`.
    fn exclude_run(
        &mut self,
        arena: &RuleArena<N>,
        run: BlockRun,
        limit: u64,
        needs_bits: &mut impl FnMut(u32, LaneFit) -> bool,
    ) {
        for at in 0..usize::from(run.rules) {
            if arena.rank(run.first, at) >= limit {
                break;
            }
            let rule = arena.rule(run, at);
            if self.excludes(&rule) {
                continue;
            }
            let fit = if rule.matches(&self.key) { LaneFit::Same } else { LaneFit::Different };
            if needs_bits(rule.value(), fit) {
                self.exclude(&rule);
            }
        }
    }
}

/// Returns the rule with this rank in a sorted run that matches `key`.
fn find_winner<const N: usize>(
    arena: &RuleArena<N>,
    run: BlockRun,
    key: &[u32; N],
    rank: u64,
) -> Option<PriorityRule<N>> {
    let with_rank = (0..usize::from(run.rules))
        .skip_while(|at| arena.rank(run.first, *at) < rank)
        .take_while(|at| arena.rank(run.first, *at) == rank);
    with_rank.map(|at| arena.rule(run, at)).find(|rule| rule.matches(key))
}

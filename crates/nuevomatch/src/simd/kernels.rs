//! The code of the kernels that is the same for all instruction sets with vectors.
//!
//! A kernel file has one function for each comparison of a key with 16 rules, and defines all other
//! functions by [`vector_kernels`]. A generic function cannot replace this macro: an attribute of a
//! function selects its instruction set, and an attribute takes no generic parameter.

/// Defines the kernels of an instruction set from its comparisons.
///
/// The calling file must have the functions `descend`, `count8`, `count16`, `truncate` and
/// `match_five_tuples`. The file must also have the comparisons `prefixes`, `words`, `halves` and
/// `bytes`, and the comparisons with masks. A value of `$set` is the proof that the processor has
/// `$features`.
macro_rules! vector_kernels {
    ($set:ident, $features:tt) => {
        impl $set {
            /// Descends the static tree for each key.
            #[inline]
            pub(super) fn descend(
                self,
                nodes: &[Line],
                last: u32,
                keys: &[u32],
                positions: &mut [u32],
            ) {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { descend(nodes, last, keys, positions) }
            }

            /// Runs work with this instruction set.
            #[inline]
            pub(super) fn run<W: VectorWork>(self, work: W) {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { run(self, work) }
            }

            /// Sets a bit for each rule of a block that matches its key.
            #[inline]
            pub(super) fn match_blocks<const N: usize>(
                self,
                layout: &BlockLayout<N>,
                lines: &[Line],
                keys: &[[u32; N]],
                jobs: &[MatchJob],
                masks: &mut [u64],
            ) {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { match_blocks(layout, lines, keys, jobs, masks) }
            }

            /// Finds the best rank of the rules that match each key.
            #[inline]
            pub(super) fn best_ranks<const N: usize, const B: usize>(
                self,
                layout: &BlockLayout<N>,
                lines: &[Line],
                keys: &[[u32; N]],
                jobs: &[MatchJob],
                ranks: &mut [u64; B],
            ) {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { best_ranks(layout, lines, keys, jobs, ranks) }
            }
        }

        impl Vector for $set {
            #[inline(always)]
            fn count8(self, bounds: &[u32; 8], key: u32) -> u32 {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { count8(bounds, key) }
            }

            #[inline(always)]
            fn count16(self, bounds: &[u32; 16], key: u32) -> u32 {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { count16(bounds, key) }
            }

            #[inline(always)]
            fn truncate(self, value: f32) -> u32 {
                // SAFETY: `self` exists only where `detect` found these features.
                unsafe { truncate(value) }
            }
        }

        /// Does work with the vector functions of the calling file.
        #[target_feature(enable = $features)]
        fn run<W: VectorWork>(vector: $set, work: W) {
            work.run(vector);
        }

        /// Sets a bit for each rule of a block that matches its key.
        #[target_feature(enable = $features)]
        fn match_blocks<const N: usize>(
            layout: &BlockLayout<N>,
            lines: &[Line],
            keys: &[[u32; N]],
            jobs: &[MatchJob],
            masks: &mut [u64],
        ) {
            for_blocks(layout.lines(), lines, keys, jobs, masks, |block, key| {
                if let Some(block) = layout.five_tuples(block) {
                    return match_five_tuples(block, &packed_key(key));
                }
                match_block(layout, block, key)
            });
        }

        /// Finds the best rank of the rules that match each key.
        #[target_feature(enable = $features)]
        fn best_ranks<const N: usize, const B: usize>(
            layout: &BlockLayout<N>,
            lines: &[Line],
            keys: &[[u32; N]],
            jobs: &[MatchJob],
            ranks: &mut [u64; B],
        ) {
            match (layout.is_five_tuple(), layout.lines()) {
                (true, 6) => best_five_tuples::<N, B, 6>(lines, keys, jobs, ranks),
                (true, 7) => best_five_tuples::<N, B, 7>(lines, keys, jobs, ranks),
                _ => for_best(layout.lines(), jobs, ranks, |job| {
                    let block = job.block(lines, layout.lines());
                    let mask = match_block(layout, block, &keys[usize::from(job.key)]);
                    best_rank(layout, block, mask)
                }),
            }
        }

        /// Finds the best ranks in blocks of `L` lines.
        #[inline]
        #[target_feature(enable = $features)]
        fn best_five_tuples<const N: usize, const B: usize, const L: usize>(
            lines: &[Line],
            keys: &[[u32; N]],
            jobs: &[MatchJob],
            ranks: &mut [u64; B],
        ) {
            let mut packed = [[0; 4]; B];
            for (packed, key) in packed.iter_mut().zip(keys) {
                *packed = packed_key(key);
            }
            for_best(L, jobs, ranks, |job| {
                let block = lines[job.first as usize..].first_chunk::<L>();
                block.map_or(u64::MAX, |block| {
                    let ranges = block.first_chunk();
                    let key = &packed[usize::from(job.key) % B];
                    let mask = ranges.map_or(0, |block| match_five_tuples(block, key));
                    let rank = five_tuple_rank(block, mask.trailing_zeros() as usize);
                    if mask == 0 { u64::MAX } else { rank }
                })
            });
        }

        /// Compares a key with a block of any layout, lane by lane.
        #[inline]
        #[target_feature(enable = $features)]
        fn match_block<const N: usize>(
            layout: &BlockLayout<N>,
            block: &[Line],
            key: &[u32; N],
        ) -> u16 {
            let mut mask = u16::MAX;
            for (slot, key) in layout.slots().iter().zip(key) {
                let key = key & slot.max;
                let (low, high) = (slot.low, slot.high);
                mask &= match slot.kind {
                    LaneKind::Absent => u16::MAX,
                    LaneKind::Prefix => prefixes(low.line(block), high.quarter(block), key),
                    LaneKind::Word => words(low.line(block), high.line(block), key),
                    LaneKind::Half => halves(low.pair(block), high.pair(block), key),
                    LaneKind::Byte => bytes(low.quarter(block), high.quarter(block), key),
                };
                if let Some(bits) = slot.mask {
                    mask &= match slot.kind {
                        LaneKind::Absent => u16::MAX,
                        LaneKind::Prefix | LaneKind::Word => {
                            masked_words(low.line(block), bits.line(block), key)
                        }
                        LaneKind::Half => masked_halves(low.pair(block), bits.pair(block), key),
                        LaneKind::Byte => {
                            masked_bytes(low.quarter(block), bits.quarter(block), key)
                        }
                    };
                }
            }
            mask
        }
    };
}

pub(super) use vector_kernels;

//! The signature cache: from the hash of a packet to the row of its megaflow.
//!
//! Tuple space search probes one subtable after another. With hundreds of masks, most packets probe
//! hundreds of hash tables. The signature cache remembers, for each flow, the row that its last
//! packet hit, in eight bytes: 16 bits of the hash (the signature), the subtable, and the row.
//! After a match of the signature, the row is compared with the packet under the mask of its
//! subtable, as in every probe. So even if an entry of the signature cache is stale or belongs to
//! another flow, a lookup returns only rows that cover the packet.
//!
//! Open vSwitch has such a cache as its *signature match cache*. The exact-match cache needs 25
//! times the memory for a flow, so it holds far fewer flows in the same processor cache.
//!
//! A bucket is one processor cache line of eight flows. The low bits of the hash select the bucket, the
//! high bits are the signature. An insertion into a full bucket replaces a random flow.

use crate::cache::split_mix;

/// The address of a megaflow: the number of its subtable, and its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowAddress {
    /// Number of the subtable.
    pub subtable: u32,
    /// Row in the subtable.
    pub row: u32,
}

/// The signature cache of one packet thread.
#[derive(Debug)]
pub struct SignatureCache {
    /// The buckets of the cache.
    buckets: Box<[Bucket]>,
    /// Number of buckets minus one, which masks a hash to a bucket.
    mask: u64,
    /// The state of the random numbers that choose a flow to replace.
    random: u64,
}

/// The flows of one CPU cache line: each flow has one element of each array.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Bucket {
    /// A part of the hash of each flow.
    signatures: [u16; FLOWS_PER_BUCKET],
    /// The subtable of the entry of each flow.
    subtables: [u16; FLOWS_PER_BUCKET],
    /// The row in the subtable.
    rows: [u32; FLOWS_PER_BUCKET],
}

/// Number of flows in a bucket, which fill a cache line.
const FLOWS_PER_BUCKET: usize = 8;

/// The signature of a position without a flow: the signatures of flows are odd.
const NO_FLOW: u16 = 0;

const _: () = assert!(size_of::<Bucket>() == 64, "a bucket is one cache line");

impl RowAddress {
    /// The address of no row, for a flow without an entry.
    pub(super) const NONE: Self = Self { subtable: u32::MAX, row: u32::MAX };
}

impl Bucket {
    /// A bucket without flows.
    const EMPTY: Self = Self {
        signatures: [NO_FLOW; FLOWS_PER_BUCKET],
        subtables: [0; FLOWS_PER_BUCKET],
        rows: [0; FLOWS_PER_BUCKET],
    };

    /// Returns the first position with a signature.
    ///
    /// All positions are compared without a branch. A branch for each is hard to predict,
    /// as the positions of consecutive packets are random.
    #[inline]
    fn position(&self, signature: u16) -> Option<usize> {
        let compare = |matches, (position, own): (usize, &u16)| {
            matches | u32::from(*own == signature) << position
        };
        let matches = self.signatures.iter().enumerate().fold(0_u32, compare);
        (matches != 0).then(|| matches.trailing_zeros() as usize)
    }
}

impl SignatureCache {
    /// Creates an empty cache.
    ///
    /// The number of flows is rounded up to a power of two, at least eight.
    #[must_use]
    pub fn new(flows: usize, seed: u64) -> Self {
        let buckets = flows.div_ceil(FLOWS_PER_BUCKET).next_power_of_two();
        Self {
            buckets: vec![Bucket::EMPTY; buckets].into_boxed_slice(),
            mask: buckets as u64 - 1,
            random: seed,
        }
    }

    /// Returns the address that was stored for a flow with this signature.
    ///
    /// The caller compares the row with the packet: the flow may be another, and the row may be reused.
    #[must_use]
    #[inline]
    pub fn candidate(&self, hash: u64) -> Option<RowAddress> {
        let bucket = &self.buckets[self.bucket_of(hash)];
        let position = bucket.position(signature_of(hash))?;
        let subtable = bucket.subtables[position].into();
        Some(RowAddress { subtable, row: bucket.rows[position] })
    }

    /// Stores the address of a flow.
    ///
    /// A flow with the same signature is replaced. A subtable above 65,535 is not stored.
    #[inline]
    pub fn insert(&mut self, hash: u64, address: RowAddress) {
        let Ok(subtable) = u16::try_from(address.subtable) else { return };
        let signature = signature_of(hash);
        let bucket = self.bucket_of(hash);
        let bucket = &mut self.buckets[bucket];
        let position = bucket
            .position(signature)
            .or_else(|| bucket.position(NO_FLOW))
            .unwrap_or_else(|| random_position(&mut self.random));
        bucket.signatures[position] = signature;
        bucket.subtables[position] = subtable;
        bucket.rows[position] = address.row;
    }

    /// Returns the number of the bucket of a hash.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "the hash is masked to the number of buckets"
    )]
    const fn bucket_of(&self, hash: u64) -> usize {
        (hash & self.mask) as usize
    }
}

/// Returns the top 16 bits of the hash; the lowest of them is always set.
#[inline]
const fn signature_of(hash: u64) -> u16 {
    (hash >> (u64::BITS - u16::BITS)) as u16 | 1
}

/// Returns a random position in a bucket.
#[expect(clippy::cast_possible_truncation, reason = "the remainder is less than FLOWS_PER_BUCKET")]
const fn random_position(random: &mut u64) -> usize {
    (split_mix(random) % FLOWS_PER_BUCKET as u64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the hash of a flow.
    fn hash(flow: u64) -> u64 {
        let mut state = flow;
        split_mix(&mut state)
    }

    /// Returns the address of the row of a flow.
    fn address(flow: u32) -> RowAddress {
        RowAddress { subtable: flow % 1000, row: flow }
    }

    #[test]
    fn flow_has_address_of_its_last_insertion() {
        let mut cache = SignatureCache::new(64, 1);
        assert_eq!(cache.candidate(hash(1)), None);
        cache.insert(hash(1), address(1));
        cache.insert(hash(1), address(2));
        assert_eq!(cache.candidate(hash(1)), Some(address(2)));
        assert_eq!(cache.candidate(hash(3)), None);
    }

    #[test]
    fn a_zero_hash_is_a_valid_signature() {
        let mut cache = SignatureCache::new(8, 1);
        assert_eq!(cache.candidate(0), None);
        cache.insert(0, RowAddress { subtable: 0, row: 0 });
        assert_eq!(cache.candidate(0), Some(RowAddress { subtable: 0, row: 0 }));
    }

    #[test]
    fn addresses_beyond_the_largest_are_not_cached() {
        let mut cache = SignatureCache::new(8, 1);
        let largest = RowAddress { subtable: 0xffff, row: u32::MAX };
        cache.insert(hash(1), largest);
        assert_eq!(cache.candidate(hash(1)), Some(largest));
        cache.insert(hash(2), RowAddress { subtable: 0x1_0000, row: 0 });
        assert_eq!(cache.candidate(hash(2)), None);
    }

    #[test]
    fn half_full_signature_caches_keep_nearly_all_flows() {
        let mut cache = SignatureCache::new(65_536, 1);
        for flow in 0..32_768 {
            cache.insert(hash(flow.into()), address(flow));
        }
        let stays = |flow: &u32| cache.candidate(hash((*flow).into())) == Some(address(*flow));
        let found = (0..32_768).filter(stays).count();
        assert!(found > 32_000, "{found}");
    }

    #[test]
    fn a_full_bucket_keeps_its_last_flow() {
        let mut cache = SignatureCache::new(8, 1);
        for flow in 0..1000 {
            cache.insert(hash(flow.into()), address(flow));
            assert_eq!(cache.candidate(hash(flow.into())), Some(address(flow)));
        }
    }
}

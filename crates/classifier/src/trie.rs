//! A binary prefix trie: finds the prefixes of a value in a set, and proves all others absent.
//!
//! For example, the address of a packet is 10.1.2.3. Can a rule with a `/16` match it? One walk
//! through the trie answers this for all prefix lengths. The walk also gives the number of leading
//! bits of the address that prove the answer. A cache entry of the result needs only these bits of
//! the address.
//!
//! # Shape
//!
//! A chain of nodes with one child each is one node (Morrison, *PATRICIA: Practical Algorithm To
//! Retrieve Information Coded in Alphanumeric*, 1968). Invariants:
//!
//! 1. the prefix of a child starts with the prefix of its parent, and is longer;
//! 2. child `b` of a node continues with the bit value `b`;
//! 3. every node except the root holds a prefix of the set (`count > 0`) or has two children.
//!
//! By the third invariant, there are fewer than twice as many nodes as distinct prefixes. Nodes are
//! in one array and refer to each other by index. Node 0 is the root, so 0 also means "no child".
//!
//! # Walk
//!
//! For example, the set is `{10.0.0.0/8, 10.1.0.0/16, 192.168.0.0/16}` and the value is 10.2.0.1:
//!
//! ```text
//! root /0 ──0──► 10.0.0.0/8 ──0──► 10.1.0.0/16      10.1. = 00001010 00000001
//!    └────1──► 192.168.0.0/16                       10.2. = 00001010 00000010
//! ```
//!
//! The walk passes `10.0.0.0/8`, which is in the set: length 8 matches. The walk ends in
//! `10.1.0.0/16`, because this prefix differs from the value at the 15th bit. All values with these
//! 15 leading bits have the same prefixes in the set, so 15 bits prove that no `/16` matches. No
//! prefix of length 12 is on the path, so 12 bits prove that no `/12` matches.

/// The index of the root.
const ROOT: u32 = 0;
/// The mark of an absent child: no child is the root.
const ABSENT: u32 = ROOT;

/// Number of bits of the longest prefix.
const WIDTH: u8 = 128;

/// A multiset of prefixes of up to 128 bits.
///
/// Values are left-aligned: the first bit of a prefix is bit 127. The time of an operation is
/// proportional to the number of nodes on a path, which is at most the length of the prefix.
/// Prefixes are stored in the type `P`, which must have room for all bits of the values.
#[derive(Clone, Debug)]
pub(crate) struct Trie<P> {
    /// All nodes; the first is the root.
    nodes: Vec<TrieNode<P>>,
    /// Indices of unused nodes.
    free: Vec<u32>,
}

/// The first bits of a left-aligned value, as a trie stores them.
pub(crate) trait PrefixBits: Copy {
    /// Stores a left-aligned value; bits that do not fit into the type must be zero.
    fn of(value: u128) -> Self;

    /// Returns the stored value, left-aligned.
    fn value(self) -> u128;
}

/// A node of the trie: a prefix, and the indices of its two children.
#[derive(Clone, Debug)]
struct TrieNode<P> {
    /// The prefix of the node; bits beyond `length` are zero.
    prefix: P,
    /// Length of the prefix in bits.
    length: u8,
    /// Number of times that the set holds this prefix.
    count: u32,
    /// Indices of the two children; `ABSENT` for no child.
    children: [u32; 2],
}

/// The prefixes of a value that a [`Trie`] holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Prefixes {
    /// Bit `i` is set if the set holds the prefix of `i + 1` bits.
    held_lengths: u128,
    /// Number of leading bits of the value that determine its prefixes in the set.
    /// Every value with the same leading bits has the same prefixes in the set.
    proof_bits: u8,
}

impl PrefixBits for u128 {
    fn of(value: u128) -> Self {
        value
    }

    fn value(self) -> u128 {
        self
    }
}

/// The type for IPv4 addresses and ports, which is enough for most tables.
impl PrefixBits for u32 {
    fn of(value: u128) -> Self {
        debug_assert!(value << Self::BITS == 0, "a value has at most as many bits as this type");
        (value >> (u128::BITS - Self::BITS)) as Self
    }

    fn value(self) -> u128 {
        u128::from(self) << (u128::BITS - Self::BITS)
    }
}

impl<P: PrefixBits> Trie<P> {
    /// Creates an empty trie.
    pub(crate) fn new() -> Self {
        let root = TrieNode { prefix: P::of(0), length: 0, count: 0, children: [ABSENT; 2] };
        Self { nodes: vec![root], free: Vec::new() }
    }

    /// Adds the first `length` bits of `value`.
    pub(crate) fn insert(&mut self, value: u128, length: u8) {
        debug_assert!(length <= WIDTH);
        let prefix = truncate(value, length);
        let mut at = ROOT;
        while self.node(at).length < length {
            let side = side(prefix, self.node(at).length);
            let child = self.node(at).children[side];
            let below = if child == ABSENT {
                let prefix = P::of(prefix);
                self.allocate(TrieNode { prefix, length, count: 0, children: [ABSENT; 2] })
            } else {
                self.fork(child, prefix, length)
            };
            self.node_mut(at).children[side] = below;
            at = below;
        }
        self.node_mut(at).count += 1;
    }

    /// Removes one copy of the first `length` bits of `value`.
    /// The prefix must be in the set.
    pub(crate) fn remove(&mut self, value: u128, length: u8) {
        let prefix = truncate(value, length);
        let (mut grandparent, mut parent, mut at) = (ROOT, ROOT, ROOT);
        while self.node(at).length < length {
            (grandparent, parent) = (parent, at);
            at = self.node(at).children[side(prefix, self.node(at).length)];
            if at == ABSENT {
                debug_assert!(false, "a prefix that is removed is in the trie");
                return;
            }
        }
        debug_assert_eq!((self.node(at).prefix.value(), self.node(at).length), (prefix, length));
        self.node_mut(at).count -= 1;
        self.remove_if_redundant(at, parent);
        self.remove_if_redundant(parent, grandparent);
    }

    /// Returns the prefixes of `value` that the set holds.
    pub(crate) fn prefixes(&self, value: u128) -> Prefixes {
        let mut held_lengths = 0;
        let mut node = &self.nodes[ROOT as usize];
        let proof_bits = loop {
            if node.count > 0 && node.length > 0 {
                held_lengths |= 1 << (node.length - 1);
            }
            if node.length == WIDTH || node.children == [ABSENT; 2] {
                break node.length;
            }
            let child = node.children[side(value, node.length)];
            if child == ABSENT {
                break node.length + 1;
            }
            node = &self.nodes[child as usize];
            let common = common_bits(value, node.prefix.value());
            if common < node.length {
                break common + 1;
            }
        };
        Prefixes { held_lengths, proof_bits }
    }

    /// Returns a node on the path to `child` from which `prefix` can continue.
    ///
    /// The result is `child` if the prefix of `child` is a prefix of `prefix`. For any other
    /// `child`, the result is a new node at the bit where both prefixes differ.
    fn fork(&mut self, child: u32, prefix: u128, length: u8) -> u32 {
        let below = self.node(child);
        let common = common_bits(prefix, below.prefix.value()).min(below.length).min(length);
        if common == below.length {
            return child;
        }
        let mut children = [ABSENT; 2];
        children[side(below.prefix.value(), common)] = child;
        let prefix = P::of(truncate(prefix, common));
        self.allocate(TrieNode { prefix, length: common, count: 0, children })
    }

    /// Removes the node `at` if the invariants do not allow it any more.
    fn remove_if_redundant(&mut self, at: u32, parent: u32) {
        let node = self.node(at);
        let ([ABSENT, only_child] | [only_child, ABSENT]) = node.children else { return };
        if at == ROOT || node.count > 0 {
            return;
        }
        let side = side(node.prefix.value(), self.node(parent).length);
        self.node_mut(parent).children[side] = only_child;
        self.free.push(at);
    }

    /// Stores a node in a free place; returns its index.
    fn allocate(&mut self, node: TrieNode<P>) -> u32 {
        if let Some(index) = self.free.pop() {
            *self.node_mut(index) = node;
            return index;
        }
        #[expect(clippy::expect_used, reason = "that many nodes would fill 128 GiB")]
        let index = u32::try_from(self.nodes.len()).expect("a trie has fewer than 2^32 nodes");
        self.nodes.push(node);
        index
    }

    /// Returns the node at an index.
    fn node(&self, index: u32) -> &TrieNode<P> {
        &self.nodes[index as usize]
    }

    /// Returns the node at an index, to change it.
    fn node_mut(&mut self, index: u32) -> &mut TrieNode<P> {
        &mut self.nodes[index as usize]
    }
}

impl Prefixes {
    /// Returns the number of leading bits that prove that a prefix is absent.
    ///
    /// The prefix has `length` bits, at least 1. The result is `None` if the set holds the prefix.
    pub(crate) fn absence(self, length: u8) -> Option<u8> {
        let is_held = self.held_lengths >> (length - 1) & 1 == 1;
        (!is_held).then(|| self.proof_bits.min(length))
    }
}

/// Returns `value` without the bits beyond `length`.
fn truncate(value: u128, length: u8) -> u128 {
    value & leading_ones(length)
}

/// Returns the mask of the first `count` bits.
pub(crate) fn leading_ones(count: u8) -> u128 {
    !u128::MAX.checked_shr(u32::from(count)).unwrap_or(0)
}

/// Returns the bit after the first `length` bits.
fn side(value: u128, length: u8) -> usize {
    usize::from(value >> (WIDTH - 1 - length) & 1 == 1)
}

/// Returns the number of leading bits that are equal.
#[expect(clippy::cast_possible_truncation, reason = "the value is at most 128")]
fn common_bits(a: u128, b: u128) -> u8 {
    (a ^ b).leading_zeros() as u8
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns an IPv4 address as a value of the trie.
    fn ip(text: &str) -> u128 {
        u128::from(u32::from(text.parse::<std::net::Ipv4Addr>().unwrap())) << 96
    }

    /// Returns a trie of some prefixes.
    fn trie(prefixes: &[(&str, u8)]) -> Trie<u32> {
        let mut trie = Trie::new();
        prefixes.iter().for_each(|(address, length)| trie.insert(ip(address), *length));
        trie
    }

    #[test]
    fn an_empty_set_needs_no_mask_bit() {
        assert_eq!(
            Trie::<u32>::new().prefixes(ip("10.0.0.1")),
            Prefixes { held_lengths: 0, proof_bits: 0 }
        );
    }

    #[test]
    fn the_documented_walk_is_correct() {
        let trie = trie(&[("10.0.0.0", 8), ("10.1.0.0", 16), ("192.168.0.0", 16)]);
        let found = trie.prefixes(ip("10.2.0.1"));
        assert_eq!(found, Prefixes { held_lengths: 1 << 7, proof_bits: 15 });
        assert_eq!(found.absence(8), None);
        assert_eq!(found.absence(12), Some(12));
        assert_eq!(found.absence(16), Some(15));
    }

    #[test]
    fn one_bit_excludes_the_other_half() {
        let trie = trie(&[("192.248.2.0", 24)]);
        assert_eq!(trie.prefixes(ip("10.231.0.166")).absence(24), Some(1));
    }

    #[test]
    fn whole_addresses_are_prefixes_too() {
        let mut trie = Trie::<u128>::new();
        trie.insert(7, 128);
        assert_eq!(trie.prefixes(7).absence(128), None);
        assert_eq!(trie.prefixes(6).absence(128), Some(128));
    }

    #[test]
    fn removing_what_was_added_leaves_no_nodes() {
        let prefixes = [("10.0.0.0", 8), ("10.1.0.0", 16), ("10.1.2.3", 32), ("10.1.0.0", 16)];
        let mut trie = trie(&prefixes);
        for (address, length) in prefixes {
            trie.remove(ip(address), length);
        }
        assert_eq!(trie.nodes.len() - trie.free.len(), 1);
    }

    /// Generates prefixes of few values, so that they nest and diverge at every depth.
    fn prefix() -> impl Strategy<Value = (u128, u8)> {
        let value =
            (0u128..4, 0u32..120, 0u128..16).prop_map(|(top, at, low)| top << 126 | low << at);
        (value, prop_oneof![Just(0), Just(1), 0u8..=128, Just(32), Just(127), Just(128)])
    }

    fn check_invariants(trie: &Trie<u128>) {
        let mut stack = vec![ROOT];
        let mut seen = 0;
        while let Some(index) = stack.pop() {
            let node = trie.node(index);
            seen += 1;
            assert_eq!(truncate(node.prefix, node.length), node.prefix);
            let children = node.children.iter().filter(|child| **child != ABSENT).count();
            assert!(index == ROOT || node.count > 0 || children == 2);
            for (bit, child) in node.children.iter().enumerate().filter(|(_, c)| **c != ABSENT) {
                let below = trie.node(*child);
                assert!(below.length > node.length);
                assert_eq!(truncate(below.prefix, node.length), node.prefix);
                assert_eq!(side(below.prefix, node.length), bit);
                stack.push(*child);
            }
        }
        assert_eq!(seen, trie.nodes.len() - trie.free.len());
    }

    proptest! {
        #[test]
        fn prefix_lengths_equal_those_of_a_list(
            set in prop::collection::vec((prefix(), any::<bool>()), 0..40),
            values in prop::collection::vec((prefix(), any::<u128>()), 1..20),
        ) {
            let mut trie = Trie::<u128>::new();
            set.iter().for_each(|((value, length), _)| trie.insert(*value, *length));
            check_invariants(&trie);
            for ((value, length), _) in set.iter().filter(|(_, stays)| !stays) {
                trie.remove(*value, *length);
                check_invariants(&trie);
            }
            let list: Vec<_> = set.iter().filter(|(_, stays)| *stays).map(|(p, _)| *p).collect();
            let holds = |value: u128, length: u8| {
                list.iter().any(|(held_lengths, l)| *l == length && (held_lengths ^ value) & leading_ones(length) == 0)
            };
            for ((value, _), noise) in values {
                let found = trie.prefixes(value);
                for length in 1..=WIDTH {
                    let absence = found.absence(length);
                    prop_assert_eq!(absence.is_none(), holds(value, length));
                    // The proof must hold for all values of the other bits.
                    if let Some(bits) = absence {
                        prop_assert!(bits <= length);
                        let proof = leading_ones(bits);
                        prop_assert!(!holds(value & proof | noise & !proof, length));
                    }
                }
            }
        }
    }
}

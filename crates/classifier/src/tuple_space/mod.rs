//! Tuple space search, with masks that have as few bits as possible.
//!
//! Rules with one mask differ only in their values, so a lookup of the masked key in a hash table
//! finds the rule that matches. A table has one *subtable* per mask, and a lookup probes subtable
//! after subtable (Srinivasan, Suri, Varghese, *Packet Classification using Tuple Space Search*,
//! 1999). Subtables are ordered by their highest rank. The search ends when no remaining subtable
//! can have a rule of a higher rank than the best one so far.
//!
//! # The invariant
//!
//! The result of a lookup becomes a cache entry for every key that agrees with the packet under the
//! mask that the lookup adds. So for *every* subtable up to the end of the search, the mask must
//! have bits that prove the result of the subtable:
//!
//! - a subtable with a matching rule: its whole mask;
//! - a subtable without a matching rule: bits of the key with which no rule of the subtable
//!   matches;
//! - a subtable after the end of the search: nothing, because its highest rank does not depend on
//!   the key.
//!
//! Each proof is valid alone, so the union of all proofs proves the result. Adding whole masks for
//! all subtables would be correct, but useless. Because of one rule for a `/32` and a port, every
//! cache entry would cover only one address and one port. The following sections describe smaller
//! proofs. The smaller proofs come from Open vSwitch (Pfaff et al., *The Design and Implementation
//! of Open vSwitch*, 2015, section 5), with the differences that the sections name.
//!
//! # Stages
//!
//! The words of a mask are in up to four stages, in the order of the layers: metadata, link,
//! network, transport. For each stage except the last, a subtable keeps the set of the values that
//! its rules have in all words up to the end of the stage. The first set without the value of the
//! packet proves that no rule matches, by the words up to this stage. Later layers are not added to
//! the mask. A lookup probes the last set first: if that set has the value, all sets have it.
//!
//! If rules match both addresses, a subtable also keeps the set of values of each single address.
//! For example, if no rule has the source address of the packet, the destination address is not
//! added to the mask.
//!
//! # Address tries
//!
//! In the network stage, a proof by whole words would have whole addresses. A trie over the
//! addresses of all rules of the table finds the prefix lengths at which some rule has the prefix
//! of the packet. The trie also finds the number of leading bits that prove that the other prefix
//! lengths are absent. The leading bits of the address and the Ethernet type exclude the subtables
//! with an absent prefix length.
//!
//! The tries have three differences from Open vSwitch. Of a mask with holes, the tries have its
//! leading one bits. ARP addresses use the tries of IPv4. A proof is never longer than the prefix
//! of the subtable.
//!
//! # Many masks
//!
//! A table may have hundreds of masks. A lookup is too slow if it visits every subtable and a trie
//! excludes most of them. So the search order is kept in blocks of 64 slots, with a set of slots
//! for each prefix length and each gate (`blocks.rs`, `gates.rs`). A gate has the first words that
//! many masks share. A gate excludes its subtables if none of their rules has the value of the
//! packet in these words. Tries and gates exclude 64 slots at once, and the lookup searches only
//! the remaining *open* slots.
//!
//! # Choice of proofs
//!
//! The proof of an open subtable is added when the subtable is searched. The proofs of open
//! subtables and the mask of the resulting rule have most of the bits. The proofs of the other
//! subtables are added last (`proof.rs`). If leading bits that are in the mask already exclude the
//! subtable, no bits are added. If they do not, a stage before the addresses is preferred, as in
//! Open vSwitch: it has few values, and other subtables need the same bits. If no stage before the
//! addresses excludes the subtable, the proof uses the address that adds fewer bits.
//!
//! Two variants were tried on ClassBench sets and rejected. With the number of leading bits rounded
//! up to a multiple of 4 or 8, a cache has fewer masks, but up to twice as many entries. Always
//! choosing the destination address, the source address, or both makes no difference.
//!
//! The regions of cache entries may overlap: another key of a region may have a smaller proof for a
//! subtable, and so another mask. Overlapping entries are both valid for the keys that they share.
//! To avoid overlaps, the choice of a proof could depend only on bits in the mask. With this
//! choice, the bits of every unavailable proof would have to be added too.
//!
//! # Port tries
//!
//! If all stages of a subtable have the value of the packet, but no rule has the whole value, only
//! the whole mask excludes the subtable. A trie over the ports of its own rules reduces the port
//! bits of this proof to those that prove that no rule has these ports. (One more variant was
//! tried: if the ports alone are a proof, the addresses are not added. On ClassBench rule sets this
//! variant did not save a single cache entry.)
//!
//! # An example
//!
//! ```text
//! priority 30:  tcp, ip_dst=10.1.0.0/16, tcp_dst=80         subtable A
//! priority 20:  ip, ip_dst=192.168.7.1                      subtable B
//! priority 20:  in_port=1, arp                              subtable C
//! priority 10:  ip                                          subtable D
//! priority  0:  in_port=9                                   subtable E
//!
//! packet: in_port=2, tcp, 10.1.2.3, port 81
//!
//! A  10.1.0.0/16 is in the trie, so /16 may match. The gate {0x0800} is open: search A.
//!    network: the set {(10.1.0.0, 6)} has the value. Whole value: none.
//!    Port trie {80}: 81 = ..0101_0001 differs from 80 = ..0101_0000 at the last bit of 16.
//!                                       adds eth_type, ip_dst/16, ip_proto, all of tcp_dst
//! B  the walk ended at 10.1.0.0/16, so there is no /32: not open.
//! C  the gate {(1, 0x0806)} does not have (2, 0x0800): not open.
//! D  matches.                                                             adds eth_type
//! E  its highest rank is below that of D: the search ends.
//! B  is excluded by the 16 bits of ip_dst that the mask has.              adds nothing
//! C  metadata: the set {1} does not have in_port 2.                       adds in_port
//!
//! mask: in_port, eth_type, ip_dst/16, ip_proto, tcp_dst
//! ```
//!
//! For port 8081, which differs from 80 at the fourth bit, 4 bits of `tcp_dst` would be enough.
//!
//! # Versions
//!
//! The rules with one value form a chain, and each rule has a lifetime. A lookup takes the rule of
//! the highest rank in the chain that its version sees. Highest ranks, gates, stages and tries
//! cover *every rule that is not yet reclaimed*. Every version sees only rules that are not
//! reclaimed, so an exclusion is always correct. If they covered only the rules of the newest
//! version, a lookup at an older version could end too early. Or a stage could exclude the rule
//! that must be found. The cost is that masks have a few more bits until the rules are reclaimed.

mod addresses;
mod blocks;
mod gates;
mod ports;
mod proof;
mod region;
mod scan;
mod search;
mod stages;
mod subtable;
mod table;
mod value_set;
mod words;

pub use scan::ScanPosition;
pub use table::TupleSpace;

#[cfg(test)]
mod tests;

//! Tuple space search, and how it keeps its masks wide.
//!
//! Rules with one mask differ only in values, so a hash table finds the rule that matches: mask the
//! key, look it up. A table has one *subtable* per mask, and a lookup probes subtable after
//! subtable (Srinivasan, Suri, Varghese, *Packet Classification using Tuple Space Search*, 1999).
//! Subtables are ordered by their highest rank. The search ends when no subtable left can have a
//! better rule than the best so far.
//!
//! # The invariant
//!
//! The result becomes a cache entry for every key that agrees with this one under the mask that the
//! lookup adds. So the mask must hold, for *every* subtable up to the end of the search, bits that
//! prove its result:
//!
//! - a subtable in which a rule was found: its whole mask;
//! - a subtable without a match: bits such that no rule in it matches a key that has them;
//! - a subtable after the end of the search: nothing, because its highest rank does not depend on
//!   the key.
//!
//! Each proof is valid alone, so their union proves the result. Adding whole masks everywhere would
//! be right, but useless: one rule for a `/32` and a port would tie every cache entry to one
//! address and one port. The rest of this page is about smaller proofs. They are those of Open
//! vSwitch (Pfaff et al., *The Design and Implementation of Open vSwitch*, 2015, section 5), with
//! the differences named below.
//!
//! # Stages
//!
//! The words of a mask are in up to four stages, in the order of the layers: metadata, link,
//! network, transport. For each stage except the last, a subtable keeps the set of the values of
//! its rules in all words up to there. The first set without the value of the packet proves that no
//! rule matches, by the words up to this stage. Later layers stay out of the mask. A lookup probes
//! the last set first: if it has the value, all sets have it.
//!
//! If rules match both addresses, a subtable also keeps the values of each address alone. If no
//! rule has the source of the packet, the target stays out of the mask.
//!
//! # Address tries
//!
//! Inside the network stage, whole words would still be whole addresses. A trie over the addresses
//! of all rules of the table finds the prefix lengths that the address of the packet has. It also
//! finds the number of leading bits that prove all others absent. A subtable with another prefix
//! length is excluded by these bits of the address, and its Ethernet type.
//!
//! There are three differences from Open vSwitch. Tries hold masks with holes by their leading
//! ones. ARP addresses use the tries of IPv4. A proof is never longer than the prefix of the
//! subtable.
//!
//! # Many masks
//!
//! A table may have hundreds of masks. A lookup that visits every subtable only to find it excluded
//! by a trie is too slow. So the search order is kept in blocks of 64 slots, as sets: one for each
//! prefix length and one for each gate (`blocks.rs`, `gates.rs`). A gate is the beginning that many
//! masks share. It is closed if no rule behind it has the value of the packet there. Tries and
//! gates exclude slots word by word, and the lookup searches only the slots that stay *open*.
//!
//! # Choice of proofs
//!
//! Each open subtable has one proof, which is added when it is searched. Together with the mask of
//! the result, these are most of the bits. Then come the subtables that are not open (`proof.rs`).
//! If leading bits that are in the mask already exclude one, nothing is added. Otherwise a stage
//! before the addresses is preferred, as in Open vSwitch: it has few values, and other subtables
//! need it too. Otherwise it is the address that adds fewer bits.
//!
//! Two variants were tried on ClassBench sets and rejected. Rounding the number of leading bits up
//! to a multiple of 4 or 8 leaves fewer masks, and up to twice as many entries. Always taking the
//! target, or the source, or both, makes no difference.
//!
//! The masks do not form a partition: another key of the region may have a smaller proof for a
//! subtable, and so another mask. Both entries are right where they overlap. A choice that depends
//! only on the bits in the mask would add the bits of every proof that was not available.
//!
//! # Port tries
//!
//! A subtable that passed all stages and has no rule with the whole value is excluded by its mask.
//! A trie over the ports of its own rules reduces the port bits to those that prove that no rule
//! has these ports. (Leaving out the addresses when the ports alone are a proof was tried: on
//! ClassBench rule sets it did not save a single cache entry.)
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
//! If the port were 8081, which differs from 80 at the fourth bit, 4 bits of `tcp_dst` would be
//! enough.
//!
//! # Versions
//!
//! A rule stays in its chain with its lifetime. A lookup takes the highest-ranking rule of the
//! chain that its version sees. Highest ranks, gates, stages and tries cover *every rule that is
//! not yet reclaimed*. For any version that is a superset of the rules it sees, so an exclusion is
//! always right. If they covered only the newest version, a lookup at an older one could end too
//! early, or a stage could exclude the rule that it must find. The price is masks that are a little
//! narrower until the rules are reclaimed.

mod addresses;
mod blocks;
mod gates;
mod ports;
mod proof;
mod region;
mod search;
mod stages;
mod subtable;
mod table;
mod value_set;
mod words;

pub use table::TupleSpace;

#[cfg(test)]
mod tests;

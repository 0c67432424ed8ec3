//! Tuple space search, and how it keeps its masks wide.
//!
//! Rules with one mask differ in values only, so a hash table finds the rule that matches: mask
//! the key, look it up. A table of rules becomes one *subtable* per mask, and a lookup probes
//! subtable after subtable (Srinivasan, Suri, Varghese, *Packet Classification using Tuple Space
//! Search*, 1999). Subtables are in the order of their highest ranks, so the search ends as soon as
//! none of those left could hold a better rule than the best so far.
//!
//! # The invariant
//!
//! The answer becomes a cache entry for every key that agrees with this one under the mask that
//! the lookup adds. So the mask must hold, for *every* subtable up to the end of the search, bits
//! that prove what became of it:
//!
//! - the best rule's subtable, and any other where a rule was found: its whole mask;
//! - a subtable without a match: bits such that no rule in it matches a key that has them;
//! - a subtable behind the end: nothing, since its highest rank does not depend on the key.
//!
//! Each proof stands alone, so their union proves the answer. It would be right to add whole masks
//! everywhere, and useless: one rule for a `/32` and a port would tie every cache entry to one
//! address and one port. The rest of this page is about smaller proofs. They are those that Open
//! vSwitch makes (Pfaff et al., *The Design and Implementation of Open vSwitch*, 2015, section 5),
//! with the differences named below.
//!
//! # Stages
//!
//! The words of a mask lie in up to four stages, in the order in which a packet reveals them:
//! metadata, link, network, transport. For each stage but the last a subtable keeps a set of the
//! values that its rules have in all words up to there. The first set that lacks the packet's value
//! proves that no rule matches, by the words up to this stage; later layers stay out of the mask.
//! A lookup asks the last set first: what it has, all have.
//!
//! Where rules look at both addresses, a subtable also keeps the values of each address alone: if
//! no rule has the packet's source, the target stays out of the mask.
//!
//! # Address tries
//!
//! Within the network stage whole words would still be whole addresses. A trie over the addresses
//! of all rules of the table says which prefix lengths the packet's address has in it, and how
//! many leading bits prove that it has no others. A subtable whose prefix length is not among
//! them is excluded by that many bits of the address, and its Ethernet type.
//!
//! Here ours differs from Open vSwitch: tries know masks with holes by their leading ones, ARP
//! addresses use those of IPv4, and a proof is never longer than the subtable's own prefix.
//!
//! # Many masks
//!
//! A table may have hundreds of masks, and a lookup that looks at every subtable only to see that
//! a trie excludes it has lost already. So the order of subtables is kept in blocks of 64 as sets,
//! one for each prefix length, one for each gate (`blocks.rs`, `gates.rs`): a gate is what the masks
//! of many subtables begin with, and closed if none of all their rules has the packet's value there.
//! What tries and gates exclude is taken out word by word, and only what stays *open* is asked.
//!
//! # Which proof
//!
//! Open subtables have one proof each, and it is added when they are asked: with the answer's own
//! mask that is most of what a lookup depends on. Afterwards come those that are not open
//! (`proof.rs`). Where leading bits that are in the mask already exclude one, nothing is added. Else
//! a stage before the addresses is preferred, as Open vSwitch does: its values are few, and other
//! subtables need them too. Else the address is taken that adds fewer bits.
//!
//! Tried on ClassBench sets, and left out: to round the number of leading bits up to a multiple of 4
//! or 8, which leaves fewer masks and up to twice as many entries; to take the target always, or the
//! source, or both, which makes no difference.
//!
//! The mask is not that of a partition: another key of the region may have a smaller proof for a
//! subtable, and a mask of its own. Both entries are right where they overlap. To make the choice
//! a function of the bits in the mask would add the bits of every proof that was not to be had.
//!
//! # Port tries
//!
//! A subtable that passed all stages and has no rule with the whole value is excluded by its
//! mask, except that a trie over the ports of its own rules cuts their bits to those that prove
//! that no rule has these ports. (To leave the addresses out when the ports alone are proof was
//! tried: on ClassBench rule-sets it did not save a single cache entry.)
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
//! A  10.1.0.0/16 is stored, so /16 may match. The gate {0x0800} is open: A is asked.
//!    network: the set {(10.1.0.0, 6)} has the value. Whole value: none.
//!    Port trie {80}: 81 = ..0101_0001 parts from 80 = ..0101_0000 at the last bit of 16.
//!                                       adds eth_type, ip_dst/16, ip_proto, all of tcp_dst
//! B  the walk retired at 10.1.0.0/16, so there is no /32: not open.
//! C  the gate {(1, 0x0806)} does not have (2, 0x0800): not open.
//! D  matches.                                                             adds eth_type
//! E  its highest rank is below that of D: the search ends.
//! B  is proved by the 16 bits of ip_dst that the mask has.                adds nothing
//! C  metadata: the set {1} does not have in_port 2.                       adds in_port
//!
//! mask: in_port, eth_type, ip_dst/16, ip_proto, tcp_dst
//! ```
//!
//! Had the port been 8081, which parts from 80 at the fourth bit, 4 bits of `tcp_dst` would do.
//!
//! # Versions
//!
//! A rule stays in its chain with its lifetime, and a lookup takes the highest-ranking one of the
//! chain that its version sees. Highest ranks, gates, stages and tries cover *every rule that is not yet
//! reclaimed*: for any version that is a superset of what it sees, so what they exclude is
//! excluded. If they covered the newest version only, a lookup at an older one would end too
//! early, or be excluded by a stage that has forgotten the rule it should find. The price is
//! masks that are a little narrower until the rules are reclaimed.

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

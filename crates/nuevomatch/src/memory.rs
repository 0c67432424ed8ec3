//! The check before a build that the system has memory for it.
//!
//! An allocation that fails ends the process, and with it every lookup. So a build first asks for
//! the least memory that it needs, in one piece. A limit of the address space (`ulimit -v`) or a
//! system without overcommitment refuses the piece, and the build is an error. A limit of a control
//! group (`memory.max`) refuses nothing at this point.

use std::hint::black_box;

use crate::{Error, PriorityRule};

/// Returns an empty list with room for this number of rules.
///
/// Lists of rules that exist only for a build are reserved in this way, before they are filled.
pub(crate) fn rule_list<const N: usize>(rules: usize) -> Result<Vec<PriorityRule<N>>, Error> {
    let mut list = Vec::new();
    match list.try_reserve_exact(rules) {
        Ok(()) => Ok(list),
        Err(_) => Err(Error::Memory { rules, bytes: bytes_of::<N>(rules) }),
    }
}

/// Checks that a build of this number of rules gets memory.
///
/// A build sorts the rules or their ranges, and copies them into blocks. Both take at least the
/// size of the rules once more.
pub(crate) fn check_memory<const N: usize>(rules: usize) -> Result<(), Error> {
    let bytes = bytes_of::<N>(rules);
    let mut piece = Vec::<u8>::new();
    let refusal = piece.try_reserve_exact(bytes).err();
    // Without a use of the piece, the compiler may remove its allocation.
    black_box(&piece);
    refusal.map_or(Ok(()), |_| Err(Error::Memory { rules, bytes }))
}

/// Returns the size of this number of rules.
const fn bytes_of<const N: usize>(rules: usize) -> usize {
    rules.saturating_mul(size_of::<PriorityRule<N>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_bytes_than_addresses_are_refused() {
        assert_eq!(check_memory::<5>(0), Ok(()));
        assert_eq!(check_memory::<5>(1000), Ok(()));
        let rules = usize::MAX / 2;
        let error = check_memory::<5>(rules).unwrap_err();
        assert_eq!(error, Error::Memory { rules, bytes: usize::MAX });
        assert_eq!(rule_list::<5>(rules), Err(error));
        let text = error.to_string();
        assert!(text.contains(&rules.to_string()) && text.contains("raise its limit"), "{text}");
    }
}

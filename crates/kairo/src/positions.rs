//! Positions of elements in lists, as numbers of 32 bits.

/// Returns the index of a list element as a position of 32 bits.
///
/// # Panics
///
/// If `index` is 2^32 or more: a list of this length would fill 96 GiB.
#[expect(clippy::expect_used, reason = "a list of 2^32 rows does not fit in memory")]
pub(crate) fn position(index: usize) -> u32 {
    u32::try_from(index).expect("a list has fewer than 2^32 rows")
}

/// Returns the position of the last element of a list, which must not be empty.
///
/// # Panics
///
/// If the list is empty, or its last index is 2^32 or more.
pub(crate) fn last_position<T>(list: &[T]) -> u32 {
    position(list.len() - 1)
}

//! Big-endian reads from headers, at offsets that are checked at compile time.
//!
//! Each read is one load and one byte swap. The compiler does not make one load of a sum of shifted
//! bytes.

#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

/// Returns the eight bytes at `AT` of a header of `N` bytes.
#[inline]
pub(crate) fn be64<const AT: usize, const N: usize>(header: &[u8; N]) -> u64 {
    u64::from_be_bytes(part::<AT, 8, N>(header))
}

/// Returns the four bytes at `AT` of a header of `N` bytes.
#[inline]
pub(crate) fn be32<const AT: usize, const N: usize>(header: &[u8; N]) -> u32 {
    u32::from_be_bytes(part::<AT, 4, N>(header))
}

/// Returns the two bytes at `AT` of a header of `N` bytes.
#[inline]
pub(crate) fn be16<const AT: usize, const N: usize>(header: &[u8; N]) -> u16 {
    u16::from_be_bytes(part::<AT, 2, N>(header))
}

/// Returns `LEN` bytes of a header, from byte `AT` on.
#[inline]
fn part<const AT: usize, const LEN: usize, const N: usize>(header: &[u8; N]) -> [u8; LEN] {
    const { assert!(AT <= N && LEN <= N - AT, "the field lies within the header") };
    let part = header.get(AT..).and_then(|rest| rest.first_chunk());
    part.copied().unwrap_or([0; LEN])
}

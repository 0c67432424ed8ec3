//! Reads that never wait, whatever the flags of the file descriptor are.
//!
//! Source: preadv2(2), `RWF_NOWAIT`.
#![expect(unsafe_code, reason = "reads with flags, which std does not have")]

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

/// Reads the bytes that a file has at this moment; returns their number.
///
/// # Errors
///
/// If the file has nothing to read, or the kernel does not support such reads for its type.
pub(crate) fn read_at_once(file: &impl AsFd, bytes: &mut [u8]) -> io::Result<usize> {
    let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let file = file.as_fd().as_raw_fd();
    // SAFETY: the part describes `bytes`, which outlives the call and is borrowed by it alone.
    let read = unsafe { libc::preadv2(file, &raw const part, 1, -1, libc::RWF_NOWAIT) };
    usize::try_from(read).map_err(|_| io::Error::last_os_error())
}

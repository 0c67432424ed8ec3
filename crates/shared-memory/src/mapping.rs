//! A mapped part of a file that another process may write.
//!
//! The other process may write at any moment. So no Rust reference points into the memory: bytes
//! are copied out once, and only the copies are checked and used. Words that both sides access as a
//! whole are atomics. Every access is checked against the mapping, which exists as long as its
//! value.
//!
//! The other process may truncate the file despite the mapping. An access then ends this process
//! with `SIGBUS`, unless the file is sealed ([`SharedMapping::sealed`]).
#![expect(unsafe_code, reason = "the memory is shared with another process")]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::fs::MetadataExt,
    },
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU8, AtomicU16, AtomicU32, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::statfs::{HUGETLBFS_MAGIC, fstatfs},
};

/// A mapped part of a file, which dropping the value unmaps.
#[derive(Debug)]
pub struct SharedMapping {
    /// Address of the first mapped byte.
    address: NonNull<u8>,
    /// Number of mapped bytes: a multiple of the page size.
    mapped: usize,
    /// Offset of the first byte of the part from `address`.
    start: usize,
    /// Length of the part in bytes.
    length: usize,
}

// SAFETY: the mapping is not bound to the thread that made it.
unsafe impl Send for SharedMapping {}
// SAFETY: the value gives no reference to the memory away. The mapping copies bytes, and accesses
// words that both sides share as atomics.
unsafe impl Sync for SharedMapping {}

/// The reason why a part of a file is not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The part is empty, or longer than half of the address space.
    #[error("a memory region of {0} bytes is empty, or ends beyond half of the address space")]
    Length(u64),
    /// The file is shorter than the end of the part.
    #[error("a memory region ends at byte {end}, but its file has only {length} bytes")]
    ShortFile {
        /// The end of the part, as offset in the file.
        end: u64,
        /// The length of the file.
        length: u64,
    },
    /// The other process could truncate the file.
    #[error(
        "a memory region is in a file that its owner can shorten: seal the file with F_SEAL_SHRINK"
    )]
    NotSealed,
    /// The other process could return pages of the file to the kernel.
    ///
    /// No seal forbids this, and the kernel may have no huge pages left for later accesses.
    #[error(
        "a memory region is in a file of huge pages, which its owner can return to the kernel: \
         use ordinary pages"
    )]
    HugePages,
    /// The kernel refused to map the file.
    #[error("a memory region cannot be mapped: {0}")]
    System(#[from] io::Error),
}

/// Maximum length of a mapping: 2^46 bytes, half of the address space of a process.
const LENGTH_MAX: u64 = 1 << 46;

/// Size of the smallest page in bytes.
const PAGE: u64 = 4096;

/// Size of a cache line of the processor in bytes.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Number of bytes to prefetch if it is not known how much of a range is used.
const PREFETCHED: usize = 128;

impl SharedMapping {
    /// Maps `length` bytes of a file, from the byte `offset` on.
    ///
    /// # Errors
    ///
    /// If the file is too short, or a system call fails.
    pub fn new(file: &impl AsFd, offset: u64, length: u64) -> Result<Self, MapError> {
        let file = file.as_fd();
        let (end, block) = checked_end(file, offset, length)?;
        let too_long = || MapError::Length(length);
        let file_start = offset / block * block;
        let whole = (end - file_start).checked_next_multiple_of(block).ok_or_else(too_long)?;
        let mapped = usize::try_from(whole).map_err(|_| too_long())?;
        let start = usize::try_from(offset - file_start).map_err(|_| too_long())?;
        let length = usize::try_from(length).map_err(|_| too_long())?;
        let file_start = libc::off_t::try_from(file_start).map_err(|_| too_long())?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let descriptor = file.as_raw_fd();
        // SAFETY: the system chooses the address, so no existing memory is replaced.
        let address =
            unsafe { libc::mmap(ptr::null_mut(), mapped, access, flags, descriptor, file_start) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let address = NonNull::new(address.cast()).ok_or_else(too_long)?;
        Ok(Self { address, mapped, start, length })
    }

    /// Maps the first `length` bytes of a file in memory that cannot be shortened.
    ///
    /// If the file does not have the seal against shortening, the call adds it. If the owner
    /// returns single pages to the kernel, new pages of zeros replace them, except in a file of
    /// huge pages.
    ///
    /// # Errors
    ///
    /// Like [`Self::new`]; also if the file cannot be sealed, or has huge pages.
    pub fn sealed(file: &impl AsFd, length: u64) -> Result<Self, MapError> {
        let has_seal = || {
            let seals = fcntl(file.as_fd(), FcntlArg::F_GET_SEALS);
            seals.is_ok_and(|seals| {
                SealFlag::from_bits_retain(seals).contains(SealFlag::F_SEAL_SHRINK)
            })
        };
        if !has_seal() {
            // The owner may have forbidden further seals, which the check below detects.
            let _ = fcntl(file.as_fd(), FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK));
        }
        if !has_seal() {
            return Err(MapError::NotSealed);
        }
        if fstatfs(file).map_err(io::Error::from)?.filesystem_type() == HUGETLBFS_MAGIC {
            return Err(MapError::HugePages);
        }
        Self::new(file, 0, length)
    }

    /// Returns the length of the part in bytes.
    #[inline]
    #[must_use]
    pub const fn length(&self) -> usize {
        self.length
    }

    /// Returns whether the address of a byte is a multiple of `alignment`.
    #[must_use]
    pub fn is_aligned(&self, offset: usize, alignment: usize) -> bool {
        let first = self.address_of(offset, 0);
        first.is_some_and(|first| first.addr().get().is_multiple_of(alignment))
    }

    /// Returns the address of a range of bytes; `None` if it exceeds the mapping.
    #[inline]
    fn address_of(&self, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let end = offset.checked_add(length)?;
        if end > self.length {
            return None;
        }
        // SAFETY: `new` has mapped `length` bytes from `start` on, and the bytes lie in this part.
        Some(unsafe { self.address.add(self.start + offset) })
    }

    /// Copies bytes out of the mapping; returns false if the range exceeds it.
    #[inline]
    #[must_use]
    pub fn read(&self, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.address_of(offset, to.len()) else { return false };
        // SAFETY: `address_of` has checked that as many bytes are mapped. No reference of this process
        // is into the mapping, so the areas do not overlap. A process that writes meanwhile changes
        // only bytes, for which every value is valid.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes into the mapping; returns false if the range exceeds it.
    #[inline]
    #[must_use]
    pub fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.address_of(offset, from.len()) else { return false };
        // SAFETY: as in `read`, and the mapping is writable.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// Prefetches the first bytes of a range into the processor cache.
    #[inline]
    pub fn prefetch(&self, offset: usize, length: usize) {
        self.prefetch_to_read(offset, length.min(PREFETCHED));
    }

    /// Prefetches a whole range, for reading.
    #[inline]
    pub fn prefetch_to_read(&self, offset: usize, length: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(first) = self.address_of(offset, length) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

            for line in (0..length).step_by(LINE) {
                let line = first.as_ptr().wrapping_add(line).cast();
                // SAFETY: SSE is in every x86-64 processor, and a hint never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, length);
    }

    /// Prefetches a whole range, for writing.
    ///
    /// The hint also takes the range out of the caches of other processors.
    #[inline]
    pub fn prefetch_to_write(&self, offset: usize, length: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(first) = self.address_of(offset, length) {
            for line in (0..length).step_by(LINE) {
                let line = first.as_ptr().wrapping_add(line);
                // The compiler's own hint would be one to read, unless it builds for processors
                // with PREFETCHW.
                // SAFETY: a hint never faults, and processors without PREFETCHW skip it
                // (Intel 64 and AMD64 manuals, PREFETCHW).
                unsafe {
                    std::arch::asm!(
                        "prefetchw [{line}]",
                        line = in(reg) line,
                        options(nostack, preserves_flags, readonly),
                    );
                }
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (offset, length);
    }

    /// Loads an aligned 16-bit word (`Acquire`), in the byte order of this machine.
    ///
    /// The other side stores the word after the bytes that the word announces.
    #[inline]
    #[must_use]
    pub fn load(&self, offset: usize) -> Option<u16> {
        let word = self.word::<u16>(offset)?;
        // SAFETY: `word` has checked that the word is mapped and aligned, and the mapping exists as
        // long as `self`. This process makes no other reference to the mapping.
        Some(unsafe { AtomicU16::from_ptr(word.as_ptr()) }.load(Acquire))
    }

    /// Stores an aligned 16-bit word (`Release`), in the byte order of this machine.
    ///
    /// The other side loads the word before the bytes that the word announces.
    #[inline]
    #[must_use]
    pub fn store(&self, offset: usize, value: u16) -> bool {
        let Some(word) = self.word::<u16>(offset) else { return false };
        // SAFETY: as in `load`.
        unsafe { AtomicU16::from_ptr(word.as_ptr()) }.store(value, Release);
        true
    }

    /// Stores an aligned 32-bit word (`Release`), in the byte order of this machine.
    #[inline]
    #[must_use]
    pub fn store_u32(&self, offset: usize, value: u32) -> bool {
        let Some(word) = self.word::<u32>(offset) else { return false };
        // SAFETY: as in `load`.
        unsafe { AtomicU32::from_ptr(word.as_ptr()) }.store(value, Release);
        true
    }

    /// Loads an aligned 64-bit word (`Acquire`), in the byte order of this machine.
    #[inline]
    #[must_use]
    pub fn load_u64(&self, offset: usize) -> Option<u64> {
        let word = self.word::<u64>(offset)?;
        // SAFETY: as in `load`.
        Some(unsafe { AtomicU64::from_ptr(word.as_ptr()) }.load(Acquire))
    }

    /// Stores an aligned 64-bit word (`Release`), in the byte order of this machine.
    #[inline]
    #[must_use]
    pub fn store_u64(&self, offset: usize, value: u64) -> bool {
        let Some(word) = self.word::<u64>(offset) else { return false };
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(word.as_ptr()) }.store(value, Release);
        true
    }

    /// Sets bits of a byte atomically (`Release`);
    /// the other side may change the byte too.
    ///
    /// Returns false if the byte is outside of the mapping.
    #[inline]
    #[must_use]
    pub fn set_bits(&self, offset: usize, bits: u8) -> bool {
        let Some(byte) = self.word::<u8>(offset) else { return false };
        // SAFETY: as in `load`.
        unsafe { AtomicU8::from_ptr(byte.as_ptr()) }.fetch_or(bits, Release);
        true
    }

    /// Returns the address of an aligned word that both sides access as a whole.
    #[inline]
    fn word<T>(&self, offset: usize) -> Option<NonNull<T>> {
        let address = self.address_of(offset, size_of::<T>())?.cast::<T>();
        address.is_aligned().then_some(address)
    }
}

/// Returns the end of a part in its file, and the block size of the file.
fn checked_end(file: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(u64, u64), MapError> {
    let end = offset.checked_add(length).filter(|_| (1..=LENGTH_MAX).contains(&length));
    let end = end.ok_or(MapError::Length(length))?;
    let metadata = File::from(file.try_clone_to_owned()?).metadata()?;
    if metadata.is_file() && metadata.len() < end {
        return Err(MapError::ShortFile { end, length: metadata.len() });
    }
    // A file of huge pages is mapped in whole huge pages, which are the blocks of the file.
    let block = Some(metadata.blksize()).filter(|block| block.is_power_of_two());
    Ok((end, block.unwrap_or(PAGE).max(PAGE)))
}

impl Drop for SharedMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    /// Returns a file in memory.
    fn file(length: u64, flags: MFdFlags) -> File {
        let file = File::from(memfd_create(c"mapping", flags).unwrap());
        file.set_len(length).unwrap();
        file
    }

    #[test]
    fn mapped_parts_have_bounds_of_their_own() {
        let file = file(0x2800, MFdFlags::MFD_CLOEXEC);
        let (whole, part) = (
            SharedMapping::new(&file, 0, 0x2800).unwrap(),
            SharedMapping::new(&file, 0x800, 0x2000).unwrap(),
        );
        assert_eq!(part.length(), 0x2000);
        assert!(part.write(0x1ffc, b"four"));
        for outside in [0x1ffd, 0x2000, usize::MAX] {
            assert!(!part.write(outside, b"four"), "{outside}");
            assert!(!part.read(outside, &mut [0; 4]), "{outside}");
        }
        let mut bytes = [0; 4];
        assert!(whole.read(0x27fc, &mut bytes));
        assert_eq!(&bytes, b"four");
    }

    #[test]
    fn a_shared_word_must_be_aligned_and_inside() {
        let mapping = SharedMapping::new(&file(64, MFdFlags::MFD_CLOEXEC), 0, 64).unwrap();
        assert!(mapping.store(2, 0x0102));
        assert_eq!(mapping.load(2), Some(0x0102));
        assert_eq!(mapping.load(3), None, "the offset is not aligned");
        assert_eq!(mapping.load(64), None);
        assert!(mapping.is_aligned(8, 8) && !mapping.is_aligned(4, 8));
        assert!(mapping.store_u32(4, 0x0506_0708) && !mapping.store_u32(2, 0));
        assert!(mapping.store_u64(8, 7) && !mapping.store_u64(4, 0));
        assert_eq!((mapping.load_u64(8), mapping.load_u64(4)), (Some(7), None));
        assert!(mapping.set_bits(63, 1) && mapping.set_bits(63, 4) && !mapping.set_bits(64, 1));
        let mut bytes = [0; 4];
        assert!(mapping.read(60, &mut bytes));
        assert_eq!(bytes, [0, 0, 0, 5]);
        assert!(mapping.read(4, &mut bytes));
        assert_eq!(bytes, 0x0506_0708_u32.to_ne_bytes());
    }

    #[test]
    fn a_part_beyond_the_file_is_refused() {
        let file = file(0x2800, MFdFlags::MFD_CLOEXEC);
        let refused = |offset, length| match SharedMapping::new(&file, offset, length) {
            Ok(_) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        assert_eq!(refused(0, 0x2800), "fine");
        let expected = "a memory region ends at byte 10241, but its file has only 10240 bytes";
        assert_eq!(refused(1, 0x2800), expected);
        for (offset, length) in [(0, 0), (u64::MAX, 1), (0, u64::MAX)] {
            assert!(refused(offset, length).contains("is empty, or ends beyond"));
        }
    }

    #[test]
    fn a_sealed_file_cannot_be_shortened() {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let sealable = file(0x2000, flags);
        SharedMapping::sealed(&sealable, 0x2000).unwrap();
        sealable.set_len(0x1000).unwrap_err();
        let other = file(0x2000, MFdFlags::MFD_CLOEXEC);
        assert!(matches!(SharedMapping::sealed(&other, 0x2000), Err(MapError::NotSealed)));
    }

    /// While no process maps the file, it needs no free huge page.
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn a_file_of_huge_pages_keeps_no_pages() {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_HUGETLB;
        let Ok(huge) = memfd_create(c"huge", flags) else {
            eprintln!("SKIPPED: the system has no huge pages");
            return;
        };
        let huge = File::from(huge);
        huge.set_len(1 << 30).unwrap();
        assert!(matches!(SharedMapping::sealed(&huge, 0x2000), Err(MapError::HugePages)));
    }
}

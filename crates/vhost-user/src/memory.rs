//! The memory of a guest: files that the front-end passed, mapped into this process.
//!
//! The guest may write to its memory at any moment. So no Rust reference points into the memory:
//! values are copied out once, and only the copies are checked and used. Every access is checked
//! against its region, and a region stays mapped as long as a [`GuestMemory`] has it.
//!
//! The front-end is trusted in one respect: the pages of a region must exist. If it truncates the
//! file, or a full file system has no room for a page at its first access, the system ends this
//! process with `SIGBUS`. Hypervisors seal a memory file, and can allocate its pages beforehand.
//!
//! Source: vhost-user protocol, "Memory region description".
#![expect(unsafe_code, reason = "memory shared with a guest")]

use std::{
    fs::File,
    io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{
            AtomicU16,
            Ordering::{Acquire, Release},
        },
    },
};

use crate::message::RegionMessage;

/// The mapped memory regions of a guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestMemory {
    regions: Vec<MappedRegion>,
}

#[derive(Clone, Debug)]
struct MappedRegion {
    message: RegionMessage,
    /// Length, in bytes.
    length: usize,
    /// First byte of the region in the mapping.
    start: usize,
    mapping: Arc<GuestMapping>,
}

/// A range of a memory region.
///
/// The range is only a position: each access checks its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestRange {
    region: usize,
    start: usize,
    length: usize,
}

impl GuestRange {
    /// Returns the length of the range, in bytes.
    #[inline]
    pub(crate) const fn len(self) -> usize {
        self.length
    }
}

/// A reason why a memory region is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MemoryError {
    #[error("a memory region of {length} bytes at {address:#x} is empty or too long")]
    Length { length: u64, address: u64 },
    #[error("memory regions overlap at {0:#x}")]
    Overlap(u64),
    #[error("there are more than {0} memory regions")]
    TooMany(usize),
    #[error("there is no memory region at {0:#x}")]
    Missing(u64),
    #[error("a memory region ends at byte {end} of a file with {length} bytes")]
    ShortFile { end: u64, length: u64 },
    #[error("a memory region cannot be mapped: {0}")]
    Map(#[from] io::Error),
}

impl GuestMemory {
    /// The maximum number of regions.
    pub(crate) const REGIONS_MAX: usize = 256;

    /// Returns whether the guest has no memory region.
    pub(crate) const fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Maps a region and adds it.
    pub(crate) fn add(&mut self, message: RegionMessage, file: OwnedFd) -> Result<(), MemoryError> {
        if self.regions.len() >= Self::REGIONS_MAX {
            return Err(MemoryError::TooMany(Self::REGIONS_MAX));
        }
        let address = message.guest_address;
        let length = checked_length(&message)
            .ok_or(MemoryError::Length { length: message.length, address })?;
        let overlaps = |start: u64, other: u64, other_length: u64| {
            start < other + other_length && other < start + message.length
        };
        let is_taken = self.regions.iter().any(|MappedRegion { message: other, .. }| {
            overlaps(address, other.guest_address, other.length)
                || overlaps(message.user_address, other.user_address, other.length)
        });
        if is_taken {
            return Err(MemoryError::Overlap(address));
        }
        let (mapping, start) = GuestMapping::of(&message, file)?;
        self.regions.push(MappedRegion { message, length, start, mapping: Arc::new(mapping) });
        Ok(())
    }

    /// Removes the region with the same addresses and length.
    pub(crate) fn remove(&mut self, message: &RegionMessage) -> Result<(), MemoryError> {
        let is_same = |own: &RegionMessage| {
            (own.guest_address, own.user_address, own.length)
                == (message.guest_address, message.user_address, message.length)
        };
        let found = self.regions.iter().position(|region| is_same(&region.message));
        self.regions.remove(found.ok_or(MemoryError::Missing(message.guest_address))?);
        Ok(())
    }

    /// Returns the longest range at a guest address, at most `length` bytes.
    #[inline]
    pub(crate) fn find(&self, address: u64, length: usize) -> Option<GuestRange> {
        self.find_by(address, length, |message| message.guest_address)
    }

    /// Returns the range of exactly `length` bytes at an address of the front-end.
    pub(crate) fn find_user(&self, address: u64, length: usize) -> Option<GuestRange> {
        let range = self.find_by(address, length, |message| message.user_address)?;
        (range.length == length).then_some(range)
    }

    #[inline]
    fn find_by(
        &self,
        address: u64,
        length: usize,
        first: impl Fn(&RegionMessage) -> u64,
    ) -> Option<GuestRange> {
        self.regions.iter().enumerate().find_map(|(region, own)| {
            let start = usize::try_from(address.checked_sub(first(&own.message))?).ok()?;
            let left = own.length.checked_sub(start).filter(|left| *left > 0)?;
            Some(GuestRange { region, start, length: left.min(length) })
        })
    }

    /// Returns the address of bytes in a range; `None` if they are not in its region.
    #[inline]
    fn address(&self, range: GuestRange, offset: usize, length: usize) -> Option<NonNull<u8>> {
        let region = self.regions.get(range.region)?;
        let end = offset.checked_add(length)?;
        if end > range.length || range.start.checked_add(end)? > region.length {
            return None;
        }
        let offset = region.start + range.start + offset;
        // SAFETY: a region lies in its mapping (`GuestMapping::of`), and the bytes lie in the region, as
        // checked above. The mapping exists as long as `self` has the region.
        Some(unsafe { region.mapping.address.add(offset) })
    }

    /// Copies bytes out of a range.
    #[inline]
    #[must_use]
    pub(crate) fn read(&self, range: GuestRange, offset: usize, to: &mut [u8]) -> bool {
        let Some(from) = self.address(range, offset, to.len()) else { return false };
        // SAFETY: `address` has checked that as many bytes are mapped. No reference of this process
        // is into the mapping, so the areas do not overlap. A guest that writes meanwhile changes only
        // bytes, for which every value is valid.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
        true
    }

    /// Copies bytes into a range.
    #[inline]
    #[must_use]
    pub(crate) fn write(&self, range: GuestRange, offset: usize, from: &[u8]) -> bool {
        let Some(to) = self.address(range, offset, from.len()) else { return false };
        // SAFETY: as in `read`, and the mapping is writable.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr(), from.len()) };
        true
    }

    /// Prefetches the first bytes of a range into the processor cache.
    #[inline]
    pub(crate) fn prefetch(&self, range: GuestRange) {
        #[cfg(target_arch = "x86_64")]
        if let Some(first) = self.address(range, 0, range.length.min(PREFETCHED)) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

            for line in (0..range.length.min(PREFETCHED)).step_by(LINE) {
                let line = first.as_ptr().wrapping_add(line).cast();
                // SAFETY: SSE is in every x86-64 processor, and a hint never faults.
                unsafe { _mm_prefetch::<_MM_HINT_T0>(line) };
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = range;
    }

    /// Loads a ring index (`Acquire`); the guest stores it after its ring entries.
    #[inline]
    pub(crate) fn load_index(&self, range: GuestRange, offset: usize) -> Option<u16> {
        Some(u16::from_le(self.index(range, offset)?.load(Acquire)))
    }

    /// Stores a ring index (`Release`); the guest loads it before the ring entries.
    #[inline]
    #[must_use]
    pub(crate) fn store_index(&self, range: GuestRange, offset: usize, value: u16) -> bool {
        self.index(range, offset).map(|index| index.store(value.to_le(), Release)).is_some()
    }

    /// Returns an aligned 16-bit word that both sides access as a whole.
    #[inline]
    fn index(&self, range: GuestRange, offset: usize) -> Option<&AtomicU16> {
        let address = self.address(range, offset, size_of::<u16>())?.cast::<u16>();
        if !address.is_aligned() {
            return None;
        }
        // SAFETY: `address` has checked that the word is mapped, it is aligned, and the mapping
        // exists as long as `self`. This process makes no other reference to the mapping.
        Some(unsafe { AtomicU16::from_ptr(address.as_ptr()) })
    }

    /// Returns whether `alignment` divides the address of a range.
    pub(crate) fn is_aligned(&self, range: GuestRange, alignment: usize) -> bool {
        let first = self.address(range, 0, 0);
        first.is_some_and(|first| first.addr().get().is_multiple_of(alignment))
    }
}

/// Returns the length of a region if all of its addresses exist.
fn checked_length(message: &RegionMessage) -> Option<usize> {
    let RegionMessage { guest_address, length, user_address, file_offset } = *message;
    for start in [guest_address, user_address, file_offset] {
        start.checked_add(length)?;
    }
    let length = usize::try_from(length).ok()?;
    (1..=LENGTH_MAX).contains(&length).then_some(length)
}

/// Maximum length of a mapping: 2^46 bytes, half of the address space of a process.
const LENGTH_MAX: usize = 1 << 46;

/// A mapped part of a file, which dropping the value unmaps.
#[derive(Debug)]
struct GuestMapping {
    address: NonNull<u8>,
    length: usize,
}

// SAFETY: the mapping is not bound to the thread that made it.
unsafe impl Send for GuestMapping {}
// SAFETY: a shared mapping gives only its address away. `GuestMemory` copies bytes, and accesses
// words that both sides share as atomics.
unsafe impl Sync for GuestMapping {}

impl GuestMapping {
    /// Maps a region; also returns the offset of its first byte in the mapping.
    fn of(message: &RegionMessage, file: OwnedFd) -> Result<(Self, usize), MemoryError> {
        let file = File::from(file);
        let metadata = file.metadata()?;
        let end = message.file_offset.saturating_add(message.length);
        if metadata.is_file() && metadata.len() < end {
            return Err(MemoryError::ShortFile { end, length: metadata.len() });
        }
        let too_long =
            || MemoryError::Length { length: message.length, address: message.guest_address };
        // A file of huge pages is mapped in whole huge pages, which are the blocks of the file.
        let block = Some(metadata.blksize()).filter(|block| block.is_power_of_two());
        let block = block.unwrap_or(PAGE).max(PAGE);
        let file_start = message.file_offset / block * block;
        let whole = (end - file_start).checked_next_multiple_of(block).ok_or_else(too_long)?;
        let length = usize::try_from(whole).map_err(|_| too_long())?;
        let start = usize::try_from(message.file_offset - file_start).map_err(|_| too_long())?;
        let offset = libc::off_t::try_from(file_start).map_err(|_| too_long())?;
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: the system chooses the address, so no existing memory is replaced.
        let mapped =
            unsafe { libc::mmap(ptr::null_mut(), length, access, flags, file.as_raw_fd(), offset) };
        if mapped == libc::MAP_FAILED {
            return Err(io::Error::last_os_error().into());
        }
        let address = NonNull::new(mapped.cast()).ok_or_else(too_long)?;
        Ok((Self { address, length }, start))
    }
}

impl Drop for GuestMapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing refers to it any more.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.length) };
    }
}

/// Bytes of a line of the processor's caches.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Number of bytes that are prefetched.
#[cfg(target_arch = "x86_64")]
const PREFETCHED: usize = 2 * LINE;

/// Bytes of the smallest page.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    fn file(length: u64) -> OwnedFd {
        let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        file.into()
    }

    const REGION: RegionMessage = RegionMessage {
        guest_address: 0x10_0000,
        length: 0x2000,
        user_address: 0x7000_0000,
        file_offset: 0x800,
    };

    #[test]
    fn a_region_is_found_by_both_addresses() {
        let mut memory = GuestMemory::default();
        memory.add(REGION, file(0x2800)).unwrap();
        let range = memory.find(0x10_1ff0, 64).unwrap();
        assert_eq!(range.length, 16, "the region ends");
        assert_eq!(memory.find_user(0x7000_1ff0, 16), Some(range));
        assert_eq!(memory.find_user(0x7000_1ff0, 17), None);
        for outside in [0, 0xf_ffff, 0x10_2000, u64::MAX] {
            assert_eq!(memory.find(outside, 1), None, "{outside:#x}");
        }
        assert!(memory.write(range, 12, b"four"));
        assert!(!memory.write(range, 13, b"four"));
        let mut bytes = [0; 4];
        assert!(memory.read(range, 12, &mut bytes));
        assert_eq!(&bytes, b"four");
        assert!(!memory.read(range, usize::MAX, &mut bytes));
    }

    #[test]
    fn an_index_is_little_endian_and_aligned() {
        let mut memory = GuestMemory::default();
        memory.add(REGION, file(0x2800)).unwrap();
        let range = memory.find(0x10_0000, 64).unwrap();
        assert!(memory.store_index(range, 2, 0x0102));
        let mut bytes = [0; 2];
        assert!(memory.read(range, 2, &mut bytes));
        assert_eq!((bytes, memory.load_index(range, 2)), ([2, 1], Some(0x0102)));
        assert_eq!(memory.load_index(range, 3), None, "it is not aligned");
        assert_eq!(memory.load_index(range, 64), None);
    }

    #[test]
    fn a_region_that_cannot_be_right_is_refused() {
        let mut memory = GuestMemory::default();
        let mut refused = |message, length| match memory.add(message, file(length)) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let expected = "a memory region ends at byte 10240 of a file with 10239 bytes";
        assert_eq!(refused(REGION, 0x27ff), expected);
        let wraps = RegionMessage { guest_address: u64::MAX - 1, ..REGION };
        assert!(refused(wraps, 0x2800).contains("is empty or too long"));
        assert!(refused(RegionMessage { length: 0, ..REGION }, 0x2800).contains("is empty"));
        assert_eq!(refused(REGION, 0x2800), "fine");
        let beside = RegionMessage { guest_address: 0x10_1fff, ..REGION };
        assert_eq!(refused(beside, 0x2800), "memory regions overlap at 0x101fff");
        memory.remove(&REGION).unwrap();
        assert_eq!(memory.find(0x10_0000, 1), None);
        memory.remove(&REGION).unwrap_err();
    }
}

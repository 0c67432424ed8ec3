//! The memory of a guest: files that the front-end passed, mapped into this process.
//!
//! Every access is checked against its region, and a region stays mapped as long as a
//! [`GuestMemory`] has it ([`SharedMapping`]).
//!
//! The front-end is trusted in one respect: the pages of a region must exist. If it truncates the
//! file, or a full file system has no room for a page at its first access, the system ends this
//! process with `SIGBUS`. Hypervisors seal a memory file, and can allocate its pages beforehand.
//!
//! Source: vhost-user protocol, "Memory region description".

use std::{os::fd::AsFd, sync::Arc};

use shunt_shared_memory::{MapError, SharedMapping};

use super::dirty_log::DirtyLog;
use crate::message::RegionMessage;

/// The mapped memory regions of a guest.
#[derive(Clone, Debug, Default)]
pub(crate) struct GuestMemory {
    regions: Vec<MappedRegion>,
    /// The log of the pages that this process changes, while the guest is migrated.
    log: Option<Arc<DirtyLog>>,
}

/// A memory region of the guest, and its mapping in this process.
#[derive(Clone, Debug)]
struct MappedRegion {
    message: RegionMessage,
    mapping: Arc<SharedMapping>,
}

/// A range of a memory region.
///
/// The range is only a position: each access checks its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GuestRange {
    /// The index of the region.
    region: usize,
    /// Offset of the range in the region.
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
    #[error(
        "the front-end added a memory region of {length} bytes at {address:#x}, which is empty or \
         ends beyond the last address"
    )]
    Length { length: u64, address: u64 },
    #[error("the front-end added memory regions that overlap at {0:#x}")]
    Overlap(u64),
    #[error("the front-end added more than {0} memory regions, which is the limit")]
    TooMany(usize),
    #[error("the front-end removes the memory region at {0:#x}, which it did not add")]
    Missing(u64),
    #[error(
        "the front-end added memory regions of {0} bytes together: at most 16 TiB are possible"
    )]
    TooLong(u64),
    #[error("the front-end gave a log of changed pages of {0} bytes: at most 4 GiB are possible")]
    LongLog(u64),
    #[error(transparent)]
    Map(#[from] MapError),
}

impl GuestMemory {
    /// The maximum number of regions.
    pub(crate) const REGIONS_MAX: usize = 256;

    /// The maximum length of all regions together, in bytes.
    ///
    /// The mappings of all guests share the address space of this process, which has 128 TiB.
    const REGIONS_BYTES_MAX: u64 = 16 << 40;

    /// Returns whether the guest has no memory region.
    pub(crate) const fn is_empty(&self) -> bool {
        self.regions.is_empty()
    }

    /// Maps a region and adds it.
    pub(crate) fn add(
        &mut self,
        message: RegionMessage,
        file: &impl AsFd,
    ) -> Result<(), MemoryError> {
        if self.regions.len() >= Self::REGIONS_MAX {
            return Err(MemoryError::TooMany(Self::REGIONS_MAX));
        }
        let address = message.guest_address;
        if !has_addresses(&message) {
            return Err(MemoryError::Length { length: message.length, address });
        }
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
        let lengths = self.regions.iter().map(|own| own.message.length);
        let bytes = lengths.fold(message.length, u64::saturating_add);
        if bytes > Self::REGIONS_BYTES_MAX {
            return Err(MemoryError::TooLong(bytes));
        }
        let mapping = SharedMapping::new(file, message.file_offset, message.length)?;
        self.regions.push(MappedRegion { message, mapping: Arc::new(mapping) });
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

    /// Replaces the log of changed pages.
    pub(crate) fn set_log(&mut self, log: Option<Arc<DirtyLog>>) {
        self.log = log;
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

    /// Returns the memory from `address` on in the region that contains it.
    #[inline]
    fn find_by(
        &self,
        address: u64,
        length: usize,
        first: impl Fn(&RegionMessage) -> u64,
    ) -> Option<GuestRange> {
        self.regions.iter().enumerate().find_map(|(region, own)| {
            let start = usize::try_from(address.checked_sub(first(&own.message))?).ok()?;
            let left = own.mapping.length().checked_sub(start).filter(|left| *left > 0)?;
            Some(GuestRange { region, start, length: left.min(length) })
        })
    }

    /// Returns the mapping of bytes in a range, and their offset in it.
    ///
    /// `None` if they are not all in the range. The mapping checks its own bounds.
    #[inline]
    fn find_mapping(
        &self,
        range: GuestRange,
        offset: usize,
        length: usize,
    ) -> Option<(&SharedMapping, usize)> {
        let region = self.regions.get(range.region)?;
        let end = offset.checked_add(length)?;
        let offset = range.start.checked_add(offset)?;
        (end <= range.length).then_some((&*region.mapping, offset))
    }

    /// Copies bytes out of a range.
    #[inline]
    #[must_use]
    pub(crate) fn read(&self, range: GuestRange, offset: usize, to: &mut [u8]) -> bool {
        let place = self.find_mapping(range, offset, to.len());
        place.is_some_and(|(mapping, offset)| mapping.read(offset, to))
    }

    /// Copies bytes into a range.
    #[inline]
    #[must_use]
    pub(crate) fn write(&self, range: GuestRange, offset: usize, from: &[u8]) -> bool {
        self.change(range, offset, from.len(), |mapping, offset| mapping.write(offset, from))
    }

    /// Changes bytes of a range, and marks them in the log if there is one.
    #[inline]
    fn change(
        &self,
        range: GuestRange,
        offset: usize,
        length: usize,
        change: impl FnOnce(&SharedMapping, usize) -> bool,
    ) -> bool {
        let Some((mapping, place)) = self.find_mapping(range, offset, length) else { return false };
        let is_changed = change(mapping, place);
        if let Some(log) = &self.log
            && let Some(region) = self.regions.get(range.region)
        {
            log.mark(region.message.guest_address.saturating_add(place as u64), length);
        }
        is_changed
    }

    /// Prefetches the first bytes of a range, to read them.
    #[inline]
    pub(crate) fn prefetch_to_read(&self, range: GuestRange, length: usize) {
        let length = length.min(range.length);
        if let Some((mapping, offset)) = self.find_mapping(range, 0, length) {
            mapping.prefetch_to_read(offset, length);
        }
    }

    /// Prefetches the first bytes of a range, to write them.
    #[inline]
    pub(crate) fn prefetch_to_write(&self, range: GuestRange, length: usize) {
        let length = length.min(range.length);
        if let Some((mapping, offset)) = self.find_mapping(range, 0, length) {
            mapping.prefetch_to_write(offset, length);
        }
    }

    /// Loads a ring index or flags (`Acquire`).
    ///
    /// The guest stores them after the entries that they announce.
    #[inline]
    pub(crate) fn load_u16(&self, range: GuestRange, offset: usize) -> Option<u16> {
        let (mapping, offset) = self.find_mapping(range, offset, size_of::<u16>())?;
        mapping.load(offset).map(u16::from_le)
    }

    /// Stores a ring index or flags (`Release`).
    #[inline]
    #[must_use]
    pub(crate) fn store_u16(&self, range: GuestRange, offset: usize, value: u16) -> bool {
        self.change(range, offset, size_of::<u16>(), |mapping, offset| {
            mapping.store(offset, value.to_le())
        })
    }

    /// Stores an event suppression structure as a whole (`Release`).
    #[inline]
    #[must_use]
    pub(crate) fn store_u32(&self, range: GuestRange, offset: usize, value: u32) -> bool {
        self.change(range, offset, size_of::<u32>(), |mapping, offset| {
            mapping.store_u32(offset, value.to_le())
        })
    }

    /// Loads the half of a descriptor that has its flags (`Acquire`).
    #[inline]
    pub(crate) fn load_u64(&self, range: GuestRange, offset: usize) -> Option<u64> {
        let (mapping, offset) = self.find_mapping(range, offset, size_of::<u64>())?;
        mapping.load_u64(offset).map(u64::from_le)
    }

    /// Stores the half of a descriptor that has its flags (`Release`).
    #[inline]
    #[must_use]
    pub(crate) fn store_u64(&self, range: GuestRange, offset: usize, value: u64) -> bool {
        self.change(range, offset, size_of::<u64>(), |mapping, offset| {
            mapping.store_u64(offset, value.to_le())
        })
    }

    /// Returns whether `alignment` divides the address of a range.
    pub(crate) fn is_aligned(&self, range: GuestRange, alignment: usize) -> bool {
        let place = self.find_mapping(range, 0, 0);
        place.is_some_and(|(mapping, offset)| mapping.is_aligned(offset, alignment))
    }
}

/// Returns whether all addresses of a region exist, and it has at least one.
fn has_addresses(message: &RegionMessage) -> bool {
    let RegionMessage { guest_address, length, user_address, file_offset } = *message;
    let mut starts = [guest_address, user_address, file_offset].into_iter();
    length > 0 && starts.all(|start| start.checked_add(length).is_some())
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    /// Returns a file in memory.
    fn file(length: u64) -> File {
        let file = File::from(memfd_create(c"guest", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(length).unwrap();
        file
    }

    /// The region of the guest's memory.
    const REGION: RegionMessage = RegionMessage {
        guest_address: 0x10_0000,
        length: 0x2000,
        user_address: 0x7000_0000,
        file_offset: 0x800,
    };

    #[test]
    fn a_region_is_found_by_both_addresses() {
        let mut memory = GuestMemory::default();
        memory.add(REGION, &file(0x2800)).unwrap();
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

    /// The files are sparse: they have no pages.
    #[test]
    fn the_memory_of_a_guest_is_limited() {
        let (mut memory, half) = (GuestMemory::default(), 8 << 40);
        let file = file(half);
        let region = |number: u64, length| RegionMessage {
            guest_address: number * half,
            user_address: number * half,
            length,
            file_offset: 0,
        };
        memory.add(region(0, half), &file).unwrap();
        memory.add(region(1, half), &file).unwrap();
        let error = memory.add(region(2, 0x1000), &file).unwrap_err().to_string();
        assert_eq!(
            error,
            "the front-end added memory regions of 17592186048512 bytes together: at most 16 TiB \
             are possible"
        );
        memory.remove(&region(0, half)).unwrap();
        memory.add(region(2, half), &file).unwrap();
    }

    #[test]
    fn an_index_is_little_endian_and_aligned() {
        let mut memory = GuestMemory::default();
        memory.add(REGION, &file(0x2800)).unwrap();
        let range = memory.find(0x10_0000, 64).unwrap();
        assert!(memory.store_u16(range, 2, 0x0102));
        let mut bytes = [0; 2];
        assert!(memory.read(range, 2, &mut bytes));
        assert_eq!((bytes, memory.load_u16(range, 2)), ([2, 1], Some(0x0102)));
        assert_eq!(memory.load_u16(range, 3), None, "the offset is not aligned");
        assert_eq!(memory.load_u16(range, 64), None);
    }

    #[test]
    fn every_write_is_marked_in_the_log() {
        let log = file(16);
        let mut memory = GuestMemory::default();
        memory.add(RegionMessage { guest_address: 0x1000, ..REGION }, &file(0x2800)).unwrap();
        memory.set_log(Some(Arc::new(DirtyLog::new(&log, 16, 0).unwrap())));
        let marks = || {
            let mut bytes = [0; 1];
            log.read_exact_at(&mut bytes, 0).unwrap();
            log.write_all_at(&[0], 0).unwrap();
            bytes[0]
        };
        let range = memory.find(0x1ff8, 64).unwrap();
        assert!(memory.write(range, 0, &[1; 8]));
        assert_eq!(marks(), 0b10);
        assert!(memory.write(range, 0, &[1; 9]));
        assert_eq!(marks(), 0b110);
        assert!(memory.store_u16(range, 8, 1));
        assert_eq!(marks(), 0b100);
        assert!(memory.store_u32(range, 0, 1));
        assert_eq!(marks(), 0b10);
        assert!(memory.store_u64(range, 8, 1));
        assert_eq!(marks(), 0b100);
        assert!(memory.read(range, 0, &mut [0; 64]));
        assert_eq!((marks(), memory.load_u64(range, 8)), (0, Some(1)));
    }

    #[test]
    fn a_region_that_cannot_be_right_is_refused() {
        let mut memory = GuestMemory::default();
        let mut refused = |message, length| match memory.add(message, &file(length)) {
            Ok(()) => "fine".to_owned(),
            Err(error) => error.to_string(),
        };
        let expected = "a memory region ends at byte 10240, but its file has only 10239 bytes";
        assert_eq!(refused(REGION, 0x27ff), expected);
        let wraps = RegionMessage { guest_address: u64::MAX - 1, ..REGION };
        assert!(refused(wraps, 0x2800).contains("is empty or ends beyond"));
        assert!(refused(RegionMessage { length: 0, ..REGION }, 0x2800).contains("is empty"));
        assert_eq!(refused(REGION, 0x2800), "fine");
        let beside = RegionMessage { guest_address: 0x10_1fff, ..REGION };
        assert_eq!(
            refused(beside, 0x2800),
            "the front-end added memory regions that overlap at \
             0x101fff"
        );
        memory.remove(&REGION).unwrap();
        assert_eq!(memory.find(0x10_0000, 1), None);
        memory.remove(&REGION).unwrap_err();
    }
}

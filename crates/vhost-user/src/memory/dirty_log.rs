//! The log of changed pages, by which a front-end migrates a running guest.
//!
//! The log has a bit for each page of the guest. This process sets the bit after it has written to
//! the page, and the front-end clears the bit before it copies the page. So no change is missed.
//!
//! Source: vhost-user protocol, "Migration".

use std::os::fd::AsFd;

use shunt_shared_memory::SharedMapping;

use super::guest_memory::MemoryError;

/// A log of changed pages.
#[derive(Debug)]
pub(crate) struct DirtyLog(SharedMapping);

impl DirtyLog {
    /// Maps the log in a file.
    ///
    /// # Errors
    ///
    /// If the log is empty or too long, or the file is shorter than the log.
    pub(crate) fn new(file: &impl AsFd, length: u64, offset: u64) -> Result<Self, MemoryError> {
        if length > LENGTH_MAX {
            return Err(MemoryError::LongLog(length));
        }
        Ok(Self(SharedMapping::new(file, offset, length)?))
    }

    /// Marks the pages of a range in the memory of the guest.
    ///
    /// The range must be written before. The log may be too short for a page, which is then not
    /// marked.
    pub(super) fn mark(&self, address: u64, length: usize) {
        let last = address.saturating_add((length as u64).saturating_sub(1));
        for page in address / PAGE..=last / PAGE {
            let byte = usize::try_from(page / 8).unwrap_or(usize::MAX);
            // The front-end, which exchanges the byte, then sees the bytes of the page.
            if !self.0.set_bits(byte, 1 << (page % 8)) {
                return;
            }
        }
    }
}

/// Maximum length of a log, in bytes.
///
/// Such a log covers the first 128 TiB of addresses of the guest.
const LENGTH_MAX: u64 = 4 << 30;

/// Bytes of a page in the log (`VHOST_LOG_PAGE`), for every processor.
const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use std::{fs::File, os::unix::fs::FileExt};

    use nix::sys::memfd::{MFdFlags, memfd_create};

    use super::*;

    #[test]
    fn changed_pages_are_marked() {
        let file = File::from(memfd_create(c"log", MFdFlags::MFD_CLOEXEC).unwrap());
        file.set_len(0x1010).unwrap();
        let log = DirtyLog::new(&file, 4, 0x1004).unwrap();
        log.mark(0x1fff, 1);
        log.mark(0x7fff, 2);
        log.mark(0x1_0000, 0x2000);
        // The log ends at page 32.
        log.mark(0x1_ffff, 0x10_0000);
        log.mark(u64::MAX, 1);
        let mut bytes = [0; 8];
        file.read_exact_at(&mut bytes, 0x1002).unwrap();
        assert_eq!(bytes, [0, 0, 0b1000_0010, 1, 0b11, 0b1000_0000, 0, 0]);
        let short = DirtyLog::new(&file, 13, 0x1004).unwrap_err();
        assert!(
            short.to_string().contains("ends at byte 4113, but its file has only 4112"),
            "{short}"
        );
        file.set_len(5 << 30).unwrap();
        DirtyLog::new(&file, 4 << 30, 0).unwrap();
        let long = DirtyLog::new(&file, (4 << 30) + 1, 0).unwrap_err();
        assert!(long.to_string().contains("at most 4 GiB"), "{long}");
    }
}

//! The rings of an AF_XDP socket.
//!
//! Each ring has one producer and one consumer, of which one is the kernel. Producer and consumer
//! each count their entries in a word that the other reads. The producer owns an entry until its
//! word counts the entry, and then the consumer owns it until the consumer's word counts it.
//!
//! The words outlive the process while a service manager holds the socket. So a later process maps
//! the rings of the socket again, and continues at the words.
#![expect(unsafe_code, reason = "the memory is shared with the kernel")]

use std::{
    ffi::c_void,
    io,
    marker::PhantomData,
    os::fd::{AsRawFd, BorrowedFd},
    ptr::{self, NonNull},
    sync::atomic::{
        AtomicU32,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// An entry of a ring: plain integers, for which every bit pattern is valid.
///
/// # Safety
///
/// The type has no padding that is read, no pointer and no invalid bit pattern.
pub(super) unsafe trait RingEntry: Copy {}

// SAFETY: the type is an integer.
unsafe impl RingEntry for u64 {}
// SAFETY: the type has three integers without padding.
unsafe impl RingEntry for libc::xdp_desc {}

/// The mapped memory of one ring.
struct Mapping<T> {
    /// The address of the mapping.
    base: NonNull<u8>,
    /// Length of the mapping in bytes.
    length: usize,
    /// Offsets of the indices and entries in the mapping.
    offsets: libc::xdp_ring_offset,
    /// Number of entries, a power of two.
    entries: u32,
    /// The type of the entries.
    entry: PhantomData<T>,
}

// SAFETY: the mapping belongs to this value alone and is not bound to the thread that created it.
unsafe impl<T: RingEntry> Send for Mapping<T> {}

impl<T: RingEntry> Mapping<T> {
    /// Maps a ring of `entries` entries, at the `page_offset` of its kind.
    ///
    /// `offsets` must be the offsets that the kernel reports for this ring.
    fn new(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        let too_long = |_| io::Error::from_raw_os_error(libc::EOVERFLOW);
        let start = usize::try_from(offsets.desc).map_err(too_long)?;
        let length = start + entries as usize * size_of::<T>();
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        let fd = socket.as_raw_fd();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of ours.
        let base =
            unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, fd, page_offset) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast())
            .ok_or_else(|| io::Error::other("the kernel mapped the memory at address 0"))?;
        Ok(Self { base, length, offsets, entries, entry: PhantomData })
    }

    /// Returns the word at an offset that the kernel reported.
    fn word(&self, offset: u64) -> &AtomicU32 {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the offset is inside of the mapping, and fits a usize"
        )]
        let offset = offset as usize;
        debug_assert!(
            offset + size_of::<u32>() <= self.length,
            "the kernel reports offsets inside of the mapping"
        );
        // SAFETY: the kernel reports offsets inside of the mapping.
        let word = unsafe { self.base.add(offset) };
        // SAFETY: the kernel aligns its words, and both sides access them atomically. The mapping
        // lives as long as `self`.
        unsafe { AtomicU32::from_ptr(word.as_ptr().cast()) }
    }

    /// Returns the index that the producer of the ring advances.
    fn producer(&self) -> &AtomicU32 {
        self.word(self.offsets.producer)
    }

    /// Returns the index that the consumer of the ring advances.
    fn consumer(&self) -> &AtomicU32 {
        self.word(self.offsets.consumer)
    }

    /// Returns the address of the entry with this number, counted without wrap-around.
    fn entry(&self, number: u32) -> NonNull<T> {
        let position = (number & (self.entries - 1)) as usize;
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the offset is inside of the mapping, and fits a usize"
        )]
        let start = self.offsets.desc as usize;
        // SAFETY: the mapping has `entries` entries from `start` on, and the position is below that.
        unsafe { self.base.add(start + position * size_of::<T>()).cast() }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: base and length belong to the mapping, and no reference outlives it.
        unsafe { libc::munmap(self.base.as_ptr().cast::<c_void>(), self.length) };
    }
}

/// A ring that the port fills: free frames to receive into, or frames to send.
pub(super) struct ProducerRing<T> {
    /// The mapped memory of the ring.
    map: Mapping<T>,
    /// Number of entries that were written.
    written: u32,
    /// Number of entries that the kernel had taken when its word was last read.
    taken: u32,
}

impl<T: RingEntry> ProducerRing<T> {
    /// Maps the ring; see [`Mapping::new`].
    ///
    /// Continues after the last entry that an earlier process has published.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        let map = Mapping::new(socket, offsets, entries, page_offset)?;
        let (written, taken) = (map.producer().load(Acquire), map.consumer().load(Acquire));
        Ok(Self { map, written, taken })
    }

    /// Writes an entry; false if the ring is full.
    ///
    /// The kernel sees the entry after [`Self::publish`].
    #[must_use]
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.written.wrapping_sub(self.taken) == self.map.entries {
            // Acquire: pairs with the kernel's release of the entries that it has read.
            self.taken = self.map.consumer().load(Acquire);
            if self.written.wrapping_sub(self.taken) == self.map.entries {
                return false;
            }
        }
        // SAFETY: the entry is free: the kernel has taken its earlier value, and reads the new one
        // only after `publish` has raised the producer index. The entry lies inside the
        // mapping and is aligned.
        unsafe { self.map.entry(self.written).write(entry) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Returns whether `count` entries can be written.
    #[must_use]
    pub(super) fn has_room(&mut self, count: usize) -> bool {
        let room = |ring: &Self| ring.capacity() - ring.written.wrapping_sub(ring.taken) as usize;
        if room(self) < count {
            // Acquire: pairs with the kernel's release of the entries that it has read.
            self.taken = self.map.consumer().load(Acquire);
        }
        room(self) >= count
    }

    /// Passes the written entries to the kernel.
    pub(super) fn publish(&self) {
        self.map.producer().store(self.written, Release);
    }

    /// Returns whether the kernel has not taken all published entries.
    pub(super) fn is_pending(&self) -> bool {
        self.map.consumer().load(Acquire) != self.written
    }

    /// Returns the number of entries that the kernel has taken so far, modulo 2³².
    pub(super) fn taken_count(&self) -> u32 {
        self.map.consumer().load(Acquire)
    }

    /// Returns the number of entries that the ring has room for.
    pub(super) const fn capacity(&self) -> usize {
        self.map.entries as usize
    }

    /// Returns the position of the next entry in the ring.
    pub(super) const fn next_position(&self) -> usize {
        (self.written & (self.map.entries - 1)) as usize
    }

    /// Returns the positions of the entries that the kernel has not taken.
    pub(super) fn pending_positions(&self) -> impl Iterator<Item = usize> {
        let (taken, last) = (self.taken_count(), self.map.entries - 1);
        let count = self.written.wrapping_sub(taken).min(self.map.entries);
        (0..count).map(move |number| (taken.wrapping_add(number) & last) as usize)
    }

    /// Returns the entries that were published after the first `taken` ones.
    ///
    /// `None` if this count contradicts the ring.
    pub(super) fn published_since(&self, taken: u32) -> Option<impl Iterator<Item = T>> {
        let count = self.written.wrapping_sub(taken);
        (count <= self.map.entries).then(|| {
            (0..count).map(move |position| {
                let entry = self.map.entry(taken.wrapping_add(position));
                // SAFETY: the entry lies inside the mapping and is aligned. The port has written it,
                // and the kernel only reads it.
                unsafe { entry.read() }
            })
        })
    }

    /// Returns whether the kernel only continues after a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.map.word(self.map.offsets.flags).load(Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

/// A ring that the kernel fills: received frames, or frames that were sent.
pub(super) struct ConsumerRing<T> {
    /// The mapped memory of the ring.
    map: Mapping<T>,
    /// Number of entries that were read.
    read: u32,
    /// Number of entries that the kernel had written when its word was last read.
    written: u32,
}

impl<T: RingEntry> ConsumerRing<T> {
    /// Maps the ring; see [`Mapping::new`].
    ///
    /// Continues after the last entry that an earlier process has released.
    pub(super) fn new(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        entries: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        let map = Mapping::new(socket, offsets, entries, page_offset)?;
        let read = map.consumer().load(Acquire);
        Ok(Self { map, read, written: read })
    }

    /// Returns the number of entries that the kernel has written so far, modulo 2³².
    pub(super) fn written_count(&self) -> u32 {
        self.map.producer().load(Acquire)
    }

    /// Returns whether at least half of the ring has entries that were not read.
    pub(super) fn is_half_full(&self) -> bool {
        self.written_count().wrapping_sub(self.read) >= self.map.entries / 2
    }

    /// Releases all entries before the one with this number, without reading them.
    pub(super) fn skip_to(&mut self, number: u32) {
        (self.read, self.written) = (number, number);
        self.release();
    }

    /// Returns the next entry; the kernel may reuse it after [`Self::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.read == self.written {
            // Acquire: pairs with the kernel's release of the entries that it has written.
            self.written = self.map.producer().load(Acquire);
            if self.read == self.written {
                return None;
            }
        }
        // SAFETY: the kernel has written the entry, and does not change it before the consumer's
        // word counts it. The entry lies inside the mapping and is aligned.
        let entry = unsafe { self.map.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(entry)
    }

    /// Takes back the last `count` reads, of which no entry was released.
    pub(super) const fn unread(&mut self, count: u32) {
        self.read = self.read.wrapping_sub(count);
    }

    /// Returns the entries that were read to the kernel.
    pub(super) fn release(&self) {
        self.map.consumer().store(self.read, Release);
    }
}

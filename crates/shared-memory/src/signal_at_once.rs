//! Setting eventfds without waiting, whatever their flags and counters are.
//!
//! A write to an eventfd with a full counter waits, unless `O_NONBLOCK` is set. Another process
//! that shares the eventfd may clear this flag at any moment. The kernel itself sets an eventfd at
//! the end of an asynchronous request (`IOCB_FLAG_RESFD`), and never waits for space in the
//! counter. So this module sets an eventfd by a request that completes immediately: a read of no
//! bytes.
//!
//! Source: io_submit(2), eventfd(2).
#![expect(unsafe_code, reason = "asynchronous I/O requests, which std does not have")]

use std::{
    fs::File,
    io,
    mem::zeroed,
    os::fd::{AsFd, AsRawFd},
};

use nix::sys::memfd::{MFdFlags, memfd_create};

/// Sets eventfds of other processes; each thread has its own signaller.
#[derive(Debug)]
pub(crate) struct EventSignaller {
    context: libc::c_ulong,
    /// An empty file that the requests read.
    file: File,
    /// Number of submitted requests with results that were not read yet.
    submitted: u16,
}

/// An asynchronous request (`struct iocb`).
#[repr(C)]
struct AsyncRequest {
    data: u64,
    key_and_flags: [u32; 2],
    operation: u16,
    priority: i16,
    file: u32,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event: u32,
}

/// The result of an asynchronous request (`struct io_event`).
#[repr(C)]
#[derive(Clone, Copy)]
struct AsyncResult([u64; 4]);

const _: () = assert!(size_of::<AsyncRequest>() == 64 && size_of::<AsyncResult>() == 32);

/// The opcode that reads a file (`IOCB_CMD_PREAD`).
const READ: u16 = 0;
/// The flag that sets an eventfd at the end of the request (`IOCB_FLAG_RESFD`).
const SET_EVENT: u32 = 1;

/// Number of requests after which their results are taken.
const RESULTS: u16 = 64;
/// Number of requests that the context has space for; the kernel rounds it up.
const ROOM: u16 = 2 * RESULTS;

impl EventSignaller {
    /// Creates a signaller with its own context for asynchronous I/O requests.
    ///
    /// # Errors
    ///
    /// If the kernel has no asynchronous I/O requests, or its limit is reached (`fs.aio-max-nr`).
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(memfd_create(c"empty", MFdFlags::MFD_CLOEXEC)?);
        let mut context: libc::c_ulong = 0;
        let (set_up, room) = (libc::SYS_io_setup, libc::c_long::from(ROOM));
        // SAFETY: the system writes the new context into the variable, and nothing else.
        let result = unsafe { libc::syscall(set_up, room, &raw mut context) };
        if result == 0 {
            Ok(Self { context, file, submitted: 0 })
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Sets an eventfd without waiting.
    ///
    /// # Errors
    ///
    /// If the kernel refuses the request; the eventfd is then not set.
    pub(crate) fn signal(&mut self, event: &impl AsFd) -> io::Result<()> {
        let descriptor = |file: &dyn AsRawFd| u32::try_from(file.as_raw_fd()).unwrap_or(u32::MAX);
        let mut request = AsyncRequest {
            data: 0,
            key_and_flags: [0; 2],
            operation: READ,
            priority: 0,
            file: descriptor(&self.file),
            buffer: 0,
            length: 0,
            offset: 0,
            reserved: 0,
            flags: SET_EVENT,
            event: descriptor(&event.as_fd()),
        };
        let mut requests = [&raw mut request];
        let count: libc::c_long = 1;
        let (submit, requests) = (libc::SYS_io_submit, requests.as_mut_ptr());
        // SAFETY: the list has one pointer, to a request that outlives the call. The system copies the
        // request, and the request reads no bytes.
        let result = unsafe { libc::syscall(submit, self.context, count, requests) };
        if result != count {
            let error = io::Error::last_os_error();
            // The ring may have no space for a result.
            self.take_results();
            return Err(error);
        }
        self.submitted += 1;
        if self.submitted == RESULTS {
            self.take_results();
        }
        Ok(())
    }

    /// Takes the results of all requests; the requests are already complete.
    fn take_results(&mut self) {
        let mut results = [AsyncResult([0; 4]); RESULTS as usize];
        // SAFETY: all fields are integers: zero is a value of each.
        let at_once: libc::timespec = unsafe { zeroed() };
        let (least, most): (libc::c_long, libc::c_long) = (0, RESULTS.into());
        let (take, to) = (libc::SYS_io_getevents, results.as_mut_ptr());
        // SAFETY: the system writes at most `most` results, for which there is room, and reads the time.
        unsafe { libc::syscall(take, self.context, least, most, to, &raw const at_once) };
        self.submitted = 0;
    }
}

impl Drop for EventSignaller {
    fn drop(&mut self) {
        // SAFETY: the context is this value's own, and all requests are complete.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.context) };
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    #[test]
    fn each_signal_counts_until_the_counter_is_full() {
        // The eventfd of the test is blocking.
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        let mut signaller = EventSignaller::new().unwrap();
        for _ in 0..5 * RESULTS {
            signaller.signal(&event).unwrap();
        }
        assert_eq!(event.read().unwrap(), 5 * u64::from(RESULTS));
        event.write(u64::MAX - 1).unwrap();
        for _ in 0..3 {
            signaller.signal(&event).unwrap();
        }
        assert_eq!(event.read().unwrap(), u64::MAX, "the system adds one more than a write may");
        let file = File::from(memfd_create(c"file", MFdFlags::MFD_CLOEXEC).unwrap());
        signaller.signal(&file).unwrap_err();
        signaller.signal(&event).unwrap();
        assert_eq!(event.read().unwrap(), 1);
    }
}

//! Busy polling of the receive queues of a device.
//!
//! By default an interrupt of the device starts the receive queue of the driver (NAPI), often on
//! another CPU. With busy polling the packet thread starts this queue itself, by a system call that
//! receives, whenever it finds no frame. The device then needs no interrupts while the thread polls.
//!
//! Source: socket(7), Linux `Documentation/networking/napi.rst` and `af_xdp.rst`.

use std::{ffi::c_int, io, os::fd::BorrowedFd};

use crate::port::{PortError, sys};

/// Socket option of Linux 5.11: no interrupts while the thread polls.
const SO_PREFER_BUSY_POLL: c_int = 69;
/// Socket option: the time in microseconds for which a call polls; 0: none.
const SO_BUSY_POLL: c_int = 46;
/// Socket option: the maximum number of frames of a poll.
/// The kernel has the option since Linux 5.11.
const SO_BUSY_POLL_BUDGET: c_int = 70;

/// Maximum number of frames of a poll; 8 by default.
const BUDGET: u32 = 64;

/// The reason why a receive queue of the driver runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NapiTrigger {
    /// The device sends an interrupt, so the packet thread may sleep.
    Interrupt,
    /// The packet thread asks for it, so the thread polls without end.
    BusyPoll,
}

impl NapiTrigger {
    /// Returns the trigger for the value of `busy_poll_us`.
    pub(super) const fn of(busy_poll_us: u32) -> Self {
        if busy_poll_us == 0 { Self::Interrupt } else { Self::BusyPoll }
    }
}

/// A socket option that the kernel refuses.
#[derive(Debug)]
pub(super) struct BusyPollRefusal {
    /// Name of the option.
    option: &'static str,
    /// The error of the system.
    source: io::Error,
}

impl BusyPollRefusal {
    /// Returns the error of a port with `busy_poll_us`; `needs` lists the requirements.
    pub(super) fn of_port(self, name: &str, needs: &'static str) -> PortError {
        if self.source.raw_os_error() == Some(libc::ENOPROTOOPT) {
            return PortError::NoBusyPoll { name: name.to_owned(), option: self.option };
        }
        PortError::device("set busy polling of", name, needs, self.source)
    }
}

/// Sets busy polling of a socket; the time 0 ends that of an earlier process.
pub(super) fn set_busy_poll(
    socket: BorrowedFd<'_>,
    busy_poll_us: u32,
) -> Result<(), BusyPollRefusal> {
    let trigger = NapiTrigger::of(busy_poll_us);
    let is_set = sys::socket_option(socket, SO_PREFER_BUSY_POLL).is_ok_and(|value| value != 0);
    if trigger == NapiTrigger::Interrupt && !is_set {
        return Ok(());
    }
    for (number, option, value) in [
        (SO_PREFER_BUSY_POLL, "SO_PREFER_BUSY_POLL", u32::from(trigger == NapiTrigger::BusyPoll)),
        (SO_BUSY_POLL, "SO_BUSY_POLL", busy_poll_us),
        (SO_BUSY_POLL_BUDGET, "SO_BUSY_POLL_BUDGET", BUDGET),
    ] {
        sys::set_option(socket, libc::SOL_SOCKET, number, &value)
            .map_err(|source| BusyPollRefusal { option, source })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{os::fd::AsFd, path::Path};

    use super::*;

    #[test]
    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    fn busy_polling_is_set_and_ended() {
        // The options are those of any socket.
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = || {
            [SO_PREFER_BUSY_POLL, SO_BUSY_POLL, SO_BUSY_POLL_BUDGET]
                .map(|option| sys::socket_option(socket.as_fd(), option).unwrap_or(-1))
        };
        let before = options();
        set_busy_poll(socket.as_fd(), 0).unwrap();
        assert_eq!(options(), before, "nothing is changed");
        if let Err(refusal) = set_busy_poll(socket.as_fd(), 20) {
            let has_no_right = refusal.source.raw_os_error() == Some(libc::EPERM);
            // The kernel has this setting if it has CONFIG_NET_RX_BUSY_POLL.
            let has_no_option = !Path::new("/proc/sys/net/core/busy_poll").exists();
            assert!(has_no_right || has_no_option, "{refusal:?}");
            eprintln!("SKIPPED: needs CAP_NET_ADMIN and CONFIG_NET_RX_BUSY_POLL: {refusal:?}");
            return;
        }
        assert_eq!(options()[..2], [1, 20]);
        set_busy_poll(socket.as_fd(), 0).unwrap();
        assert_eq!(options()[..2], [0, 0]);
    }

    #[test]
    fn a_kernel_without_busy_polling_is_named() {
        let refusal = |code| BusyPollRefusal {
            option: "SO_PREFER_BUSY_POLL",
            source: io::Error::from_raw_os_error(code),
        };
        let error = refusal(libc::ENOPROTOOPT).of_port("eth0", "CAP_NET_ADMIN").to_string();
        let expected = "eth0 has the key `busy_poll_us`, and this kernel has no socket option \
                        SO_PREFER_BUSY_POLL: remove the key, or use Linux 5.11 or later with \
                        CONFIG_NET_RX_BUSY_POLL";
        assert_eq!(error, expected);
        let error = refusal(libc::EPERM).of_port("eth0", "CAP_NET_ADMIN").to_string();
        assert!(error.contains("the daemon needs CAP_NET_ADMIN"), "{error}");
    }
}

//! The queue discipline of a device in the kernel.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/rtnetlink.h` and `net/sched/sch_generic.c`.

use std::{ffi::c_uint, os::fd::AsRawFd};

use nix::{
    errno::Errno,
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket},
};

/// Attribute of a queue discipline: its name.
const TCA_KIND: u16 = 1;
/// The parent of the queue discipline of a whole device.
const TC_H_ROOT: u32 = u32::MAX;
/// The queue discipline of virtual devices, which never holds a packet.
const NOQUEUE: &[u8; 8] = b"noqueue\0";
/// Length of the request: `nlmsghdr` (16), `tcmsg` (20), and the attribute.
const REQUEST: usize = 16 + 20 + 4 + NOQUEUE.len();

/// Makes a device send without a queue discipline.
///
/// Otherwise the kernel makes one for each of 256 possible transmit queues when a TAP comes up,
/// which takes 6 MB of memory for each device (`pfifo_fast`), or more (`fq_codel`). These queue
/// disciplines never hold a packet, because a TAP never stops its transmit queue.
///
/// # Errors
///
/// If the kernel refuses the change, or was built without queue disciplines.
pub(super) fn remove(device: c_uint) -> nix::Result<()> {
    let (family, protocol) = (AddressFamily::Netlink, SockProtocol::NetlinkRoute);
    let socket = socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol)?;
    send(socket.as_raw_fd(), &request(device), MsgFlags::empty())?;
    let mut answer = [0; 1024];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    refusal(answer.get(..length).unwrap_or_default()).map_or(Ok(()), Err)
}

/// Returns the request to replace the queue discipline of a device by none.
fn request(device: c_uint) -> Vec<u8> {
    let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
    let mut request = Vec::with_capacity(REQUEST);
    // The header has length, type, flags, sequence number and sender.
    request.extend(u32::try_from(REQUEST).unwrap_or_default().to_ne_bytes());
    request.extend(libc::RTM_NEWQDISC.to_ne_bytes());
    request.extend(u16::try_from(flags).unwrap_or_default().to_ne_bytes());
    request.extend([0; 8]);
    // The request has family, index, handle, parent and information.
    request.extend([0; 4]);
    request.extend(device.to_ne_bytes());
    request.extend([0; 4]);
    request.extend(TC_H_ROOT.to_ne_bytes());
    request.extend([0; 4]);
    request.extend(u16::try_from(4 + NOQUEUE.len()).unwrap_or_default().to_ne_bytes());
    request.extend(TCA_KIND.to_ne_bytes());
    request.extend(NOQUEUE);
    request
}

/// Returns the error in an acknowledgement (`nlmsgerr`); `None` if there is none.
fn refusal(answer: &[u8]) -> Option<Errno> {
    let Some(code) = answer.get(16..).and_then(|body| body.first_chunk()) else {
        return Some(Errno::EBADMSG);
    };
    match i32::from_ne_bytes(*code) {
        0 => None,
        code => Some(Errno::from_raw(code.saturating_neg())),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{File, OpenOptions},
        os::fd::AsFd,
    };

    use nix::{
        net::if_::if_nametoindex,
        sched::{CloneFlags, unshare},
    };

    use super::*;
    use crate::port::{
        link::LinkMessage,
        sys::{self, DeviceName},
    };

    /// Attribute of a link: the name of its queue discipline.
    const IFLA_QDISC: u16 = 6;

    fn qdisc(device: c_uint) -> Option<Vec<u8>> {
        Some(LinkMessage::ask(device)?.find_attribute(IFLA_QDISC)?.to_vec())
    }

    /// Opens a TAP with the queues of a port.
    fn tap(name: &str) -> (File, c_uint) {
        let file = OpenOptions::new().read(true).write(true).open("/dev/net/tun").unwrap();
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE;
        sys::attach_tun(file.as_fd(), &DeviceName::new(name).unwrap(), flags).unwrap();
        (file, if_nametoindex(name).unwrap())
    }

    #[test]
    fn a_refusal_has_the_error_of_the_kernel() {
        let answer = |code: i32| [[0; 16].as_slice(), &code.to_ne_bytes()].concat();
        assert_eq!(refusal(&answer(0)), None);
        assert_eq!(refusal(&answer(-1)), Some(Errno::EPERM));
        assert_eq!(refusal(&answer(i32::MIN)), Some(Errno::from_raw(i32::MAX)));
        assert_eq!(refusal(&[0; 17]), Some(Errno::EBADMSG), "a truncated answer");
    }

    #[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
    #[test]
    fn only_the_named_device_sends_without_a_queue() {
        let test = std::thread::spawn(|| {
            if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
                eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a network namespace: {error}");
                return;
            }
            let ((_a, a), (_b, b)) = (tap("a"), tap("b"));
            let before = qdisc(b);
            remove(a).unwrap();
            assert_eq!(qdisc(a).as_deref(), Some(NOQUEUE.as_slice()));
            assert_eq!(qdisc(b), before);
            assert_eq!(remove(9999), Err(Errno::ENODEV));
        });
        test.join().unwrap();
    }
}

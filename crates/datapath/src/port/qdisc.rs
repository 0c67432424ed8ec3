//! The queue discipline of a device in the kernel.
//!
//! Source: rtnetlink(7), Linux `include/uapi/linux/rtnetlink.h` and `net/sched/sch_generic.c`.

use std::{ffi::c_uint, io};

use super::netlink::{NetlinkAnswer, NetlinkRequest};

/// Attribute of a queue discipline: its name.
const TCA_KIND: u16 = 1;
/// The parent of the queue discipline of a whole device.
const TC_H_ROOT: u32 = u32::MAX;
/// The queue discipline of virtual devices, which never holds a packet.
const NOQUEUE: &[u8; 8] = b"noqueue\0";

/// Makes a device send without a queue discipline.
///
/// Otherwise the kernel makes one for each of 256 possible transmit queues when a TAP comes up,
/// which takes 6 MB of memory for each device (`pfifo_fast`), or more (`fq_codel`). The queue
/// disciplines of a TAP never hold a packet, because a TAP never stops its transmit queue.
///
/// # Errors
///
/// If the kernel refuses the change, or was built without queue disciplines.
pub(super) fn remove(device: c_uint) -> io::Result<()> {
    let request = NetlinkRequest {
        kind: libc::RTM_NEWQDISC,
        flags: libc::NLM_F_CREATE | libc::NLM_F_REPLACE,
        content: &content(device),
        answer: NetlinkAnswer::Acknowledgement,
    };
    request.ask(|_| {})
}

/// Returns the content of the request to send without a queue discipline.
fn content(device: c_uint) -> Vec<u8> {
    // The request has family, index, handle, parent and information.
    let mut content = vec![0; 4];
    content.extend(device.to_ne_bytes());
    content.extend([0; 4]);
    content.extend(TC_H_ROOT.to_ne_bytes());
    content.extend([0; 4]);
    content.extend(u16::try_from(4 + NOQUEUE.len()).unwrap_or_default().to_ne_bytes());
    content.extend(TCA_KIND.to_ne_bytes());
    content.extend(NOQUEUE);
    content
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

    /// Asks the kernel for the queueing discipline of a device.
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
            let refused = remove(9999).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::ENODEV));
        });
        test.join().unwrap();
    }
}

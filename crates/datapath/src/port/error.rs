//! Errors of ports, with the change that mends each of them.

use std::io;

use nix::errno::Errno;

use super::TxEnd;

/// The reason why a port does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The system refused a request.
    #[error("cannot {doing} {name}")]
    System {
        /// The attempted action, beginning with a verb.
        doing: &'static str,
        /// The device or file of the request.
        name: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The daemon lacks a capability, which the operator must give it.
    #[error("not permitted to {doing} {name}: the daemon needs {needs}")]
    NotPermitted {
        /// The attempted action, beginning with a verb.
        doing: &'static str,
        /// Name of the device.
        name: String,
        /// The capability that the process lacks.
        needs: &'static str,
    },
    /// No device has this name: the operator creates it or corrects the name.
    #[error("there is no device {name}")]
    NoDevice {
        /// Name of the device.
        name: String,
    },
    /// The name is no valid name of a device: the operator chooses another name.
    #[error(
        "{name:?} is not a device name: use 1 to 15 bytes without slash, colon or space, such as the \
         first name of the device in `ip link`"
    )]
    BadName {
        /// The name that was refused.
        name: String,
    },
    /// The name is a second name of a device, and too long for a port.
    #[error(
        "{name:?} has {length} bytes, and a device name has at most 15: use {first}, the first name \
         of the device",
        length = name.len()
    )]
    LongName {
        /// The name that was refused.
        name: String,
        /// The first name of the device.
        first: String,
    },
    /// Another program uses the TAP device, or the device has only one queue.
    #[error(
        "{name} cannot be opened as a TAP device: another program holds its queues, or it was \
         created without `multi_queue`. For a virtual machine let the hypervisor create the \
         device, and attach it with type af_packet"
    )]
    InUse {
        /// Name of the device.
        name: String,
    },
    /// The device exists, and is of another kind than a TAP.
    #[error(
        "{name} exists, but is not a TAP device: choose another name for the TAP device, or \
         attach {name} with type af_packet"
    )]
    NotTap {
        /// Name of the device.
        name: String,
    },
    /// Another port uses the device, in this process or another one.
    #[error(
        "{name} belongs to another {}: packets would be forwarded twice; remove that port first",
        claim_owner(*process)
    )]
    Claimed {
        /// Name of the device.
        name: String,
        /// The index of the device.
        index: u32,
        /// The id of the process with the other port, if it is known.
        process: Option<i32>,
    },
    /// The device carries no Ethernet frames.
    #[error(
        "{name} is not an Ethernet device: its link type is {link_type}, but a port needs the \
         link type 1 or 772 in `/sys/class/net/{name}/type`; attach another device, or create a \
         TAP instead of a TUN device with `ip tuntap add NAME mode tap multi_queue`"
    )]
    NotEthernet {
        /// Name of the device.
        name: String,
        /// The type of its link layer (`ARPHRD_NONE` ..).
        link_type: u16,
    },
    /// The device is a port of Open vSwitch.
    #[error(
        "{name} is a port of Open vSwitch: packets would be forwarded twice; remove it there with \
         `ovs-vsctl del-port {name}`"
    )]
    OpenVswitch {
        /// Name of the device.
        name: String,
    },
    /// The device is a member of a bridge, bond or team of the system.
    #[error(
        "{name} is a member of {master}: packets would be forwarded twice; remove it there with \
         `ip link set {name} nomaster`"
    )]
    Enslaved {
        /// Name of the device.
        name: String,
        /// The bridge, bond or team.
        master: String,
    },
    /// The device runs the XDP program of another user.
    #[error(
        "{name} runs the XDP program {program} of another user: stop that program or remove it with \
         `ip link set {name} xdp off`, or attach the device with type af_packet"
    )]
    XdpAttached {
        /// Name of the device.
        name: String,
        /// The name of the XDP program.
        program: String,
    },
    /// The device does not support the mode of an AF_XDP port.
    #[error(
        "{name} with the driver {driver} does not support xdp_mode {mode}: set xdp_mode to {works}"
    )]
    XdpMode {
        /// Name of the device.
        name: String,
        /// The driver of the device.
        driver: String,
        /// The XDP mode that was refused.
        mode: &'static str,
        /// The modes that the device supports.
        works: String,
    },
    /// The MTU of the device is too large for AF_XDP.
    #[error(
        "the MTU of {name} is {mtu}, and an af_xdp port takes at most {max}: lower it with the key \
         `mtu` of the port, or attach the device with type af_packet"
    )]
    MtuTooLarge {
        /// Name of the device.
        name: String,
        /// The MTU of the device, in bytes.
        mtu: u32,
        /// The largest MTU that AF_XDP supports.
        max: u32,
    },
    /// The kernel does not support busy polling.
    #[error(
        "{name} has the key `busy_poll_us`, and this kernel has no socket option {option}: remove \
         the key, or use Linux 5.11 or later with CONFIG_NET_RX_BUSY_POLL"
    )]
    NoBusyPoll {
        /// Name of the device.
        name: String,
        /// The socket option that the kernel lacks.
        option: &'static str,
    },
    /// The system does not allow the daemon to lock the memory for frames of the port.
    #[error(
        "cannot lock the memory for frames of {name}: give the daemon CAP_IPC_LOCK, or set \
         LimitMEMLOCK=infinity in its unit"
    )]
    LockedMemory {
        /// Name of the device.
        name: String,
    },
    /// The daemon has as many open files as the system permits.
    #[error(
        "cannot {doing} {name}: the daemon has as many open files as it may have, and each port needs \
         some for each packet thread; raise LimitNOFILE in its unit, or `ulimit -Hn` of its shell"
    )]
    OpenFiles {
        /// The attempted action, beginning with a verb.
        doing: &'static str,
        /// The device or file of the request.
        name: String,
    },
    /// The device was removed while the port was open.
    #[error("the device {name} was removed from the system: create it again, or remove its port")]
    DeviceGone {
        /// Name of the device.
        name: String,
    },
    /// The queues of a port can be created only once.
    #[error(
        "{name} cannot create its queues: the port has created them already, and may do so only \
         once"
    )]
    AlreadySplit {
        /// Name of the port.
        name: String,
    },
    /// Both ends of a pair must have the same number of threads.
    #[error(
        "{name} has queues for {made} packet threads, but the switch has {wanted}: use the same \
         number for both"
    )]
    OtherThreads {
        /// The name of the port.
        name: String,
        /// Number of threads for which the port was created.
        made: u16,
        /// Requested number of threads.
        wanted: u16,
    },
    /// The socket of a virtual machine is not usable.
    #[error(transparent)]
    VhostUser(#[from] shunt_vhost_user::BackendError),
    /// The socket or a setting of a memif port is not usable.
    #[error(transparent)]
    Memif(#[from] shunt_memif::MemifError),
    /// DPDK or its device is not usable.
    #[error(transparent)]
    Dpdk(#[from] shunt_dpdk::DpdkError),
    /// The capture file is not usable: the operator must replace it.
    #[error(transparent)]
    Capture(#[from] shunt_pcap::PcapError),
    /// The capture file is too large to be replayed from memory.
    #[error(
        "{name} has {length} bytes: a port replays captures of at most 1 GiB; split it with `editcap -c`"
    )]
    CaptureTooLong {
        /// Name of the file.
        name: String,
        /// The length of the file, in bytes.
        length: u64,
    },
}

impl PortError {
    /// Converts a system error of an action on the device `name`.
    ///
    /// `doing` is the action, and `needs` is the capability that it requires.
    pub(super) fn device(
        doing: &'static str,
        name: &str,
        needs: &'static str,
        source: io::Error,
    ) -> Self {
        let name = name.to_owned();
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM | Errno::EACCES) => Self::NotPermitted { doing, name, needs },
            Some(Errno::ENODEV | Errno::ENXIO) => Self::NoDevice { name },
            _ => Self::system(doing, name, source),
        }
    }

    /// Converts a system error of an action on the device or file `name`.
    ///
    /// `doing` is the action.
    pub(super) fn system(doing: &'static str, name: String, source: io::Error) -> Self {
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE) => Self::OpenFiles { doing, name },
            _ => Self::System { doing, name, source },
        }
    }
}

/// Returns the owner of a claimed device, for error messages.
fn claim_owner(process: Option<i32>) -> String {
    match process {
        Some(process) if u32::try_from(process) == Ok(std::process::id()) => {
            "port of this shuntd, perhaps by another name of the device".to_owned()
        }
        Some(process) => format!("shuntd (process {process})"),
        None => "shuntd (which ends now)".to_owned(),
    }
}

/// The error codes of sockets that send by a device which is down or removed.
pub(super) const GONE_CODES: [Errno; 3] = [Errno::ENETDOWN, Errno::ENXIO, Errno::ENODEV];

/// Returns how a transmit ended: the state of the first packet not sent.
/// The state follows from the system error.
///
/// `gone` lists the error codes of a device that is down or removed. `without_buffers` is the
/// meaning of `ENOBUFS`. The two arguments differ between kinds of devices.
pub(super) fn tx_end_of(error: &io::Error, gone: &[Errno], without_buffers: TxEnd) -> TxEnd {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EAGAIN | Errno::ENOMEM | Errno::EINTR) => TxEnd::Full,
        Some(Errno::ENOBUFS) => without_buffers,
        Some(code) if gone.contains(&code) => TxEnd::Down,
        _ => TxEnd::Refused,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transmit_error_ends_by_its_code() {
        let end = |errno, gone: &[Errno]| {
            tx_end_of(&io::Error::from_raw_os_error(errno), gone, TxEnd::Crowded)
        };
        assert!(matches!(end(libc::EAGAIN, &[]), TxEnd::Full));
        assert!(matches!(end(libc::ENOBUFS, &[]), TxEnd::Crowded));
        assert!(matches!(end(libc::EIO, &[Errno::EIO]), TxEnd::Down));
        assert!(matches!(end(libc::EIO, &[Errno::ENODEV]), TxEnd::Refused));
    }

    #[test]
    fn an_error_names_the_object_and_the_advice() {
        let message = |errno| {
            let source = io::Error::from_raw_os_error(errno);
            PortError::device("open", "eth0", "CAP_NET_RAW", source).to_string()
        };
        assert_eq!(
            message(libc::EPERM),
            "not permitted to open eth0: the daemon needs CAP_NET_RAW"
        );
        assert_eq!(message(libc::ENODEV), "there is no device eth0");
        assert_eq!(message(libc::ENOMEM), "cannot open eth0");
        assert!(message(libc::EMFILE).contains("raise LimitNOFILE"), "{}", message(libc::EMFILE));
    }
}

//! Why a port does not work, and who can do something about it.

use std::io;

use nix::errno::Errno;

/// Why a port does not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PortError {
    /// The system refused.
    #[error("cannot {doing} {name}")]
    System {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The device or file.
        name: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The operator has to let the daemon do it.
    #[error("not permitted to {doing} {name}: the daemon needs {needs}")]
    NotPermitted {
        /// What was tried, as a verb.
        doing: &'static str,
        /// The device.
        name: String,
        /// The capability that is missing.
        needs: &'static str,
    },
    /// The operator has to create the device, or to correct its name.
    #[error("there is no device {name}")]
    NoDevice {
        /// The device.
        name: String,
    },
    /// The operator has to choose another name.
    #[error("{name:?} cannot be the name of a device: 1 to 15 bytes without slash, colon or space")]
    BadName {
        /// The name.
        name: String,
    },
    /// The device is there, but another program has it, or it is of another kind.
    #[error("{name} is in use, or no TAP device with several queues")]
    InUse {
        /// The device.
        name: String,
    },
    /// The device was removed while the port was open.
    #[error("{name} has been removed")]
    DeviceGone {
        /// The device.
        name: String,
    },
    /// The queues of a port are made once.
    #[error("the queues of {name} have been handed out already")]
    AlreadySplit {
        /// The port.
        name: String,
    },
    /// Both ends of a pair have as many threads.
    #[error("{name} was made for {made} threads, not for {wanted}")]
    OtherThreads {
        /// The port.
        name: String,
        /// How many threads it was made for.
        made: u16,
        /// How many were asked for.
        wanted: u16,
    },
    /// The capture file is not usable: the operator has to mend it.
    #[error(transparent)]
    Capture(#[from] shunt_pcap::PcapError),
    /// The capture file is too long to be replayed from memory.
    #[error(
        "{name} has {length} bytes: a port replays captures of at most 1 GiB; split it with `editcap -c`"
    )]
    CaptureTooLong {
        /// The file.
        name: String,
        /// Its length, in bytes.
        length: u64,
    },
}

impl PortError {
    /// What the system said to `doing` something to the device `name`, where that `needs` a
    /// capability.
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
            _ => Self::System { doing, name, source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_who_has_to_do_what() {
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
    }
}

//! Errors of DPDK and of its devices.

/// The reason why DPDK or a device does not work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// The daemon was built without DPDK.
    #[error(
        "this shuntd was built without DPDK: run `cargo build --release --package shuntd \
         --features dpdk`"
    )]
    NotBuilt,
    /// Too few huge pages are free: the operator must reserve more.
    #[error(
        "DPDK needs {wanted_mib} MiB of huge pages, and {free_mib} MiB are free: run \
         `sysctl -w vm.nr_hugepages={pages}`, or set `huge_pages = \"off\"` in [dpdk]"
    )]
    HugePages {
        /// The value of the option `memory_mib`.
        wanted_mib: u32,
        /// Size of all free huge pages, in MiB.
        free_mib: u64,
        /// The number of 2 MiB pages that the operator must reserve.
        pages: u64,
    },
    /// `extra_args` contradict the other options.
    #[error(
        "extra_args of [dpdk] have `{argument}`, which {conflict}: remove it, or set {remedy} instead"
    )]
    ExtraArgument {
        /// The argument in `extra_args`.
        argument: &'static str,
        /// The reason why the argument is refused.
        conflict: &'static str,
        /// The option to set.
        remedy: &'static str,
    },
    /// An argument cannot be passed to DPDK.
    #[error(
        "{argument:?} is not an argument of DPDK, because it has a NUL byte: remove the byte from \
         extra_args"
    )]
    Argument {
        /// The argument that contains a NUL byte.
        argument: String,
    },
    /// DPDK refused to start.
    ///
    /// DPDK can start only once in a process.
    #[error("DPDK does not start: {reason}; correct this, and restart the daemon")]
    Start {
        /// The error of DPDK, with the errors of its log.
        reason: String,
    },
    /// The devargs name no device.
    #[error(
        "devargs {devargs:?} have no device: use a driver with a number, such as net_null0, or a PCI \
         address, such as 0000:01:00.0"
    )]
    Devargs {
        /// Arguments of the device (`devargs`).
        devargs: String,
    },
    /// The devargs of a ring make it share memory.
    #[error(
        "devargs {devargs:?} are refused, because `net_ring` frees the memory that its arguments share: use \
         the driver with a number alone, such as net_ring0"
    )]
    RingArguments {
        /// Arguments of the device (`devargs`).
        devargs: String,
    },
    /// Another port of this process has the device.
    #[error(
        "DPDK device {device} is in use by another port of this daemon: use another number or address"
    )]
    InUse {
        /// Name of the device.
        device: String,
    },
    /// No driver takes the device.
    #[error("no driver of DPDK takes the device {device}: {advice} ({reason})")]
    NoDriver {
        /// Name of the device.
        device: String,
        /// The command or setting that corrects the error.
        advice: String,
        /// The error of DPDK, with the errors of its log.
        reason: String,
    },
    /// The driver refused the device.
    #[error("DPDK cannot attach the device {devargs}: {reason}")]
    Attach {
        /// Arguments of the device (`devargs`).
        devargs: String,
        /// The error of DPDK, with the errors of its log.
        reason: String,
    },
    /// The device has too few queues.
    #[error("DPDK device {device} has at most {max} receive queues: lower `queues` from {wanted}")]
    Queues {
        /// Name of the device.
        device: String,
        /// The requested number of queues.
        wanted: u16,
        /// The largest number of queues of the device.
        max: u16,
    },
    /// The device has no transmit queue.
    #[error("DPDK device {device} has no transmit queue: choose other devargs")]
    NoTxQueue {
        /// Name of the device.
        device: String,
    },
    /// The MTU is outside the limits of the device.
    #[error("mtu {mtu} is refused: DPDK device {device} takes {min} to {max} bytes")]
    MtuRange {
        /// Name of the device.
        device: String,
        /// The MTU that was requested.
        mtu: u16,
        /// The smallest MTU of the device.
        min: u16,
        /// The largest MTU of the device.
        max: u16,
    },
    /// The driver does not set this MTU.
    #[error(
        "DPDK device {device} does not take an MTU of {mtu} bytes: change or remove `mtu` ({reason})"
    )]
    Mtu {
        /// Name of the device.
        device: String,
        /// The MTU that was requested.
        mtu: u16,
        /// The error of DPDK.
        reason: String,
    },
    /// DPDK has no memory for the buffers of the device.
    #[error(
        "DPDK has no memory for {buffers} buffers of {device}: raise `memory_mib` in [dpdk] and restart \
         the daemon ({reason})"
    )]
    Memory {
        /// Name of the device.
        device: String,
        /// Number of buffers that the device needs.
        buffers: u32,
        /// The error of DPDK.
        reason: String,
    },
    /// A request to the driver failed.
    #[error("cannot {doing} DPDK device {device}: {reason}")]
    Request {
        /// The attempted action, as a verb.
        doing: &'static str,
        /// Name of the device.
        device: String,
        /// The error of DPDK, with the errors of its log.
        reason: String,
    },
    /// The queues of a device are created once.
    #[error(
        "DPDK device {device} cannot create its queues: the port has created them already, and \
         may do so only once"
    )]
    AlreadyStarted {
        /// Name of the device.
        device: String,
    },
}

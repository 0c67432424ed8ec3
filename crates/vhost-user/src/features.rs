//! Features of the device and of the protocol, as bits.
//!
//! A front-end accepts some of the features that the back-end offers. The offered features never
//! change: a guest keeps its features while the back-end restarts, and would not notice new ones.
//!
//! Source: Virtual I/O Device 1.2, 5.1.3 and 6; vhost-user protocol, "Feature bits".

use std::fmt;

/// A set of features of a virtio network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtioFeatures(u64);

impl VirtioFeatures {
    /// The device completes checksums (`VIRTIO_NET_F_CSUM`).
    pub const CSUM: Self = Self(1);
    /// The guest accepts incomplete checksums (`VIRTIO_NET_F_GUEST_CSUM`).
    pub const GUEST_CSUM: Self = Self(1 << 1);
    /// The device has a maximum length of frames (`VIRTIO_NET_F_MTU`).
    pub const MTU: Self = Self(1 << 3);
    /// The guest accepts unsegmented TCP over IPv4 (`VIRTIO_NET_F_GUEST_TSO4`).
    pub const GUEST_TSO4: Self = Self(1 << 7);
    /// The guest accepts unsegmented TCP over IPv6 (`VIRTIO_NET_F_GUEST_TSO6`).
    pub const GUEST_TSO6: Self = Self(1 << 8);
    /// The guest accepts unsegmented TCP with CWR set (`VIRTIO_NET_F_GUEST_ECN`).
    pub const GUEST_ECN: Self = Self(1 << 9);
    /// The device segments TCP over IPv4 (`VIRTIO_NET_F_HOST_TSO4`).
    pub const HOST_TSO4: Self = Self(1 << 11);
    /// The device segments TCP over IPv6 (`VIRTIO_NET_F_HOST_TSO6`).
    pub const HOST_TSO6: Self = Self(1 << 12);
    /// The device segments TCP with CWR set (`VIRTIO_NET_F_HOST_ECN`).
    pub const HOST_ECN: Self = Self(1 << 13);
    /// A frame may take several receive buffers (`VIRTIO_NET_F_MRG_RXBUF`).
    pub const MRG_RXBUF: Self = Self(1 << 15);
    /// The front-end serves a control queue (`VIRTIO_NET_F_CTRL_VQ`).
    pub const CTRL_VQ: Self = Self(1 << 17);
    /// The control queue sets receive modes (`VIRTIO_NET_F_CTRL_RX`).
    pub const CTRL_RX: Self = Self(1 << 18);
    /// The guest announces itself after a migration (`VIRTIO_NET_F_GUEST_ANNOUNCE`).
    pub const GUEST_ANNOUNCE: Self = Self(1 << 21);
    /// The device has several queue pairs (`VIRTIO_NET_F_MQ`).
    pub const MQ: Self = Self(1 << 22);
    /// The back-end logs the pages that it changes (`VHOST_F_LOG_ALL`).
    ///
    /// The front-end sets the feature during a migration, and a guest never has it.
    pub const LOG_ALL: Self = Self(1 << 26);
    /// A header may share its descriptor with data (`VIRTIO_F_ANY_LAYOUT`).
    pub const ANY_LAYOUT: Self = Self(1 << 27);
    /// Descriptors may be in an indirect table (`VIRTIO_F_INDIRECT_DESC`).
    pub const INDIRECT_DESC: Self = Self(1 << 28);
    /// Both sides request notifications by a ring index (`VIRTIO_F_EVENT_IDX`).
    pub const EVENT_IDX: Self = Self(1 << 29);
    /// Vhost-user has its own features (`VHOST_USER_F_PROTOCOL_FEATURES`).
    pub const PROTOCOL_FEATURES: Self = Self(1 << 30);
    /// The device follows version 1 of the standard (`VIRTIO_F_VERSION_1`).
    pub const VERSION_1: Self = Self(1 << 32);
    /// Queues are packed virtqueues (`VIRTIO_F_RING_PACKED`).
    pub const RING_PACKED: Self = Self(1 << 34);
    /// The device returns buffers in the offered order (`VIRTIO_F_IN_ORDER`).
    pub const IN_ORDER: Self = Self(1 << 35);
    /// The guest accepts unsegmented UDP over IPv4 (`VIRTIO_NET_F_GUEST_USO4`).
    pub const GUEST_USO4: Self = Self(1 << 54);
    /// The guest accepts unsegmented UDP over IPv6 (`VIRTIO_NET_F_GUEST_USO6`).
    pub const GUEST_USO6: Self = Self(1 << 55);
    /// The device segments UDP (`VIRTIO_NET_F_HOST_USO`).
    pub const HOST_USO: Self = Self(1 << 56);

    /// The features that every back-end offers.
    pub const OFFERED: Self = Self::CSUM
        .with(Self::GUEST_CSUM)
        .with(Self::MTU)
        .with(Self::GUEST_TSO4)
        .with(Self::GUEST_TSO6)
        .with(Self::GUEST_ECN)
        .with(Self::HOST_TSO4)
        .with(Self::HOST_TSO6)
        .with(Self::HOST_ECN)
        .with(Self::MRG_RXBUF)
        .with(Self::CTRL_VQ)
        .with(Self::CTRL_RX)
        .with(Self::GUEST_ANNOUNCE)
        .with(Self::MQ)
        .with(Self::LOG_ALL)
        .with(Self::ANY_LAYOUT)
        .with(Self::INDIRECT_DESC)
        .with(Self::EVENT_IDX)
        .with(Self::PROTOCOL_FEATURES)
        .with(Self::VERSION_1)
        .with(Self::RING_PACKED)
        .with(Self::IN_ORDER)
        .with(Self::GUEST_USO4)
        .with(Self::GUEST_USO6)
        .with(Self::HOST_USO);

    /// Returns the set with these bits.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// Returns the set as bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the union of two sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the set without the features of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns whether all features of `other` are in the set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Writes the bits in hexadecimal, as hypervisors log them.
impl fmt::Display for VirtioFeatures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The protocol has several queue pairs (`VHOST_USER_PROTOCOL_F_MQ`).
const PROTOCOL_MQ: u64 = 1;
/// The pages that the back-end changes are logged in shared memory.
///
/// `VHOST_USER_PROTOCOL_F_LOG_SHMFD`.
const PROTOCOL_LOG_SHMFD: u64 = 1 << 1;
/// The back-end announces a migrated guest (`VHOST_USER_PROTOCOL_F_RARP`).
const PROTOCOL_RARP: u64 = 1 << 2;
/// Messages may request an acknowledgement (`VHOST_USER_PROTOCOL_F_REPLY_ACK`).
const PROTOCOL_REPLY_ACK: u64 = 1 << 3;
/// A message has the MTU of the guest (`VHOST_USER_PROTOCOL_F_NET_MTU`).
const PROTOCOL_NET_MTU: u64 = 1 << 4;
/// Memory regions are added one by one.
///
/// `VHOST_USER_PROTOCOL_F_CONFIGURE_MEM_SLOTS`.
const PROTOCOL_CONFIGURE_MEM_SLOTS: u64 = 1 << 15;

/// The features of the protocol that every back-end offers.
pub(crate) const PROTOCOL_OFFERED: u64 = PROTOCOL_MQ
    | PROTOCOL_LOG_SHMFD
    | PROTOCOL_RARP
    | PROTOCOL_REPLY_ACK
    | PROTOCOL_NET_MTU
    | PROTOCOL_CONFIGURE_MEM_SLOTS;

/// The maximum number of queue pairs of a device.
pub const QUEUE_PAIRS_MAX: u16 = 64;

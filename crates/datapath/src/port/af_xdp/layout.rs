//! The layouts of frames in the memory of an AF_XDP socket.
//!
//! A frame fills one chunk if the MTU of the device permits that. A longer frame is a chain: it
//! fills several chunks, and each descriptor but the last has the flag `XDP_PKT_CONTD`. Kernel and
//! port pass on whole chains only.
//!
//! Source: Linux `Documentation/networking/af_xdp.rst`, "Multi-Buffer Support".

use super::socket::supports_chains;

/// Number of bytes that the kernel keeps free at the start of each receiving chunk.
const KERNEL_HEADROOM: u32 = 256;
/// Number of bytes of an Ethernet header with two VLAN tags.
pub(super) const HEADER_MAX: u32 = 14 + 2 * 4;

/// Largest MTU of a device with chains.
const CHAIN_MTU_MAX: u32 = 9216;
/// Maximum number of chunks of a frame: `MAX_SKB_FRAGS` and the first chunk.
pub(super) const CHAIN_PARTS_MAX: usize = 18;

/// The chunks that a frame fills.
///
/// The variants are ordered: a layout holds all frames of the layouts before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FrameLayout {
    /// One chunk of 2048 bytes, for an MTU of 1500.
    Small,
    /// One chunk of 4096 bytes, the largest of AF_XDP.
    Large,
    /// A chain of chunks of 4096 bytes, for jumbo frames.
    Chain,
}

// The kernel can receive the longest frame in a chain of this length.
const _: () = {
    let part = FrameLayout::Chain.chunk() - KERNEL_HEADROOM;
    assert!((FrameLayout::Chain.frame_max().div_ceil(part) as usize) < CHAIN_PARTS_MAX);
};

impl FrameLayout {
    /// All layouts, in their order.
    const ALL: [Self; 3] = [Self::Small, Self::Large, Self::Chain];

    /// Returns the last layout that the kernel supports.
    pub(super) fn largest() -> Self {
        if supports_chains() { Self::Chain } else { Self::Large }
    }

    /// Returns the first layout for an MTU; `None` if `largest` is too small as well.
    pub(super) fn of_mtu(mtu: u32, largest: Self) -> Option<Self> {
        let mut layouts = Self::ALL.into_iter().filter(|layout| *layout <= largest);
        layouts.find(|layout| mtu <= layout.mtu_max())
    }

    /// Returns the size of a chunk in bytes.
    pub(super) const fn chunk(self) -> u32 {
        match self {
            Self::Small => 2048,
            Self::Large | Self::Chain => 4096,
        }
    }

    /// Returns the largest MTU of a device.
    pub(super) const fn mtu_max(self) -> u32 {
        match self {
            Self::Small | Self::Large => self.chunk() - KERNEL_HEADROOM - HEADER_MAX,
            Self::Chain => CHAIN_MTU_MAX,
        }
    }

    /// Returns the length of the longest frame.
    pub(super) const fn frame_max(self) -> u32 {
        self.mtu_max() + HEADER_MAX
    }

    /// Returns the maximum number of chunks of a frame.
    pub(super) const fn parts_max(self) -> usize {
        match self {
            Self::Small | Self::Large => 1,
            Self::Chain => CHAIN_PARTS_MAX,
        }
    }

    /// Returns the name of a memory with `chunks` chunks in a descriptor store.
    ///
    /// For example `2048x2048`: the size and the number of the chunks.
    pub(super) fn memory_name(self, chunks: u32) -> String {
        let end = match self {
            Self::Small | Self::Large => "",
            Self::Chain => "-chains",
        };
        format!("{}x{chunks}{end}", self.chunk())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_the_first_that_fits() {
        use FrameLayout::{Chain, Large, Small};
        for (mtu, expected) in [
            (1500, Some(Small)),
            (1770, Some(Small)),
            (1771, Some(Large)),
            (3818, Some(Large)),
            (3819, Some(Chain)),
            (9216, Some(Chain)),
            (9217, None),
            (u32::MAX, None),
        ] {
            assert_eq!(FrameLayout::of_mtu(mtu, Chain), expected, "MTU {mtu}");
            let old_kernel = expected.filter(|layout| *layout != Chain);
            assert_eq!(FrameLayout::of_mtu(mtu, Large), old_kernel, "MTU {mtu}, Linux 6.5");
        }
    }

    /// Frames of a chain never lie in the memory of another layout.
    #[test]
    fn each_layout_has_a_stored_name() {
        let names = FrameLayout::ALL.map(|layout| layout.memory_name(2048));
        assert_eq!(names, ["2048x2048", "4096x2048", "4096x2048-chains"]);
    }
}

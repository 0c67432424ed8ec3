//! The modes of AF_XDP ports.

use std::fmt;

use super::{program::Attachment, socket::FrameTransfer};

/// The path of frames from a device to the port (Open vSwitch: `xdp-mode`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "kebab-case")
)]
pub enum XdpMode {
    /// The fastest mode that the device supports: zero copy, native, then generic.
    #[default]
    BestEffort,
    /// The device writes frames into the memory of the port.
    NativeWithZerocopy,
    /// The driver of the device runs the XDP program, and the kernel copies frames.
    Native,
    /// The network stack runs the XDP program, and the kernel copies the frames.
    Generic,
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl XdpMode {
    /// All modes of attaching an XDP program.
    pub const ALL: [Self; 4] =
        [Self::BestEffort, Self::NativeWithZerocopy, Self::Native, Self::Generic];

    /// Returns the name in configuration files and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BestEffort => "best-effort",
            Self::NativeWithZerocopy => "native-with-zerocopy",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }

    /// Returns the modes to try, best first.
    pub(super) const fn candidates(self) -> &'static [Self] {
        match self {
            Self::BestEffort => &[Self::NativeWithZerocopy, Self::Native, Self::Generic],
            Self::NativeWithZerocopy => &[Self::NativeWithZerocopy],
            Self::Native => &[Self::Native],
            Self::Generic => &[Self::Generic],
        }
    }

    /// Returns where the program is attached: in the driver or in the kernel.
    pub(super) const fn attachment(self) -> Attachment {
        match self {
            Self::Generic => Attachment::Generic,
            Self::BestEffort | Self::NativeWithZerocopy | Self::Native => Attachment::Driver,
        }
    }

    /// Returns how frames are moved: copied or in shared memory.
    pub(super) const fn transfer(self) -> FrameTransfer {
        match self {
            Self::NativeWithZerocopy => FrameTransfer::ZeroCopy,
            Self::BestEffort | Self::Native | Self::Generic => FrameTransfer::Copy,
        }
    }
}

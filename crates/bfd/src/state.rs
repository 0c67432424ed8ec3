//! The states of a session, and the diagnostic codes.

use std::fmt;

/// The state of a session (`bfd.SessionState`).
///
/// Source: RFC 5880, 4.1 and 6.2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BfdState {
    /// An operator has ended the session.
    AdminDown,
    /// No packets arrive from the other end, or the session is new.
    #[default]
    Down,
    /// Packets of the other end arrive, but the other end has not confirmed ours yet.
    Init,
    /// Packets pass in both directions.
    Up,
}

impl BfdState {
    /// Returns the state for a value of the field State.
    ///
    /// Only the lowest two bits are used.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }

    /// Returns the value for the field State.
    #[must_use]
    pub const fn bits(self) -> u8 {
        match self {
            Self::AdminDown => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Up => 3,
        }
    }

    /// Returns whether packets of the other end arrive in this state.
    #[must_use]
    pub const fn is_connected(self) -> bool {
        matches!(self, Self::Init | Self::Up)
    }

    /// Returns the name of the state in Open vSwitch.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AdminDown => "admin_down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        }
    }
}

impl fmt::Display for BfdState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A diagnostic code: the reason of the last change of a session (`bfd.LocalDiag`).
///
/// Codes that the RFC reserves are kept unchanged.
///
/// ```
/// use shunt_bfd::BfdDiagnostic;
///
/// assert_eq!(BfdDiagnostic::TIME_EXPIRED.to_string(), "Control Detection Time Expired");
/// assert_eq!(BfdDiagnostic::from_bits(0xff).bits(), 31);
/// ```
///
/// Source: RFC 5880, 4.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BfdDiagnostic(u8);

impl BfdDiagnostic {
    /// No Diagnostic: no failure has occurred.
    pub const NONE: Self = Self(0);
    /// Control Detection Time Expired: no packet arrived in time.
    pub const TIME_EXPIRED: Self = Self(1);
    /// Neighbor Signaled Session Down:
    /// the other end has stated that the session is down.
    pub const NEIGHBOR_DOWN: Self = Self(3);
    /// Concatenated Path Down: the path behind the sender has failed.
    pub const CONCATENATED_PATH_DOWN: Self = Self(6);
    /// Administratively Down: an operator has ended the session.
    pub const ADMIN_DOWN: Self = Self(7);
    /// Reverse Concatenated Path Down: the reverse path behind the sender has failed.
    pub const REVERSE_CONCATENATED_PATH_DOWN: Self = Self(8);

    /// Returns the code in the lowest five bits.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits & 0x1f)
    }

    /// Returns the number of the code, from 0 to 31.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns whether the code means that a path behind the session has failed.
    #[must_use]
    pub const fn is_concatenated(self) -> bool {
        matches!(self, Self::CONCATENATED_PATH_DOWN | Self::REVERSE_CONCATENATED_PATH_DOWN)
    }

    /// Returns the text for the code in Open vSwitch.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Reserved",
        }
    }
}

impl fmt::Display for BfdDiagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

//! The options of an interface.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use crate::{
    error::MemifError, layout::MemoryLayout, message::SECRET_BYTES, queues::QUEUES_MAX,
    ring::LOG2_SIZE_MAX,
};

/// The role of an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize, serde::Serialize),
    serde(rename_all = "snake_case")
)]
pub enum MemifRole {
    /// The interface listens at the socket, and maps the memory of its client.
    ///
    /// VPP calls this role the master.
    Server,
    /// The interface connects to the socket, and creates the memory.
    ///
    /// VPP calls this role the slave.
    #[default]
    Client,
}

impl MemifRole {
    /// Returns the name of the role.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
        }
    }
}

/// A secret that both sides must have; empty for none.
///
/// Printing the value does not reveal the secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct MemifSecret(String);

impl MemifSecret {
    /// Creates a secret from its text.
    #[must_use]
    pub const fn new(secret: String) -> Self {
        Self(secret)
    }

    /// Returns the secret as the field of a message, padded with zeros.
    pub(crate) fn field(&self) -> [u8; SECRET_BYTES] {
        let mut field = [0; SECRET_BYTES];
        field.iter_mut().zip(self.0.bytes()).for_each(|(to, from)| *to = from);
        field
    }

    /// Returns whether the secret in a client's message equals this secret.
    ///
    /// The time of the comparison does not depend on the position of the first difference.
    pub(crate) fn permits(&self, field: &[u8; SECRET_BYTES]) -> bool {
        let own = self.field();
        let differences = own.iter().zip(field).fold(0, |all, (own, other)| all | (own ^ other));
        self.0.is_empty() || differences == 0
    }
}

impl fmt::Debug for MemifSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_empty() { "none" } else { "***" })
    }
}

/// The options of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemifOptions {
    /// The socket: a path, or `@` and the name of an abstract socket.
    pub socket: PathBuf,
    /// The number of the interface at its socket.
    pub id: u32,
    /// The role of this side.
    pub role: MemifRole,
    /// The secret that a server requires, and that a client sends.
    pub secret: MemifSecret,
    /// The binary logarithm of the number of descriptors of a ring, for a client.
    pub ring_log2: u8,
    /// Length of a buffer in bytes, for a client.
    pub buffer_bytes: u16,
    /// Number of rings in each direction, for a client.
    pub queues: u16,
    /// True if a server accepts a memory file that its client could shorten.
    ///
    /// If the client shortens the file, the kernel ends this process.
    pub allow_unsealed: bool,
    /// The name of the interface, which the peer may display.
    pub name: String,
}

impl MemifOptions {
    /// The default binary logarithm of ring sizes: rings of 1024 descriptors.
    pub const RING_LOG2: u8 = 10;

    /// The default length of buffers in bytes.
    pub const BUFFER_BYTES: u16 = 2048;

    /// The minimum length of buffers in bytes.
    pub const BUFFER_BYTES_MIN: u16 = 64;

    /// The largest binary logarithm of the number of descriptors of a ring.
    pub const RING_LOG2_MAX: u8 = LOG2_SIZE_MAX;

    /// Maximum length of a secret in bytes.
    pub const SECRET_BYTES: usize = SECRET_BYTES;

    /// Returns the default options of a client at a socket.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            id: 0,
            role: MemifRole::default(),
            secret: MemifSecret::default(),
            ring_log2: Self::RING_LOG2,
            buffer_bytes: Self::BUFFER_BYTES,
            queues: 1,
            allow_unsealed: false,
            name: "shunt".to_owned(),
        }
    }

    /// Checks the ranges of all options.
    ///
    /// # Errors
    ///
    /// The first option that is out of its range.
    pub fn check(&self) -> Result<(), MemifError> {
        if self.secret.0.len() > SECRET_BYTES {
            return Err(MemifError::SecretTooLong(self.secret.0.len()));
        }
        let range = |setting, value: u64, is_inside, range| match is_inside {
            true => Ok(()),
            false => Err(MemifError::Range { setting, value, range }),
        };
        let (log2, bytes, queues) = (self.ring_log2, self.buffer_bytes, self.queues);
        range("rsize", log2.into(), (1..=LOG2_SIZE_MAX).contains(&log2), "1 to 14")?;
        range("bsize", bytes.into(), bytes >= Self::BUFFER_BYTES_MIN, "64 to 65535")?;
        range("queues", queues.into(), (1..=QUEUES_MAX).contains(&queues), "1 to 64")?;
        MemoryLayout::of(self).check()
    }
}

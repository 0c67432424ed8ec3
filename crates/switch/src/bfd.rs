//! The BFD sessions of a switch, for programs.

use crate::{config::PortOptions, error::SwitchError, switch::Switch};

impl Switch {
    /// Sets the BFD session of a port to that of `port`.
    ///
    /// All other settings of the port stay. New intervals are negotiated, and the session stays up.
    ///
    /// # Errors
    ///
    /// If the port does not exist, is a patch port or a local port, or a value is not valid.
    pub async fn set_bfd(&self, port: &PortOptions) -> Result<(), SwitchError> {
        self.control.structure().await.set_bfd(port)
    }

    /// Decides if BFD lets ports be used; `None`: the sessions decide.
    ///
    /// Without a name it is for all sessions. Returns false if no port has this name and a session.
    pub fn force_bfd_forwarding(&self, port: Option<&str>, is_forwarding: Option<bool>) -> bool {
        let sessions = self.control.bridges.bfd();
        let current = sessions.current();
        let mut found = port.is_none();
        for own in current.iter().filter(|own| port.is_none_or(|name| own.name == name)) {
            own.force_forwarding(is_forwarding);
            found = true;
        }
        sessions.notify();
        found
    }
}

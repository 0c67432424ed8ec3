//! The BFD sessions of a switch, for programs that embed it.

use crate::switch::Switch;

impl Switch {
    /// Overrides whether BFD lets ports forward; `None` removes the override.
    ///
    /// Without a port name, the override is for all sessions. Returns false if no port with this
    /// name has a session.
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

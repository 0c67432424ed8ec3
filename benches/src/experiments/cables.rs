//! Pairs of virtual devices between a switch and an experiment.

use std::{fs, process::Command};

use crate::switch::output;

/// Pairs of virtual devices, numbered from 1; they go when this does, so after the switch.
pub(crate) struct Cables {
    prefix: &'static str,
    count: u32,
}

impl Cables {
    /// Makes so many, whose near ends begin with `prefix`.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub(crate) fn plug(prefix: &'static str, count: u32) -> Self {
        // Nothing is to come by them but what is sent.
        let _ = fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1");
        let cables = Self { prefix, count };
        for (near, number) in cables.near().zip(1..) {
            let far = cables.far(number);
            output("ip", &["link", "add", &near, "type", "veth", "peer", "name", &far]);
            output("ip", &["link", "set", &near, "up"]);
            output("ip", &["link", "set", &far, "up"]);
        }
        cables
    }

    /// The ends that the switch has.
    pub(crate) fn near(&self) -> impl Iterator<Item = String> + use<> {
        let prefix = self.prefix;
        (1..=self.count).map(move |number| format!("{prefix}{number}"))
    }

    /// The other end of the pair of a number.
    pub(crate) fn far(&self, number: u32) -> String {
        format!("{}{number}f", self.prefix)
    }
}

impl Drop for Cables {
    fn drop(&mut self) {
        for device in self.near() {
            let _ = Command::new("ip").args(["link", "delete", &device]).output();
        }
    }
}

//! Pairs of virtual devices (veth) between a switch and an experiment.

use std::{fs, process::Command};

use crate::switch::output;

/// Pairs of virtual devices, numbered from 1.
///
/// The pairs are deleted on drop, so drop the pairs after the switch.
pub(crate) struct Cables {
    prefix: &'static str,
    count: u32,
}

impl Cables {
    /// Creates `count` pairs, and prefixes the names of the near ends with `prefix`.
    ///
    /// # Panics
    ///
    /// If the system refuses.
    pub(crate) fn plug(prefix: &'static str, count: u32) -> Self {
        // Only packets of the experiment may arrive.
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

    /// Returns the ends at the switch.
    pub(crate) fn near(&self) -> impl Iterator<Item = String> + use<> {
        let prefix = self.prefix;
        (1..=self.count).map(move |number| format!("{prefix}{number}"))
    }

    /// Returns the far end of the pair with this number.
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

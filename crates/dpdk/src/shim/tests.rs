//! Tests a driver that reports the removal of its device.

#![expect(unsafe_code, reason = "calls the functions with which drivers report an event")]

use std::ffi::c_void;

use super::*;
use crate::{Eal, EalOptions, HugePages};

unsafe extern "C" {
    fn rte_eth_dev_allocated(name: *const c_char) -> *mut c_void;
    fn rte_eth_dev_callback_process(
        device: *mut c_void,
        event: c_int,
        result: *mut c_void,
    ) -> c_int;
}

/// `RTE_ETH_EVENT_INTR_RMV` of `rte_ethdev.h`.
const REMOVAL: c_int = 6;

/// Reports the removal of a device, as the driver of a card does.
fn remove(name: &CStr) {
    // SAFETY: DPDK has started, and `name` ends with a NUL byte.
    let device = unsafe { rte_eth_dev_allocated(name.as_ptr()) };
    assert!(!device.is_null());
    // SAFETY: the device is open until this test closes it.
    let result = unsafe { rte_eth_dev_callback_process(device, REMOVAL, ptr::null_mut()) };
    assert_eq!(result, 0);
}

/// A device stays removed until it is closed.
///
/// The removal may come before the start. A later device with the same name counts as present.
#[test]
fn a_reported_removal_is_noticed() {
    let options = EalOptions { huge_pages: HugePages::Off, ..EalOptions::default() };
    let eal = Eal::start(&options).unwrap();
    let pool = MbufPool::create(eal.0, c"removal", 4096, 2048, -1).unwrap();
    for is_early in [false, true, false, true, false] {
        let port = RawPort::attach(eal.0, c"net_null30").unwrap();
        assert!(!port.is_removed());
        if is_early {
            remove(c"net_null30");
            assert!(port.is_removed());
        }
        let own = PortSettings {
            pool,
            rx_queues: 1,
            tx_queues: 1,
            rx_slots: 64,
            tx_slots: 64,
            mtu: None,
        };
        let started = port.start(own).unwrap();
        assert_eq!(started.port.is_removed(), is_early);
        remove(c"net_null30");
        assert!(started.port.is_removed());
    }
}

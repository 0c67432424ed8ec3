//! The counters of a driver, which DPDK calls extended statistics.

#![expect(unsafe_code, reason = "calls a C function that fills a list")]

use std::{
    ffi::{CStr, c_int},
    ptr,
};

use super::{DpdkErrno, RawPort};

/// `struct shunt_dpdk_statistic`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct RawStatistic {
    /// The name of the counter; ends with a NUL byte.
    name: [u8; 64],
    /// The value of the counter.
    value: u64,
}

// The C compiler checks the same size.
const _: () = assert!(size_of::<RawStatistic>() == 72);

unsafe extern "C" {
    fn shunt_dpdk_statistics(port: u16, statistics: *mut RawStatistic, count: u32) -> c_int;
}

/// Maximum number of counters of a device; cards have a few hundred.
const COUNTERS_MAX: usize = 4096;

impl RawPort {
    /// Returns the counters of the driver that are not 0, in the driver's order.
    pub(crate) fn statistics(&self) -> Result<Vec<(String, u64)>, DpdkErrno> {
        // SAFETY: the port is open. Without room the function writes nothing.
        let number = unsafe { shunt_dpdk_statistics(self.port, ptr::null_mut(), 0) };
        let number = usize::try_from(number).map_err(|_| DpdkErrno(number))?.min(COUNTERS_MAX);
        let mut raw = vec![RawStatistic { name: [0; 64], value: 0 }; number];
        let room = u32::try_from(number).unwrap_or(0);
        // SAFETY: the port is open, and `raw` has `room` elements. The function writes no more.
        let result = unsafe { shunt_dpdk_statistics(self.port, raw.as_mut_ptr(), room) };
        super::check_result(result)?;
        let counter = |own: &RawStatistic| {
            let name = CStr::from_bytes_until_nul(&own.name).ok()?.to_string_lossy().into_owned();
            Some((name, own.value)).filter(|(_, value)| *value > 0)
        };
        Ok(raw.iter().filter_map(counter).collect())
    }
}

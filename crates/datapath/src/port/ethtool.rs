//! Requests about a network device that its driver answers (ethtool).
//!
//! Source: Linux `include/uapi/linux/ethtool.h`.
#![expect(unsafe_code, reason = "requests that neither std nor nix wraps")]

use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd},
    ptr,
};

use super::{
    host_device::{DriverInfo, LinkMode},
    sys::{DeviceName, check_result},
};

const ETHTOOL_GSET: u32 = 1;
const ETHTOOL_GDRVINFO: u32 = 3;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// A request: the command, followed by the words of the answer.
///
/// A request is as long as the structure of the kernel.
trait EthtoolRequest: AsMut<[u32]> {}

/// `struct ethtool_channels`.
type Channels = [u32; 9];
impl EthtoolRequest for Channels {}

/// `struct ethtool_cmd`.
type LinkSettings = [u32; 11];
impl EthtoolRequest for LinkSettings {}

/// `struct ethtool_drvinfo`.
type DriverAnswer = [u32; 49];
impl EthtoolRequest for DriverAnswer {}

/// Runs an ethtool request on a device.
fn run_ioctl<T: EthtoolRequest>(
    fd: BorrowedFd<'_>,
    device: &DeviceName,
    request: &mut T,
) -> io::Result<()> {
    let mut ifreq = device.request();
    ifreq.ifr_ifru.ifru_data = ptr::from_mut(request).cast();
    // SAFETY: the kernel reads the command, and writes at most the structure of the command, which
    // has the length of the request. Command and request live until the call returns.
    let result =
        unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, ptr::from_mut(&mut ifreq)) };
    check_result(result).map(drop)
}

/// Returns the number of receive queues.
///
/// # Errors
///
/// If the driver does not report channels; the device then has one queue.
pub(super) fn rx_queues(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<u32> {
    let mut channels: Channels = [0; 9];
    channels[0] = ETHTOOL_GCHANNELS;
    run_ioctl(fd, device, &mut channels)?;
    let [.., rx, _tx, _other, combined] = channels;
    Ok(rx.saturating_add(combined))
}

/// Returns the name and the versions of the driver.
///
/// # Errors
///
/// If the device has no driver, or the driver has no name.
pub(super) fn driver(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<DriverInfo> {
    let mut answer: DriverAnswer = [0; 49];
    answer[0] = ETHTOOL_GDRVINFO;
    run_ioctl(fd, device, &mut answer)?;
    Ok(DriverInfo {
        name: text(&answer[1..9]),
        version: text(&answer[9..17]),
        firmware_version: text(&answer[17..25]),
    })
}

/// Returns a text that ends with its first zero byte.
fn text(words: &[u32]) -> String {
    let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
    let bytes: Vec<u8> = bytes.take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the speed and the duplex mode of the link.
///
/// # Errors
///
/// If the device has no driver that reports a link.
pub(super) fn link_mode(fd: BorrowedFd<'_>, device: &DeviceName) -> io::Result<LinkMode> {
    let mut settings: LinkSettings = [0; 11];
    settings[0] = ETHTOOL_GSET;
    run_ioctl(fd, device, &mut settings)?;
    let [low, high, duplex, _port] = settings[3].to_ne_bytes();
    let [speed_high_0, speed_high_1, ..] = settings[7].to_ne_bytes();
    let [low, high] = [[low, high], [speed_high_0, speed_high_1]].map(u16::from_ne_bytes);
    let megabits = u32::from(high) << 16 | u32::from(low);
    Ok(LinkMode {
        speed_bps: (!UNKNOWN_SPEEDS.contains(&megabits)).then(|| u64::from(megabits) * 1_000_000),
        is_full_duplex: match duplex {
            DUPLEX_HALF => Some(false),
            DUPLEX_FULL => Some(true),
            _ => None,
        },
    })
}

const DUPLEX_HALF: u8 = 0;
const DUPLEX_FULL: u8 = 1;

/// The speeds that a driver reports without a link.
///
/// Unknown speeds are 0, and `SPEED_UNKNOWN` in 16 and in 32 bits.
const UNKNOWN_SPEEDS: [u32; 3] = [0, 0xffff, u32::MAX];

//! Ports: the contract, and all kinds of ports.
//!
//! A port is opened on the control thread and split into queues, which move to packet threads. The
//! port itself keeps settings, link state and counters. Dynamic dispatch is once per burst.
//!
//! | kind | packets | offloads | needs |
//! | --- | --- | --- | --- |
//! | [`null`] | discarded | accepted | |
//! | [`pair`] | of the other end, in this process | carried | |
//! | [`pcap`] | of capture files | | |
//! | [`af_packet`] | of a network device | carried | `CAP_NET_RAW` |
//! | [`af_xdp`] | of a network device | | `CAP_NET_RAW`, `CAP_NET_ADMIN`, `CAP_BPF` |
//! | [`vhost_user`] | of a virtual machine | carried | access to a socket |
//! | [`memif`] | of another program | | access to a socket |
//! | `dpdk` | of a driver of DPDK | those of the device | the feature `dpdk` |
//! | [`tap`] | of the network stack of the host | carried | `CAP_NET_ADMIN` |

mod claim;
mod contract;
mod copies;
mod device_addresses;
mod device_loss;
mod error;
mod ethtool;
mod host_device;
mod link;
mod netlink;
mod numa;
mod qdisc;
mod spec;
mod stored;

pub mod af_packet;
pub mod af_xdp;
#[cfg(feature = "dpdk")]
pub mod dpdk;
pub mod memif;
pub mod null;
pub mod pair;
pub mod pcap;
pub mod shared_memory;
mod shared_output;
mod sys;
pub mod tap;
pub mod vhost_user;

pub use claim::is_held_by_open_vswitch;
pub use contract::{
    AssignedRxQueue, Capabilities, DeviceWork, FirstThread, Port, PortCounters, PortWork, Queues,
    RxQueue, RxReport, SplitQueues, TxEnd, TxQueue,
};
pub use copies::{CopyCounters, FrameCopies, PortCopies, QueueCopies};
pub use device_addresses::DeviceAddress;
pub use error::PortError;
pub use host_device::{
    DeviceMtu, DeviceReader, DeviceReading, DriverInfo, HostDevice, HostDeviceSetting,
    HostDeviceState, LinkMode, MtuRefusal, MtuRefusalReason,
};
pub use link::{DeviceDrops, DeviceLosses};
pub use shunt_dpdk::{
    DpdkError, DpdkState, EalOptions, HugePageSize, HugePages, device_name, huge_page_sizes,
};
pub use spec::{PortSpec, Repeat, open, open_inheriting};
pub use stored::{DescriptorStore, NoDescriptorStore, StoredDescriptor};
pub use sys::{check_device_name, namespace_of_socket};

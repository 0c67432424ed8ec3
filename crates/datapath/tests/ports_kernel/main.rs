//! Tests ports that use kernel devices, with a real kernel.
//!
//! Each test runs on its own thread in its own network namespace, which ends with the thread.
//! Without the permission to create namespaces, the tests report that they are skipped.
#![expect(
    clippy::unwrap_used,
    reason = "helpers outside of test functions fail the test that calls them"
)]

mod copies;
mod devices;
mod frame_laws;
mod frames;
mod inherited;
mod jumbo;
mod losses;
mod queue_moves;
mod streams;
mod switchovers;
mod tunnels;
mod wakeups;
mod xdp;

use std::{
    fs,
    panic::resume_unwind,
    process::{Command, Output},
    sync::{Mutex, PoisonError},
    thread,
};

use nix::sched::{CloneFlags, unshare};
use shunt_datapath::{
    Packet, Pool,
    port::{Port, PortSpec, Queues, open, tap},
};

/// Runs `test` in a new network namespace, without frames from the kernel itself.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    let thread = thread::spawn(move || {
        if enter_namespace() {
            test();
        }
    });
    if let Err(panic) = thread.join() {
        resume_unwind(panic);
    }
}

#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn enter_namespace() -> bool {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
        eprintln!("skipped: needs CAP_SYS_ADMIN and CAP_NET_ADMIN to make a namespace: {error}");
        return false;
    }
    // With IPv6, the kernel would send neighbor and router messages on each device.
    for which in ["all", "default"] {
        let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6"), "1");
    }
    true
}

/// The lock that a test holds while it runs a child process.
///
/// A child process has copies of all descriptors of this process until it executes its program.
static RUNNING: Mutex<()> = Mutex::new(());

/// Runs the command `ip`; returns its output.
fn run_ip(arguments: &str) -> Output {
    let _running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    Command::new("ip").args(arguments.split(' ')).output().unwrap()
}

fn ip(arguments: &str) {
    let output = run_ip(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {error}");
}

/// Closes a port or its queues, in all processes.
///
/// Afterwards, no child process has a copy of the descriptors.
fn close<T>(port: T) {
    drop(port);
    // When this lock is free, all child processes with copies have ended.
    drop(RUNNING.lock().unwrap_or_else(PoisonError::into_inner));
}

fn packet_port(device: &str) -> Box<dyn Port> {
    open(&PortSpec::AfPacket { device: device.to_owned(), mtu: None, rx_slots: None }, 0).unwrap()
}

fn tap_port(device: &str) -> Box<dyn Port> {
    open(&PortSpec::Tap { device: device.to_owned(), settings: tap::TapSettings::default() }, 0)
        .unwrap()
}

fn split_one(port: &mut dyn Port) -> Queues {
    port.split(1).unwrap().remove(0)
}

fn put_all_back(pool: &mut Pool, packets: Vec<Packet>) {
    packets.into_iter().for_each(|packet| pool.put_back(packet));
}

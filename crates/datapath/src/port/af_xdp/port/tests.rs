//! Tests of AF_XDP ports on veth devices.

use std::{process::Command, thread};

use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
};

use super::*;
use crate::port::af_xdp::program::Attachment;

/// A veth device has no zero-copy mode, which is tried first.
#[test]
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn the_next_mode_keeps_the_attached_program() {
    let thread = thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a namespace: {error}");
            return;
        }
        let words = ["link", "add", "a0", "type", "veth", "peer", "name", "b0"];
        assert!(Command::new("ip").args(words).status().unwrap().success());
        let port = AfXdp::open("a0", None, XdpMode::BestEffort, 0, Vec::new()).unwrap();
        let mut attached = None;
        let refused = port.attach(1, XdpMode::NativeWithZerocopy, &mut attached).err().unwrap();
        if refused.kind() == io::ErrorKind::PermissionDenied {
            eprintln!("SKIPPED: needs CAP_BPF: {refused}");
            return;
        }
        assert!(is_unsupported(&refused), "{refused}");
        let first = attached.as_ref().and_then(XdpProgram::link_id);
        assert_ne!(first, None, "the program is attached");
        let (_, native) = port.attach(1, XdpMode::Native, &mut attached).unwrap();
        assert_eq!(native.link_id(), first, "the same link");
        // The other place needs another link, and the device has one program.
        attached = Some(native);
        let (_, generic) = port.attach(1, XdpMode::Generic, &mut attached).unwrap();
        assert_eq!((generic.kind(), attached.is_none()), (Attachment::Generic, true));
    });
    thread.join().unwrap();
}

#[test]
#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
fn device_with_foreign_program_is_refused() {
    let thread = thread::spawn(|| {
        if let Err(error) = unshare(CloneFlags::CLONE_NEWNET) {
            eprintln!("SKIPPED: needs CAP_SYS_ADMIN to make a namespace: {error}");
            return;
        }
        let words = ["link", "add", "a0", "type", "veth", "peer", "name", "b0"];
        assert!(Command::new("ip").args(words).status().unwrap().success());
        for kind in [Attachment::Driver, Attachment::Generic] {
            let index = if_nametoindex("a0").unwrap();
            let other = match XdpProgram::attach(index, 1, kind, FrameLayout::Small) {
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    eprintln!("SKIPPED: needs CAP_BPF: {error}");
                    return;
                }
                other => other.unwrap(),
            };
            let mut port = AfXdp::open("a0", None, XdpMode::BestEffort, 0, Vec::new()).unwrap();
            let error = port.split(1).err().unwrap().to_string();
            let expected = "a0 runs the XDP program shunt_redirect of another user";
            assert!(error.starts_with(expected), "{error}");
            drop(other);
            // A child process that another test starts has a copy of the descriptor for a moment.
            let is_free = (0..1000).any(|_| {
                thread::yield_now();
                port.split(1).is_ok()
            });
            assert!(is_free, "the program is detached with its owner");
        }
    });
    thread.join().unwrap();
}

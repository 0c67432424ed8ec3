//! Tests of whole interfaces: both roles in one process, and peers that break the protocol.
#![expect(clippy::disallowed_methods, reason = "real threads and a real socket need a real clock")]

mod garbage;
mod two_sides;

use std::{
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::{MemifInterface, MemifLink, MemifOptions, MemifRole, MemifSink, MemifWorker};

/// Returns a directory, and the path of a socket in it.
fn socket() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock");
    (folder, path)
}

/// Returns the options of an interface.
fn options(socket: &Path, role: MemifRole) -> MemifOptions {
    MemifOptions { role, ring_log2: 6, ..MemifOptions::new(socket) }
}

/// Starts an interface with one worker.
fn start(options: MemifOptions) -> (MemifInterface, MemifWorker) {
    let (interface, mut workers) = MemifInterface::start(options, 1).unwrap();
    (interface, workers.remove(0))
}

/// Waits at most twenty seconds for a condition; returns whether it holds.
fn wait_until(mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        if Instant::now() > deadline {
            return false;
        }
        sleep(Duration::from_millis(1));
    }
    true
}

/// Maximum time to wait until an interface reaches a state.
const LONGEST: Duration = Duration::from_secs(20);

/// Waits up to 20 seconds until all links are up, and panics if one is not.
fn await_links(interfaces: &[&MemifInterface]) {
    for interface in interfaces {
        let is_up = interface.wait_for_link(LONGEST, MemifLink::is_up);
        assert!(is_up, "{}", interface.link());
    }
}

/// Waits until the text of the link state contains `words`.
fn await_reason(interface: &MemifInterface, words: &str) {
    let has_words = interface.wait_for_link(LONGEST, |link| link.to_string().contains(words));
    assert!(has_words, "{}", interface.link());
}

/// A sink that keeps all frames.
#[derive(Debug, Default)]
struct TestFrames {
    buffer: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl MemifSink for TestFrames {
    fn buffer(&mut self, length: usize) -> Option<&mut [u8]> {
        self.buffer.resize(length, 0);
        Some(&mut self.buffer)
    }

    fn take(&mut self) {
        self.frames.push(self.buffer.clone());
    }
}

//! The log of DPDK: its lines become tracing events, and reasons of failed requests.
//!
//! Functions of DPDK return only a number. Only the log contains the reason, such as the name of a
//! missing file.

use parking_lot::Mutex;
use tracing::{debug, error, info, warn};

/// Maximum number of error lines kept for a request.
const LINES_MAX: usize = 4;
/// Maximum length of a kept line, in bytes.
const LINE_MAX: usize = 200;

/// The log levels of DPDK that become warnings or errors.
///
/// `RTE_LOG_ERR`, `RTE_LOG_WARNING` and `RTE_LOG_NOTICE` of `rte_log.h`.
const ERROR: u32 = 4;
/// The log level of warnings in DPDK (`RTE_LOG_WARNING`).
const WARNING: u32 = 5;
/// The log level of notices in DPDK (`RTE_LOG_NOTICE`).
const NOTICE: u32 = 6;

/// Beginnings of lines that follow each refused device and name no reason.
const CONSEQUENCES: [&str; 2] =
    ["EAL: Driver cannot attach the device", "EAL: Failed to attach device on primary process"];

/// The last error lines of the current request, oldest first.
///
/// `None` while no request runs.
static ERRORS: Mutex<Option<Vec<String>>> = Mutex::new(None);

/// A request to DPDK that may fail; only one may run at a time.
pub(crate) struct Request(());

impl Request {
    /// Begins to collect the error lines of DPDK.
    pub(crate) fn begin() -> Self {
        *ERRORS.lock() = Some(Vec::new());
        Self(())
    }

    /// Returns the reason why the request failed.
    ///
    /// The reason contains the error lines of the log, and the text of `errno`.
    #[expect(clippy::unused_self, reason = "there is a reason only while a request runs")]
    pub(crate) fn reason(&self, errno: i32) -> String {
        let lines = ERRORS.lock().clone().unwrap_or_default();
        let lines = lines.join("; ");
        // Drivers return -1 for any failure, so the text of `errno` would mislead.
        if errno == -1 && !lines.is_empty() {
            return lines;
        }
        let system = std::io::Error::from_raw_os_error(errno.abs()).to_string();
        if lines.is_empty() { system } else { format!("{lines} [{system}]") }
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        *ERRORS.lock() = None;
    }
}

/// Handles one or more lines that DPDK logs.
pub(crate) fn record(level: u32, text: &str) {
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match level {
            0..ERROR => error!("DPDK: {line}"),
            // The error of the port contains the error lines of its request.
            ERROR if keep(line) => debug!("DPDK: {line}"),
            ERROR | WARNING => warn!("DPDK: {line}"),
            NOTICE => info!("DPDK: {line}"),
            _ => debug!("DPDK: {line}"),
        }
    }
}

/// Keeps an error line of the current request; returns false without a request.
fn keep(line: &str) -> bool {
    let mut errors = ERRORS.lock();
    let Some(errors) = &mut *errors else { return false };
    if CONSEQUENCES.iter().any(|known| line.starts_with(known)) {
        return true;
    }
    if errors.len() == LINES_MAX {
        errors.remove(0);
    }
    let end = line.floor_char_boundary(LINE_MAX);
    errors.push(line.get(..end).unwrap_or_default().to_owned());
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The module has a single test, because the lines are global.
    #[test]
    fn reason_has_last_errors_of_its_request() {
        record(ERROR, "EAL: before the request");
        let request = Request::begin();
        assert!(request.reason(-2).starts_with("No such file"));
        record(ERROR, "EAL: first\nEAL: second\n");
        record(WARNING, "EAL: only a warning");
        let text = request.reason(-2);
        assert!(text.starts_with("EAL: first; EAL: second [No such file"), "{text}");
        record(ERROR, "EAL: Failed to attach device on primary process");
        assert_eq!(request.reason(-1), "EAL: first; EAL: second");
        (0..10).for_each(|number| record(ERROR, &format!("{number}{}", "ä".repeat(LINE_MAX))));
        let text = request.reason(-2);
        assert!(text.starts_with("6ä") && text.contains("; 9ä"), "{text}");
        assert!(text.len() < (LINE_MAX + 2) * LINES_MAX + 60);
        drop(request);
        assert!(!Request::begin().reason(-2).contains("9ä"));
    }
}

//! The log of this thread, captured for a test.

use std::{
    io,
    sync::{Arc, Mutex},
};

use tracing::subscriber::{DefaultGuard, set_default};

/// The log of this thread since the capture.
pub(crate) struct Log {
    text: Text,
    _guard: DefaultGuard,
}

/// The text of a captured log.
#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Captures the log of this thread until the value is dropped.
    pub(crate) fn capture() -> Self {
        let text = Text::default();
        let writer = text.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        Self { text, _guard: set_default(subscriber.finish()) }
    }

    /// Returns the log lines that contain the given words.
    pub(crate) fn lines_with(&self, words: &str) -> Vec<String> {
        let text = String::from_utf8(self.text.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(words)).map(str::to_owned).collect()
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

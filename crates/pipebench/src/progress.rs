//! How far a long piece of work has come, on the terminal of whoever waits for it.
//!
//! A bar appears on standard error once the work has taken two seconds, and only if that is a
//! terminal; it is gone when the work is done.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of one piece of work.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Work of this many steps, called by what is made (`"rules"`).
    #[must_use]
    pub fn new(what: &'static str, steps: u64) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), ProgressDrawTarget::hidden());
        let style = ProgressStyle::with_template(TEMPLATE);
        Self {
            bar: bar
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_prefix(what),
        }
    }

    /// Work that nobody watches.
    #[must_use]
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// How long it has taken so far.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// Notes that there is so much more work than was known.
    pub fn expect(&self, steps: u64) {
        if self.bar.length().is_some() {
            self.bar.inc_length(steps);
        }
    }

    /// Notes that so many further steps are done; cheap enough for every thousandth of the work.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        if self.bar.is_hidden() && self.bar.elapsed() >= PATIENCE && self.bar.length().is_some() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// How long nothing is shown.
const PATIENCE: Duration = Duration::from_secs(2);
const TEMPLATE: &str = "{prefix} {bar:40} {percent}% {eta} left";

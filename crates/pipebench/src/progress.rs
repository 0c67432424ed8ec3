//! A progress bar for long commands.
//!
//! The bar appears on standard error after two seconds of work, and only on a terminal. The bar
//! disappears when the work ends.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The progress of one task.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// Starts a task of `steps` steps that produces `what` (`"rules"`).
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

    /// Starts a task without a progress bar.
    #[must_use]
    pub fn hidden() -> Self {
        Self { bar: ProgressBar::hidden() }
    }

    /// Returns the time since the start of the task.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.bar.elapsed()
    }

    /// Adds steps that were not known at the start.
    pub fn expect(&self, steps: u64) {
        if self.bar.length().is_some() {
            self.bar.inc_length(steps);
        }
    }

    /// Counts finished steps; a call is cheap enough after each thousandth of the work.
    pub fn advance(&self, steps: u64) {
        self.bar.inc(steps);
        if self.bar.is_hidden() && self.bar.elapsed() >= TIMEOUT && self.bar.length().is_some() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// Delay before the progress bar appears.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The form of the progress line.
const TEMPLATE: &str = "{prefix} {bar:40} {percent}% {eta} left";

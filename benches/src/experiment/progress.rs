//! Progress of an experiment: a bar on a terminal, one line per step elsewhere.

use std::{
    io::{IsTerminal as _, stderr},
    time::Instant,
};

/// The progress of an experiment.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    done: usize,
    steps: usize,
    is_terminal: bool,
}

/// Characters of the bar.
const WIDTH: usize = 30;

impl Progress {
    /// Starts the progress before the first of `steps` steps.
    #[must_use]
    pub fn new(steps: usize) -> Self {
        Self { start: Instant::now(), done: 0, steps, is_terminal: stderr().is_terminal() }
    }

    /// Shows the current step; the estimate assumes steps of equal length.
    pub fn show(&self, what: &str) {
        let seconds = self.start.elapsed().as_secs_f64();
        if self.is_terminal {
            eprint!("\r\x1b[K{} {what}", bar(self.done, self.steps, seconds));
        } else {
            eprintln!(
                "{}/{}, {}: {what}",
                self.done + 1,
                self.steps,
                remaining_time(self.done, self.steps, seconds)
            );
        }
    }

    /// Counts a finished step.
    pub fn advance(&mut self) {
        self.done += 1;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

fn bar(done: usize, steps: usize, seconds: f64) -> String {
    let steps = steps.max(done).max(1);
    let filled = WIDTH * done / steps;
    let percent = 100 * done / steps;
    let left = remaining_time(done, steps, seconds);
    format!("[{}{}] {percent:3} %, {left}:", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

/// Estimates the remaining time from the steps so far.
fn remaining_time(done: usize, steps: usize, seconds: f64) -> String {
    match done {
        0 => "? s left".to_owned(),
        _ => format!("{:.0} s left", seconds / done as f64 * steps.saturating_sub(done) as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_remaining_time_follows_the_finished_steps() {
        assert_eq!(
            bar(3, 6, 30.0),
            format!("[{0}{1}]  50 %, 30 s left:", "#".repeat(15), ".".repeat(15))
        );
        assert!(bar(0, 6, 1.0).contains("? s left"));
        assert!(bar(7, 6, 1.0).contains("100 %, 0 s"));
    }
}

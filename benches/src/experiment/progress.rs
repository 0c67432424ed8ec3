//! A bar with the time that is left, on a terminal.

use std::{
    io::{IsTerminal as _, stderr},
    time::Instant,
};

/// How far an experiment has come.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    done: usize,
    steps: usize,
    is_shown: bool,
}

/// Characters of the bar.
const WIDTH: usize = 30;

impl Progress {
    /// At the beginning of so many steps.
    #[must_use]
    pub fn new(steps: usize) -> Self {
        Self { start: Instant::now(), done: 0, steps, is_shown: stderr().is_terminal() }
    }

    /// Says what is being done now; steps are taken to last alike.
    pub fn show(&self, what: &str) {
        if self.is_shown {
            eprint!("\r\x1b[K{}", bar(self.done, self.steps, self.start.elapsed().as_secs_f64()));
            eprint!(" {what}");
        }
    }

    /// Counts a step that is done.
    pub fn advance(&mut self) {
        self.done += 1;
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn bar(done: usize, steps: usize, seconds: f64) -> String {
    let steps = steps.max(done).max(1);
    let filled = WIDTH * done / steps;
    let left = match done {
        0 => "?".to_owned(),
        _ => format!("{:.0}", seconds / done as f64 * (steps - done) as f64),
    };
    let percent = 100 * done / steps;
    format!("[{}{}] {percent:3} %, {left} s left:", "#".repeat(filled), ".".repeat(WIDTH - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_is_that_of_the_steps_so_far() {
        assert_eq!(
            bar(3, 6, 30.0),
            format!("[{0}{1}]  50 %, 30 s left:", "#".repeat(15), ".".repeat(15))
        );
        assert!(bar(0, 6, 1.0).contains("? s left"));
        assert!(bar(7, 6, 1.0).contains("100 %, 0 s"));
    }
}

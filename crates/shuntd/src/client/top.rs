//! `shuntctl top`: a full screen in a terminal, otherwise lines.

use std::{
    io::{self, IsTerminal},
    thread::sleep,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::{end_signals, print, value};
use crate::{
    render::{
        screen::{LowerPart, TopScreen},
        top::{TopSnapshot, top},
    },
    rpc::{CallError, RpcClient},
};

/// Number of cache entries that the screen requests.
const FLOWS: &str = "50";

/// Interval at which a screen without events asks for signals.
const SIGNAL_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Number of lines that a page key scrolls.
const PAGE: isize = 10;

/// Number of columns that the left and the right key scroll.
const SIDE: i16 = 20;

/// Shows rates until Ctrl-C, or for a number of updates; 0: no limit.
///
/// The full screen needs standard output and standard input to be a terminal.
pub(super) fn run(client: &mut RpcClient, interval: u64, count: u64) -> Result<(), CallError> {
    #[expect(
        clippy::disallowed_methods,
        reason = "rates on a screen are measured by wall-clock time"
    )]
    let start = Instant::now();
    if count == 0 && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return on_screen(client, Duration::from_secs(interval), start);
    }
    let mut before: Option<TopSnapshot> = None;
    let mut looks = 0;
    loop {
        let now = snapshot(client, start)?;
        if let Some(before) = &before {
            print(&top(before, &now));
            looks += 1;
        }
        if count > 0 && looks >= count {
            return Ok(());
        }
        before = Some(now);
        sleep(Duration::from_secs(interval));
    }
}

/// Takes a snapshot without eviction counters, at the time since `start`.
fn snapshot(client: &mut RpcClient, start: Instant) -> Result<TopSnapshot, CallError> {
    Ok(TopSnapshot {
        taken: start.elapsed(),
        bridges: value(&client.call("shunt/show", &[])?),
        caches: value(&client.call("shunt/caches", &[])?),
        drops: value(&client.call("shunt/drops", &[])?),
        evictions: Value::Null,
    })
}

/// Returns the cache entries with most packets.
fn top_flows(client: &mut RpcClient) -> Result<Value, CallError> {
    Ok(value(&client.call("shunt/entries", &[FLOWS])?))
}

/// Shows a screen until a key or a signal ends it, and restores the terminal.
fn on_screen(client: &mut RpcClient, interval: Duration, start: Instant) -> Result<(), CallError> {
    client.ask_while_waiting(waits_longer)?;
    end_signals::watch().map_err(|error| terminal_error(&error))?;
    let mut terminal = ratatui::try_init().map_err(|error| terminal_error(&error))?;
    let shown = show(client, interval, start, &mut terminal);
    ratatui::restore();
    match shown {
        Err(CallError::Interrupted) => Ok(()),
        shown => shown,
    }
}

/// Returns whether the screen waits longer: no key or signal has ended it.
///
/// In the raw mode of the screen, the terminal sends no signal for Ctrl-C. Without this check, only
/// another terminal could end a screen that waits for a daemon that hangs.
fn waits_longer() -> bool {
    if end_signals::has_arrived() {
        return false;
    }
    while event::poll(Duration::ZERO).unwrap_or(false) {
        match event::read() {
            Ok(Event::Key(key)) if key.kind == KeyEventKind::Press && is_end_key(key) => {
                return false;
            }
            Ok(_) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Returns whether a key ends the screen.
fn is_end_key(key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => true,
        KeyCode::Char('c') => key.modifiers.contains(KeyModifiers::CONTROL),
        _ => false,
    }
}

/// Returns the error that the terminal cannot be used.
fn terminal_error(error: &io::Error) -> CallError {
    CallError::Refused(format!("cannot use the terminal: {error}"))
}

/// Draws the screen after each interval, until a key ends it.
fn show(
    client: &mut RpcClient,
    interval: Duration,
    start: Instant,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), CallError> {
    let mut screen = TopScreen::default();
    let mut next = Duration::ZERO;
    loop {
        if start.elapsed() >= next {
            if !screen.is_paused() {
                let taken = snapshot(client, start)?;
                let evictions = value(&client.call("shunt/evict", &[])?);
                screen.add(TopSnapshot { evictions, ..taken });
                if screen.lower() == LowerPart::Flows {
                    screen.set_flows(top_flows(client)?);
                }
            }
            next += interval;
            if next <= start.elapsed() {
                // If answers are slow, updates are skipped, so that a busy daemon does not get more
                // requests.
                next = start.elapsed() + interval;
            }
        }
        terminal.draw(|frame| screen.draw(frame)).map_err(|error| terminal_error(&error))?;
        if !wait_for_event(start, next)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(|error| terminal_error(&error))?
            && key.kind == KeyEventKind::Press
        {
            let (lower, was_paused) = (screen.lower(), screen.is_paused());
            if handle_key(&mut screen, key) {
                return Ok(());
            }
            if was_paused && !screen.is_paused() {
                // The first interval after the pause begins immediately.
                next = start.elapsed();
            }
            // The entries are requested immediately: the next update may be late, and a paused
            // screen has none.
            if lower != screen.lower() && screen.lower() == LowerPart::Flows {
                screen.set_flows(top_flows(client)?);
            }
        }
    }
}

/// Waits for an event of the terminal; returns `false` at the time `next`.
///
/// A signal ends the wait with [`CallError::Interrupted`].
fn wait_for_event(start: Instant, next: Duration) -> Result<bool, CallError> {
    loop {
        if end_signals::has_arrived() {
            return Err(CallError::Interrupted);
        }
        let left = next.saturating_sub(start.elapsed());
        if event::poll(left.min(SIGNAL_CHECK_INTERVAL)).map_err(|error| terminal_error(&error))? {
            return Ok(true);
        }
        if left <= SIGNAL_CHECK_INTERVAL {
            return Ok(false);
        }
    }
}

/// Handles a key; returns whether it ends the program.
fn handle_key(screen: &mut TopScreen, key: KeyEvent) -> bool {
    if is_end_key(key) {
        return true;
    }
    match key.code {
        KeyCode::Char('o') => screen.next_order(),
        KeyCode::Char('p') => screen.toggle_pause(),
        KeyCode::Char('f') => screen.toggle_flows(),
        KeyCode::Up => screen.scroll(-1),
        KeyCode::Down => screen.scroll(1),
        KeyCode::Left => screen.scroll_sideways(-SIDE),
        KeyCode::Right => screen.scroll_sideways(SIDE),
        KeyCode::PageUp => screen.scroll(-PAGE),
        KeyCode::PageDown => screen.scroll(PAGE),
        _ => {}
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_change_the_screen_or_end_it() {
        let mut screen = TopScreen::default();
        let mut press = |code, modifiers| handle_key(&mut screen, KeyEvent::new(code, modifiers));
        let none = KeyModifiers::NONE;
        assert!(press(KeyCode::Char('q'), none));
        assert!(press(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!press(KeyCode::Char('c'), none));
        assert!(!press(KeyCode::Char('p'), none));
        assert!(!press(KeyCode::Char('f'), none));
        assert!(screen.is_paused());
        assert_eq!(screen.lower(), LowerPart::Flows);
    }
}

//! `shuntctl top`: a screen in a terminal, else lines.

use std::{
    io::{self, IsTerminal},
    thread::sleep,
    time::{Duration, Instant},
};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use serde_json::Value;

use super::{print, value};
use crate::{
    render::{
        screen::{LowerPart, TopScreen},
        top::{TopSnapshot, top},
    },
    rpc::{CallError, RpcClient},
};

/// Number of cache entries that the screen shows.
const FLOWS: &str = "50";

/// Lines of a page.
const PAGE: isize = 10;

/// Shows rates until Ctrl-C, or for a number of updates; 0: without end.
///
/// Standard output and input must be a terminal for the screen.
pub(super) fn run(client: &mut RpcClient, interval: u64, count: u64) -> Result<(), CallError> {
    if count == 0 && io::stdout().is_terminal() && io::stdin().is_terminal() {
        return on_screen(client, interval);
    }
    let mut before: Option<TopSnapshot> = None;
    let mut looks = 0;
    loop {
        let now = snapshot(client)?;
        if let Some(before) = &before {
            print(&top(before, &now, interval));
            looks += 1;
        }
        if count > 0 && looks >= count {
            return Ok(());
        }
        before = Some(now);
        sleep(Duration::from_secs(interval));
    }
}

fn snapshot(client: &mut RpcClient) -> Result<TopSnapshot, CallError> {
    Ok(TopSnapshot {
        bridges: value(&client.call("shunt/show", &[])?),
        caches: value(&client.call("shunt/caches", &[])?),
        drops: value(&client.call("shunt/drops", &[])?),
        evictions: Value::Null,
    })
}

/// Shows a screen until a key ends it.
fn on_screen(client: &mut RpcClient, interval: u64) -> Result<(), CallError> {
    let broken = |error: io::Error| CallError::Refused(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let shown = show(client, interval, &mut terminal);
    ratatui::restore();
    shown
}

fn show(
    client: &mut RpcClient,
    interval: u64,
    terminal: &mut ratatui::DefaultTerminal,
) -> Result<(), CallError> {
    let broken = |error: io::Error| CallError::Refused(format!("cannot use the terminal: {error}"));
    let interval_time = Duration::from_secs(interval);
    let mut screen = TopScreen::new(interval);
    #[expect(clippy::disallowed_methods, reason = "the time of a person at a terminal")]
    let now = Instant::now;
    let mut next = now();
    loop {
        if now() >= next {
            if !screen.is_paused() {
                let evictions = value(&client.call("shunt/evict", &[])?);
                let taken = TopSnapshot { evictions, ..snapshot(client)? };
                let flows = match screen.lower() {
                    LowerPart::Flows => value(&client.call("shunt/entries", &[FLOWS])?),
                    LowerPart::Ports => Value::Null,
                };
                screen.add(taken, flows);
            }
            next += interval_time;
        }
        terminal.draw(|frame| screen.draw(frame)).map_err(broken)?;
        if !event::poll(next.saturating_duration_since(now())).map_err(broken)? {
            continue;
        }
        if let Event::Key(key) = event::read().map_err(broken)?
            && key.kind == KeyEventKind::Press
            && is_end(&mut screen, key)
        {
            return Ok(());
        }
    }
}

/// Handles a key; returns whether it ends the program.
fn is_end(screen: &mut TopScreen, key: KeyEvent) -> bool {
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return true,
        KeyCode::Char('p') => screen.toggle_pause(),
        KeyCode::Char('f') => screen.toggle_flows(),
        KeyCode::Up => screen.scroll(-1),
        KeyCode::Down => screen.scroll(1),
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
        let mut screen = TopScreen::new(1);
        let mut press = |code, modifiers| is_end(&mut screen, KeyEvent::new(code, modifiers));
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

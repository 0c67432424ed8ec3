//! The log of the daemon, written to standard error; a service manager collects it.

use std::{
    env,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::OnceLock,
};

use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, fmt, layer::SubscriberExt, reload,
    util::SubscriberInitExt,
};

type Handle = reload::Handle<EnvFilter, tracing_subscriber::Registry>;

/// The handle by which the log filter changes; absent until logging starts.
static HANDLE: OnceLock<Handle> = OnceLock::new();

/// Returns the log filter in force; empty if logging has not started.
pub(crate) fn filter() -> String {
    let filter = HANDLE.get().and_then(|handle| handle.with_current(ToString::to_string).ok());
    filter.unwrap_or_default()
}

/// Starts logging with a filter: a level,
/// or `target=level` parts separated by commas.
///
/// # Errors
///
/// If the text is not a filter.
pub(crate) fn start(filter: &str) -> Result<(), String> {
    let (layer, handle) = reload::Layer::new(parse(filter)?);
    let output = fmt::layer().with_writer(io::stderr).with_ansi(false);
    // journald adds the time to each line.
    let output = if is_journal() { output.without_time().boxed() } else { output.boxed() };
    // The subscriber can be set only once; a second start in one process keeps the first.
    if tracing_subscriber::registry().with(layer).with(output).try_init().is_ok() {
        let _ = HANDLE.set(handle);
    }
    Ok(())
}

/// Returns whether journald reads the standard error of this process.
fn is_journal() -> bool {
    let stream = env::var("JOURNAL_STREAM").unwrap_or_default();
    let error = io::stderr().as_fd().try_clone_to_owned();
    error.is_ok_and(|error| is_stream(&File::from(error), &stream))
}

/// Returns whether a file has the device and inode of a stream.
///
/// `JOURNAL_STREAM` has the form `DEVICE:INODE` (`systemd.exec(5)`). A program with redirected
/// standard error still inherits the variable.
fn is_stream(file: &File, stream: &str) -> bool {
    file.metadata().is_ok_and(|data| format!("{}:{}", data.dev(), data.ino()) == stream)
}

/// Changes the log filter of a running daemon.
///
/// # Errors
///
/// If the text is not a filter, or logging has not started.
pub(crate) fn set(filter: &str) -> Result<(), String> {
    let filter = parse(filter)?;
    let handle = HANDLE.get().ok_or("logging has not started")?;
    handle.reload(filter).map_err(|error| error.to_string())
}

/// Checks a log filter without applying it.
///
/// # Errors
///
/// If the text is not a filter.
pub(crate) fn check(filter: &str) -> Result<(), String> {
    parse(filter).map(|_| ())
}

fn parse(filter: &str) -> Result<EnvFilter, String> {
    // A word that is not a level would be taken for a target, and would silence all other targets.
    let is_level = |part: &&str| !part.contains(['=', '[']);
    let mut alone = filter.split(',').map(str::trim).filter(is_level).peekable();
    if alone.peek().is_none() {
        return Err(format!(
            "logging.filter = {filter:?}: a level for all other targets is missing, and they would \
             log nothing; begin with a level as in info,shunt_ofproto=debug"
        ));
    }
    if let Some(word) = alone.find(|word| word.parse::<LevelFilter>().is_err()) {
        return Err(format!(
            "logging.filter = {filter:?}: {word:?} is not a level; use error, warn, info, debug, trace \
             or off, or add a level for one target as in info,shunt_ofproto=debug"
        ));
    }
    // The values of a span may contain commas.
    let levels = filter.split(',').filter(|_| !filter.contains('['));
    let mut levels = levels.filter_map(|part| Some(part.rsplit_once('=')?.1.trim()));
    if let Some(word) = levels.find(|level| level.parse::<LevelFilter>().is_err()) {
        return Err(format!(
            "logging.filter = {filter:?}: {word:?} is not a level; use error, warn, info, debug, trace \
             or off"
        ));
    }
    let wrong = |error| format!("logging.filter = {filter:?}: {error}; write for example `info`");
    EnvFilter::try_new(filter).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_journal_is_recognised_by_device_and_inode() {
        let file = tempfile::tempfile().unwrap();
        let data = file.metadata().unwrap();
        assert!(is_stream(&file, &format!("{}:{}", data.dev(), data.ino())));
        assert!(!is_stream(&file, &format!("{}:{}", data.dev(), data.ino() + 1)));
        assert!(!is_stream(&file, ""));
    }

    #[test]
    fn a_log_filter_has_levels_and_targets() {
        for filter in ["info", "off", "warn,shunt_ofproto=debug"] {
            assert_eq!(check(filter), Ok(()), "{filter}");
        }
        for filter in ["infoo", "any:any:dbg", "info,shunt_ofproto", "info,a=loud"] {
            let error_text = check(filter).unwrap_err();
            assert!(error_text.contains("logging.filter"), "{filter}: {error_text}");
        }
        let error_text = check("debug,foo=bar").unwrap_err();
        assert!(error_text.contains("\"bar\" is not a level; use error"), "{error_text}");
        for filter in ["shunt_ofproto=debug", "garbage=", "a=b=c", "[span]=debug"] {
            let error_text = check(filter).unwrap_err();
            assert!(error_text.contains("a level for all other targets"), "{filter}: {error_text}");
        }
    }
}

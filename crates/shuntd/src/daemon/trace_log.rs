//! The log of the daemon, written to standard error; a service manager collects it.

use std::{
    env,
    fs::File,
    io,
    os::{fd::AsFd, unix::fs::MetadataExt},
    sync::{Mutex, OnceLock, PoisonError},
};

use tracing_subscriber::{
    EnvFilter, Layer, filter::LevelFilter, fmt, layer::SubscriberExt, reload,
    util::SubscriberInitExt,
};

type Handle = reload::Handle<EnvFilter, tracing_subscriber::Registry>;

/// The log in force; absent until logging starts.
static LOG: OnceLock<TraceLog> = OnceLock::new();

/// Start of each filter above the level `warn`.
///
/// The crate `dbsp` logs several lines at level `info` for each new circuit, which mean nothing to
/// an operator. A later part of the filter with the same target takes precedence.
const LIBRARY_LEVELS: &str = "dbsp=warn";

/// The log filter of the daemon, and the handle that changes it.
struct TraceLog {
    /// The handle that replaces the log filter.
    handle: Handle,
    /// The filter as the operator gave it, without [`LIBRARY_LEVELS`].
    text: Mutex<String>,
}

/// A log filter that was parsed.
struct ParsedFilter {
    /// The log filter, including [`LIBRARY_LEVELS`].
    filter: EnvFilter,
    /// The filter as the operator gave it, without [`LIBRARY_LEVELS`].
    text: String,
}

/// Returns the log filter in force; empty if logging has not started.
pub(crate) fn filter() -> String {
    let text = LOG.get().map(|log| log.text.lock().unwrap_or_else(PoisonError::into_inner).clone());
    text.unwrap_or_default()
}

/// Starts logging with a filter: a level,
/// or `target=level` parts separated by commas.
///
/// # Errors
///
/// If the text is not a filter.
pub(crate) fn start(filter: &str) -> Result<(), String> {
    let ParsedFilter { filter, text } = parse(filter)?;
    let (layer, handle) = reload::Layer::new(filter);
    let output = fmt::layer().with_writer(io::stderr).with_ansi(false);
    // journald adds the time to each line.
    let output = if is_journal() { output.without_time().boxed() } else { output.boxed() };
    // The subscriber can be set only once; a second start in one process keeps the first.
    if tracing_subscriber::registry().with(layer).with(output).try_init().is_ok() {
        let _ = LOG.set(TraceLog { handle, text: Mutex::new(text) });
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
    let ParsedFilter { filter, text } = parse(filter)?;
    let log = LOG.get().ok_or("logging has not started")?;
    // The lock is held until the filter is in force, so that two changes cannot mix.
    let mut shown = log.text.lock().unwrap_or_else(PoisonError::into_inner);
    log.handle.reload(filter).map_err(|error| error.to_string())?;
    *shown = text;
    Ok(())
}

/// Checks a log filter without applying it.
///
/// # Errors
///
/// If the text is not a filter.
pub(crate) fn check(filter: &str) -> Result<(), String> {
    parse(filter).map(|_| ())
}

/// Parses a log filter.
fn parse(filter: &str) -> Result<ParsedFilter, String> {
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
    let text = EnvFilter::try_new(filter).map_err(wrong)?.to_string();
    let filter = EnvFilter::try_new(with_library_levels(filter)).map_err(wrong)?;
    Ok(ParsedFilter { filter, text })
}

/// Returns the filter with [`LIBRARY_LEVELS`] before it.
///
/// A filter that logs no more than warnings stays as it is.
fn with_library_levels(filter: &str) -> String {
    // An empty part would be parsed as a level; of several levels the last one counts.
    let parts = filter.split(',').map(str::trim).filter(|part| !part.is_empty());
    let level = parts.filter_map(|part| part.parse::<LevelFilter>().ok()).next_back();
    if level.is_some_and(|level| level > LevelFilter::WARN) {
        format!("{LIBRARY_LEVELS},{filter}")
    } else {
        filter.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    /// Returns whether a filter logs `dbsp` at `info`, at `warn`, and the daemon.
    fn logged(filter: &str) -> [bool; 3] {
        let subscriber = tracing_subscriber::registry().with(parse(filter).unwrap().filter);
        tracing::subscriber::with_default(subscriber, || {
            [
                tracing::enabled!(target: "dbsp::operator::dynamic", Level::INFO),
                tracing::enabled!(target: "dbsp::operator::dynamic", Level::WARN),
                tracing::enabled!(target: "shuntd::rpc", Level::INFO),
            ]
        })
    }

    #[test]
    fn dbsp_logs_warnings_unless_the_filter_names_it() {
        let cases = [
            ("info", [false, true, true]),
            ("info,", [false, true, true]),
            ("debug", [false, true, true]),
            ("info,shunt_ofproto=debug", [false, true, true]),
            ("info,dbsp=info", [true, true, true]),
            ("dbsp=debug,info", [true, true, true]),
            ("info,dbsp::operator=info", [true, true, true]),
            ("info,dbsp=off", [false, false, true]),
            ("warn", [false, true, false]),
            ("error", [false, false, false]),
            ("off", [false, false, false]),
        ];
        for (filter, expected) in cases {
            assert_eq!(logged(filter), expected, "{filter}");
        }
    }

    #[test]
    fn shown_filter_is_that_of_the_operator() {
        for filter in ["info", "off", "dbsp=warn,info", "dbsp=info,warn"] {
            assert_eq!(parse(filter).unwrap().text, filter);
        }
    }

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

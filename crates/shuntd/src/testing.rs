//! Functions for fuzz targets: they accept any bytes, and check properties that hold for all
//! inputs.

#![expect(clippy::expect_used, reason = "a panic is a finding of the fuzzer")]

use std::{
    future::ready,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use miette::Report;
use serde_json::Value;
use shunt_switch::{Config, ControllerEndpoint};

use crate::{
    config::{self, ConfigFileError},
    host_statistics::{cpus, file_systems, memory, process_value},
    rpc::{Methods, Objects, ParsedObject, ReplyFormat, answer},
    setting,
};

/// Parses any text as a configuration.
///
/// An error must have a place in the text. A valid configuration must pass the checks, and be equal
/// after writing and parsing it again.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match config::parse("fuzz", text.to_owned()) {
        Ok(file) => check_config(&file.switch()),
        Err(error) => {
            if let ConfigFileError::Text { message, span, .. } = &error {
                let place = text.get(span.offset()..span.offset() + span.len());
                assert!(place.is_some() && !message.is_empty(), "{error:?}");
            }
            assert!(!format!("{:?}", Report::new(error)).is_empty());
        }
    }
}

/// Sends any bytes to the control socket.
/// The bytes are sent in chunks of the length in the first byte.
///
/// The control socket must answer each request once, for any division into chunks.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_rpc(data: &[u8]) {
    let Some((length, stream)) = data.split_first() else { return };
    let whole = requests([stream]);
    assert_eq!(requests(stream.chunks(usize::from(*length).max(1))), whole);
    for request in &whole.0 {
        let reply = reply_to(request);
        assert_eq!(reply["id"], request["id"]);
        assert_ne!(reply["result"].is_null(), reply["error"].is_null(), "{reply}");
    }
}

/// Parses any text as files of proc(5).
///
/// A value must have the numbers that its key has in the column `statistics`.
///
/// # Panics
///
/// If one of these properties does not hold.
pub fn fuzz_host_statistics(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let is_number = |word: &str| word.parse::<f64>().is_ok_and(f64::is_finite);
    let check = |value: Option<String>, count: usize| {
        let Some(value) = value else { return };
        let words: Vec<_> = value.split(',').collect();
        assert_eq!(words.len(), count, "{value:?}");
        assert!(words.into_iter().all(is_number), "{value:?}");
    };
    check(cpus(&text), 1);
    check(memory(&text), 5);
    let (stat, status) = text.split_once('\0').unwrap_or((&text, ""));
    check(process_value(stat, status, Duration::MAX), 7);
    let systems = file_systems(&text, |_| Some([7, 5])).unwrap_or_default();
    for system in systems.split_terminator(' ') {
        let words: Vec<_> = system.split(',').collect();
        assert_eq!(words.get(1..), Some(&["7", "5"][..]), "{system:?}");
    }
}

fn check_config(config: &Config) {
    let written =
        toml::to_string(config).expect("a configuration from TOML can be written as TOML");
    assert_eq!(toml::from_str::<Config>(&written).as_ref(), Ok(config), "through {written}");
    for bridge in &config.bridges {
        let endpoints = bridge.endpoints().expect("checked");
        for endpoint in endpoints {
            assert_eq!(endpoint.to_string().parse::<ControllerEndpoint>(), Ok(endpoint));
        }
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
        assert!(digits(&bridge.datapath_id) && digits(&bridge.mac), "{bridge:?}");
    }
}

/// Returns all requests in a stream,
/// and whether the stream ended with invalid data.
fn requests<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (Vec<Value>, bool) {
    let (mut objects, mut values) = (Objects::default(), Vec::new());
    for chunk in chunks {
        objects.bytes.extend_from_slice(chunk);
        loop {
            match objects.next() {
                ParsedObject::Value(value) => values.push(value),
                ParsedObject::Incomplete => break,
                ParsedObject::Garbage => return (values, true),
            }
        }
    }
    (values, false)
}

fn reply_to(request: &Value) -> Value {
    let mut context = Context::from_waker(Waker::noop());
    let mut format = ReplyFormat::default();
    let answering = pin!(answer(&WordMethods, request, &mut format));
    let Poll::Ready(reply) = answering.poll(&mut context) else {
        unreachable!("nothing here waits")
    };
    reply
}

/// Methods for tests: they parse their parameters as words of `add-port`.
struct WordMethods;

impl Methods for WordMethods {
    fn call(
        &self,
        method: &str,
        parameters: Vec<String>,
    ) -> impl Future<Output = Result<String, String>> + Send {
        let port = setting::port(method, &parameters);
        ready(
            port.and_then(|port| port.check().map_err(|error| error.to_string()))
                .map(|()| method.to_owned()),
        )
    }

    fn is_change(&self, _: &str) -> bool {
        false
    }
}

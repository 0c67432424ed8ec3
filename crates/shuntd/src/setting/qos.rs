//! The quality of service (QoS) of a port on the command line, as `key=value` words.

use shunt_switch::config::{PortOptions, QosOptions, QosType, QueueOptions};

use super::{split, unknown};

/// Keys of the QoS of a port that the command line accepts.
pub(crate) const KEYS: [&str; 5] = ["type", "cir", "cbs", "max_rate", "queue.ID.KEY"];

/// Keys of an egress queue that the command line accepts.
pub(crate) const QUEUE_KEYS: [&str; 4] = ["min_rate", "max_rate", "burst", "priority"];

/// Parses the QoS of a port from words.
///
/// Examples are `type=egress-policer cir=125000 cbs=15000`, and `type=linux-htb max_rate=10000000
/// queue.1.min_rate=2000000`. Without words, the port has no QoS.
///
/// # Errors
///
/// Like [`port`](super::port).
pub(crate) fn qos(name: &str, words: &[String]) -> Result<PortOptions, String> {
    let mut options = QosOptions::new(QosType::LinuxNoop);
    for word in words {
        let (key, value) = split(word)?;
        match key {
            "type" => {
                let known = QosType::ALL.map(QosType::name);
                let found = QosType::ALL.into_iter().find(|kind| kind.name() == value);
                options.kind = found.ok_or_else(|| unknown("QoS type", value, &known))?;
            }
            "cir" => options.cir = parse_amount(key, value, "bytes per second")?,
            "cbs" => options.cbs = parse_amount(key, value, "bytes")?,
            "max_rate" => options.max_rate = parse_amount(key, value, "bits per second")?,
            _ => match key.strip_prefix("queue.").and_then(|rest| rest.split_once('.')) {
                Some((id, of_queue)) => set_queue(&mut options, (id, of_queue), key, value)?,
                None => return Err(unknown("key", key, &KEYS)),
            },
        }
    }
    let qos = (!words.is_empty()).then_some(options);
    Ok(PortOptions { name: name.to_owned(), qos, ..PortOptions::default() })
}

/// Sets a key of an egress queue; adds the queue if it does not exist.
fn set_queue(
    options: &mut QosOptions,
    (id, of_queue): (&str, &str),
    key: &str,
    value: &str,
) -> Result<(), String> {
    let id = id.parse().map_err(|_| format!("{key}={value}: the queue {id} is not a number"))?;
    let position = options.queues.iter().position(|queue| queue.id == id).unwrap_or_else(|| {
        options.queues.push(QueueOptions { id, ..QueueOptions::default() });
        options.queues.len() - 1
    });
    let queue = &mut options.queues[position];
    match of_queue {
        "min_rate" => queue.min_rate = parse_amount(key, value, "bits per second")?,
        "max_rate" => queue.max_rate = parse_amount(key, value, "bits per second")?,
        "burst" => queue.burst = parse_amount(key, value, "bits")?,
        "priority" => {
            let problem = |_| format!("{key}={value}: use a number from 0 to {}", u32::MAX);
            queue.priority = value.parse().map_err(problem)?;
        }
        _ => return Err(unknown("key of a queue", of_queue, &QUEUE_KEYS)),
    }
    Ok(())
}

/// Parses a rate or a burst size; the error names the unit.
fn parse_amount(key: &str, value: &str, unit: &str) -> Result<u64, String> {
    value
        .parse()
        .map_err(|_| format!("{key}={value}: use a number of {unit}, from 0 to {}", u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Splits a text into words.
    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn qos_is_parsed_from_the_command_line() {
        let port = qos("p", &words("type=egress-policer cir=125000 cbs=15000")).unwrap();
        let policer = QosOptions::new(QosType::EgressPolicer);
        assert_eq!(port.qos, Some(QosOptions { cir: 125_000, cbs: 15_000, ..policer }));
        assert_eq!(qos("p", &[]).unwrap().qos, None);
        let error_text = |text: &str| qos("p", &words(text)).unwrap_err();
        assert!(error_text("type=linux-hfsc").contains("use `linux-htb`"));
        assert!(error_text("cri=5").contains("did you mean `cir`?"));
        let range = "use a number of bytes per second, from 0 to 18446744073709551615";
        assert_eq!(error_text("cir=fast"), format!("cir=fast: {range}"));
    }

    #[test]
    fn queues_are_parsed_from_the_command_line() {
        let text = "type=linux-htb max_rate=10000000 queue.1.min_rate=2000000 queue.5.burst=9 \
                    queue.1.priority=3 queue.1.max_rate=4000000";
        let first =
            QueueOptions { id: 1, min_rate: 2_000_000, max_rate: 4_000_000, burst: 0, priority: 3 };
        let second = QueueOptions { id: 5, burst: 9, ..QueueOptions::default() };
        let htb = QosOptions::new(QosType::LinuxHtb);
        let expected = QosOptions { max_rate: 10_000_000, queues: vec![first, second], ..htb };
        assert_eq!(qos("p", &words(text)).unwrap().qos, Some(expected));
        let error_text = |text: &str| qos("p", &words(text)).unwrap_err();
        assert!(error_text("queue.1.brust=3").contains("did you mean `burst`?"));
        assert!(error_text("queue.x.burst=3").contains("the queue x is not a number"));
        assert!(error_text("queue.1=3").contains("unknown key"));
    }
}

//! `shuntd nic`: the embedded NIC as a separate program, for any P4Runtime controller.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    str::FromStr,
    sync::LazyLock,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use clap::Args;
use shunt_datapath::port::{PortSpec, Repeat, tap};
use shunt_nic::{Nic, NicError, NicLimits, NicPort};
use shunt_p4runtime::{
    program::{Program, UnknownStages},
    server::ClockReading,
};
use thiserror::Error;

/// Run a NIC in software that P4Runtime controllers drive.
///
/// The NIC runs the program p4/gigaflow.p4.
#[derive(Debug, Args)]
pub(crate) struct NicArguments {
    /// Listen for P4Runtime controllers on this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9559")]
    listen: SocketAddr,
    /// Add a port.
    ///
    /// `1=eth0` (network device), `1=tap:NAME`, `1=null` or `1=pcap:RX:TX` (files). May be
    /// repeated.
    #[arg(long, value_name = "NUMBER=DEVICE")]
    port: Vec<PortArgument>,
    /// Add a representor to the port with this number.
    ///
    /// Packets that miss leave through it, and packets that arrive on it leave through the port.
    /// Packets of a port without a representor that miss go to the controller. May be repeated.
    #[arg(long, value_name = "NUMBER=DEVICE")]
    representor: Vec<PortArgument>,
    /// Set the number of match-action stages of the P4 program: 1 to 16.
    #[arg(long, value_name = "K", default_value_t = Program::default().stages())]
    stages: u8,
    /// Set the number of entries in each stage: 1 to 1048576.
    #[arg(
        long,
        value_name = "ENTRIES",
        default_value_t = Program::default().size(),
        value_parser = clap::value_parser!(u32).range(1..=1 << 20)
    )]
    size: u32,
    /// Limit the number of different masks in each stage; default: no limit.
    #[arg(long, value_name = "MASKS")]
    masks: Option<NonZeroUsize>,
    /// Limit the number of bits that an entry matches; default: no limit.
    #[arg(long, value_name = "BITS")]
    key_bits: Option<NonZeroU32>,
    /// Delay each update by this number of microseconds.
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    latency: u64,
}

/// A port or representor of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PortArgument {
    /// The number of the port.
    number: u16,
    /// The device of the port.
    spec: PortSpec,
}

/// The reason why a text is not a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
enum PortArgumentError {
    #[error("the port is not of the form NUMBER=DEVICE: write for example 1=eth0")]
    Form,
    #[error("the port number is out of range: use 1 to 65279")]
    Number,
    #[error("the port type is unknown: use a device name, `tap:NAME`, `null` or `pcap:RX:TX`")]
    Device,
}

/// Highest port number: higher 16-bit numbers are reserved (OpenFlow 1.3, 7.2.1).
const NUMBER_MAX: u16 = 0xfeff;

impl FromStr for PortArgument {
    type Err = PortArgumentError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (number, what) = text.split_once('=').ok_or(PortArgumentError::Form)?;
        let number = number.parse().map_err(|_| PortArgumentError::Number)?;
        if number == 0 || number > NUMBER_MAX {
            return Err(PortArgumentError::Number);
        }
        let file = |name: &str| (!name.is_empty()).then(|| PathBuf::from(name));
        let spec = match what.split_once(':') {
            None if what == "null" => PortSpec::Null,
            None if !what.is_empty() => {
                PortSpec::AfPacket { device: what.to_owned(), mtu: None, rx_slots: None }
            }
            Some(("tap", device)) if !device.is_empty() => {
                PortSpec::Tap { device: device.to_owned(), settings: tap::TapSettings::default() }
            }
            Some(("pcap", files)) => {
                let (rx, tx) = files.split_once(':').unwrap_or((files, ""));
                PortSpec::Pcap { rx: file(rx), tx: file(tx), repeat: Repeat::Once }
            }
            _ => return Err(PortArgumentError::Device),
        };
        Ok(Self { number, spec })
    }
}

/// The reason why the NIC does not run.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    #[error(transparent)]
    Stages(#[from] UnknownStages),
    #[error("--representor {0}: add a --port with this number")]
    NoPort(u16),
    #[error(
        "--representor {0}: the option is given twice, but a port has one representor: remove one"
    )]
    TwoRepresentors(u16),
    #[error(transparent)]
    Nic(#[from] NicError),
}

/// Runs the NIC until `stop` completes; `seed` is part of all hashes.
pub(crate) async fn run(
    arguments: &NicArguments,
    seed: u64,
    stop: impl Future<Output = ()>,
) -> Result<(), RunError> {
    let program = Program::new(arguments.stages, arguments.size)?;
    let limits = NicLimits {
        masks_max: arguments.masks.map(NonZeroUsize::get),
        key_bits_max: arguments.key_bits.map(NonZeroU32::get),
        update_latency: Duration::from_micros(arguments.latency),
    };
    let ports = open_ports(arguments)?;
    let nic = Nic::start(program, limits, ports, arguments.listen, now, seed).await?;
    nic.run(stop).await.map_err(NicError::from)?;
    Ok(())
}

/// Opens the ports of the NIC.
fn open_ports(arguments: &NicArguments) -> Result<Vec<NicPort>, RunError> {
    let mut representors = BTreeMap::new();
    for PortArgument { number, spec } in &arguments.representor {
        if representors.insert(*number, spec).is_some() {
            return Err(RunError::TwoRepresentors(*number));
        }
    }
    let mut ports = Vec::new();
    for PortArgument { number, spec } in &arguments.port {
        let opened = NicPort::open(*number, spec, representors.remove(number));
        ports.push(opened.map_err(|source| NicError::Port { number: *number, source })?);
    }
    match representors.keys().next() {
        Some(number) => Err(RunError::NoPort(*number)),
        None => Ok(ports),
    }
}

/// Returns the present time of both clocks.
#[expect(clippy::disallowed_methods, reason = "only the daemon reads clocks")]
fn now() -> ClockReading {
    /// The time of the first call.
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let day = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ClockReading { steady: START.elapsed(), day }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A command line with only the arguments of the NIC.
    #[derive(Debug, clap::Parser)]
    struct NicCommandLine {
        #[command(flatten)]
        nic: NicArguments,
    }

    #[test]
    fn sizes_of_zero_are_refused() {
        let parse = |words: &[&str]| {
            let words = std::iter::once(&"nic").chain(words);
            <NicCommandLine as clap::Parser>::try_parse_from(words).map(|own| own.nic)
        };
        assert_eq!(parse(&["--size", "9", "--masks", "2"]).map(|nic| nic.size).ok(), Some(9));
        for words in [["--size", "0"], ["--size", "1048577"], ["--masks", "0"], ["--key-bits", "0"]]
        {
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }

    #[test]
    fn ports_are_written_as_their_help_says() {
        let parse = |text: &str| text.parse::<PortArgument>().map(|port| (port.number, port.spec));
        let device =
            |name: &str| PortSpec::AfPacket { device: name.to_owned(), mtu: None, rx_slots: None };
        assert_eq!(parse("1=eth0"), Ok((1, device("eth0"))));
        assert_eq!(parse("2=null"), Ok((2, PortSpec::Null)));
        assert_eq!(
            parse("3=tap:t0"),
            Ok((
                3,
                PortSpec::Tap { device: "t0".to_owned(), settings: tap::TapSettings::default() }
            ))
        );
        let pcap = PortSpec::Pcap { rx: None, tx: Some("out".into()), repeat: Repeat::Once };
        assert_eq!(parse("4=pcap::out"), Ok((4, pcap)));
        assert_eq!(parse("eth0"), Err(PortArgumentError::Form));
        assert_eq!(parse("0=eth0"), Err(PortArgumentError::Number));
        assert_eq!(parse("65280=eth0"), Err(PortArgumentError::Number));
        assert_eq!(parse("1="), Err(PortArgumentError::Device));
        assert_eq!(parse("1=usb:0"), Err(PortArgumentError::Device));
    }
}

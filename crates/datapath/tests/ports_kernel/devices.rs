//! Tests addresses and names of devices, and devices that other programs use.

use std::{fs, time::Instant};

use shunt_datapath::{
    PortError,
    port::{DeviceReading, PortSpec, af_xdp::XdpMode, open, tap::TapSettings},
};

use crate::{close, frames::LOST, in_namespace, ip, packet_port, run_ip, tap_port};

/// The address that the tests set on a device.
const MAC: [u8; 6] = [0x02, 0x11, 0x22, 0x33, 0x44, 0x55];

/// Returns an attribute of a device in the network namespace of this thread.
fn attribute(device: &str, name: &str) -> String {
    let output = run_ip(&format!("-o link show {device}"));
    let shown = String::from_utf8_lossy(&output.stdout);
    let mut words = shown.split_whitespace().skip_while(|word| *word != name);
    words.nth(1).unwrap_or_default().to_owned()
}

fn tap_with(settings: TapSettings) -> Result<Box<dyn shunt_datapath::port::Port>, PortError> {
    open(&PortSpec::Tap { device: "t0".to_owned(), settings }, 0)
}

#[test]
fn a_tap_gets_its_address_and_mtu() {
    in_namespace(|| {
        let settings = TapSettings { mac: Some(MAC), mtu: Some(9000), persistent: false };
        let port = tap_with(settings).unwrap();
        assert_eq!(port.mac(), MAC);
        assert_eq!(attribute("t0", "link/ether"), "02:11:22:33:44:55");
        assert_eq!(attribute("t0", "mtu"), "9000");
        close(port);
        assert_eq!(attribute("t0", "mtu"), "", "the TAP is gone");
    });
}

#[test]
fn a_persistent_tap_stays_until_it_is_removed() {
    in_namespace(|| {
        let settings = TapSettings { persistent: true, ..TapSettings::default() };
        close(tap_with(settings).unwrap());
        ip("link set t0 address 02:00:00:00:00:07");
        let port = tap_with(settings).unwrap();
        assert_eq!(port.mac(), [2, 0, 0, 0, 0, 7], "the device is the same");
        port.remove_device().unwrap();
        close(port);
        assert_eq!(attribute("t0", "mtu"), "");
    });
}

/// A device of an administrator keeps its queue discipline.
#[test]
fn only_a_new_tap_has_no_queue_discipline() {
    in_namespace(|| {
        ip("tuntap add t1 mode tap multi_queue");
        let (new, own) = (tap_port("t0"), tap_port("t1"));
        assert_eq!(attribute("t0", "qdisc"), "noqueue");
        let kept = attribute("t1", "qdisc");
        assert!(!kept.is_empty() && kept != "noqueue", "{kept}");
        close((new, own));
    });
}

#[test]
fn the_mtu_of_a_device_is_set() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        let spec = PortSpec::AfPacket { device: "a0".to_owned(), mtu: Some(1400), rx_slots: None };
        let port = open(&spec, 0).unwrap();
        assert_eq!(attribute("a0", "mtu"), "1400");
        close(port);
        let spec = PortSpec::AfPacket { device: "a0".to_owned(), mtu: Some(1), rx_slots: None };
        close(open(&spec, 0).unwrap());
        assert_eq!(attribute("a0", "mtu"), "1400", "a device keeps its MTU if it refuses another");
    });
}

#[test]
fn a_device_in_use_names_its_user() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        let first = packet_port("a0");
        let again =
            || open(&PortSpec::AfPacket { device: "a0".to_owned(), mtu: None, rx_slots: None }, 0);
        let Err(error) = again() else { panic!("two ports have one device") };
        let expected = "a0 belongs to another port of this shuntd";
        assert!(error.to_string().starts_with(expected), "{error}");
        // A device with a new name stays claimed.
        ip("link set a0 name a1");
        let renamed =
            open(&PortSpec::AfPacket { device: "a1".to_owned(), mtu: None, rx_slots: None }, 0);
        assert!(matches!(renamed, Err(PortError::Claimed { .. })));
        ip("link set a1 name a0");
        close(first);
        assert!(again().is_ok(), "the claim ends with the port");
    });
}

#[expect(clippy::print_stderr, reason = "a skipped test prints that it is skipped")]
#[test]
fn a_member_of_a_bridge_is_refused() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        if !run_ip("link add lan0 type bridge").status.success() {
            eprintln!("SKIPPED: this kernel has no bridges");
            return;
        }
        ip("link set a0 master lan0");
        // `/sys` of this process may show another network namespace.
        if fs::read_to_string("/sys/class/net/a0/ifindex").is_err() {
            eprintln!("SKIPPED: /sys shows another network namespace");
            return;
        }
        let Err(error) =
            open(&PortSpec::AfPacket { device: "a0".to_owned(), mtu: None, rx_slots: None }, 0)
        else {
            panic!("a member of a bridge was attached");
        };
        assert!(error.to_string().contains("a0 is a member of lan0"), "{error}");
    });
}

/// A TUN device has packets without Ethernet headers.
#[test]
fn a_device_without_ethernet_is_refused() {
    in_namespace(|| {
        ip("tuntap add n0 mode tun multi_queue");
        let device = || "n0".to_owned();
        let specs = [
            PortSpec::AfPacket { device: device(), mtu: None, rx_slots: None },
            PortSpec::AfXdp {
                device: device(),
                mtu: None,
                mode: XdpMode::BestEffort,
                busy_poll_us: 0,
            },
            PortSpec::Tap { device: device(), settings: TapSettings::default() },
        ];
        for spec in specs {
            let Err(error) = open(&spec, 0) else { panic!("a TUN device was attached: {spec:?}") };
            let PortError::NotEthernet { link_type, .. } = &error else { panic!("{error:?}") };
            assert_eq!(*link_type, 65534);
            assert!(
                error.to_string().contains("but a port needs the link type 1 or 772"),
                "{error}"
            );
        }
        close(packet_port("lo"));
    });
}

#[test]
fn a_removed_device_has_vanished() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link add a1 type veth peer name b1");
        let xdp = PortSpec::AfXdp {
            device: "a1".to_owned(),
            mtu: None,
            mode: XdpMode::BestEffort,
            busy_poll_us: 0,
        };
        let ports = [packet_port("a0"), open(&xdp, 0).unwrap(), tap_port("t0")];
        assert!(ports.iter().all(|port| port.lost().is_none()));
        for device in ["a0", "a1", "t0"] {
            ip(&format!("link del {device}"));
        }
        for port in ports {
            assert_eq!(port.lost().as_deref(), Some("the device has vanished"));
        }
    });
}

/// A device may have further names, and a port may use any of them.
#[test]
fn a_port_keeps_device_under_second_name() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        ip("link property add dev a0 altname second");
        let port = packet_port("second");
        let reader = port.device_reader().unwrap();
        let lost = || [port.lost(), reader.read(&DeviceReading::default()).lost];
        assert_eq!(lost(), [None, None]);
        ip("link set a0 name a1");
        assert_eq!(lost(), [None, None], "the second name stays");
        ip("link property del dev a1 altname second");
        let reason = Some("the device a1 no longer has the name second".to_owned());
        assert_eq!(lost(), [reason.clone(), reason]);
    });
}

#[test]
fn a_renamed_device_is_lost() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        let (veth, tap) = (packet_port("a0"), tap_port("t0"));
        assert_eq!((veth.lost(), tap.lost()), (None, None));
        ip("link set t0 down");
        ip("link set a0 name a1");
        ip("link set t0 name t1");
        assert_eq!(veth.lost().as_deref(), Some("the device a0 was renamed to a1"));
        assert_eq!(tap.lost().as_deref(), Some("the device t0 was renamed to t1"));
    });
}

#[test]
fn another_kind_of_device_is_no_tap() {
    in_namespace(|| {
        ip("link add a0 type veth peer name b0");
        for device in ["a0", "lo"] {
            let device = device.to_owned();
            let settings = TapSettings::default();
            let error = open(&PortSpec::Tap { device: device.clone(), settings }, 0).err();
            let expected = format!(
                "{device} exists, but is not a TAP device: choose another name for the TAP \
                 device, or attach {device} with type af_packet"
            );
            assert_eq!(error.map(|error| error.to_string()), Some(expected));
        }
    });
}

/// Another program, such as a hypervisor, holds a queue of a TAP.
///
/// A second queue would take packets from that program.
#[test]
#[expect(clippy::disallowed_methods, reason = "a real kernel takes real time")]
fn a_tap_of_another_program_is_refused() {
    in_namespace(|| {
        ip("tuntap add t0 mode tap multi_queue");
        // A queue without its port counts as held by another program.
        let queues = tap_port("t0").split(1).unwrap();
        let spec = PortSpec::Tap { device: "t0".to_owned(), settings: TapSettings::default() };
        // Between fork and exec, a child process of another test also holds the claim of the port.
        let start = Instant::now();
        loop {
            match open(&spec, 0) {
                Ok(_) => panic!("a held TAP was opened"),
                Err(PortError::InUse { .. }) => break,
                Err(error) => assert!(start.elapsed() < LOST, "another program holds it: {error}"),
            }
            // Waits for the child processes of other tests.
            close(());
        }
        close(queues);
        assert!(open(&spec, 0).is_ok(), "nobody holds it");
    });
}

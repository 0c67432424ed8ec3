//! Connections with TLS: `ovs-ofctl` and `curl` as clients, and switches that connect.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use shunt_tests::daemon::{Daemon, error_text, output, text, wait_until};
use tempfile::TempDir;

use crate::vsctl::DaemonFixture;

/// A folder with a CA certificate, and keys and certificates of this CA.
pub(crate) struct Authority(TempDir);

impl Authority {
    /// Creates an authority with the keys and certificates `switch` and `controller`.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut parameters = CertificateParams::new(Vec::new()).expect("parameters");
        // Two certificates with the same name look like one self-signed certificate.
        parameters.distinguished_name.push(DnType::CommonName, "Test CA");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(parameters, key).expect("a CA certificate");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file");
        for name in ["switch", "controller"] {
            let key = KeyPair::generate().expect("a key");
            let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]);
            let mut parameters = parameters.expect("parameters");
            parameters.distinguished_name.push(DnType::CommonName, name);
            let certificate = parameters.signed_by(&key, &issuer).expect("a certificate");
            fs::write(folder.path().join(format!("{name}.key")), key.serialize_pem())
                .expect("a file");
            fs::write(folder.path().join(format!("{name}.pem")), certificate.pem())
                .expect("a file");
        }
        Self(folder)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the section `[tls]` of a switch.
    pub(crate) fn section(&self) -> String {
        let [key, certificate, ca] =
            ["switch.key", "switch.pem", "ca.pem"].map(|name| self.path(name));
        format!(
            "[tls]\nprivate_key = {key:?}\ncertificate = {certificate:?}\nca_certificate = {ca:?}\n"
        )
    }

    /// Runs `ovs-ofctl show` at an address,
    /// as a controller with a certificate of this authority.
    fn show(&self, address: &str) -> Output {
        let option = |name: &str, file: &str| format!("--{name}={}", self.path(file).display());
        let mut command = Command::new("ovs-ofctl");
        command.args(["-O", "OpenFlow13", "--timeout=10"]);
        command.arg(option("private-key", "controller.key"));
        command.arg(option("certificate", "controller.pem"));
        command.arg(option("ca-cert", "ca.pem"));
        output(command.args(["show", address]))
    }
}

/// Returns a free TCP port of the loopback address.
fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}

#[test]
fn ovs_ofctl_needs_a_certificate_of_the_authority() {
    let (ours, theirs, port) = (Authority::new(), Authority::new(), free_port());
    let bridge = format!("[[bridge]]\nname = \"br0\"\nlisten = [\"pssl:{port}:127.0.0.1\"]\n");
    let daemon = Daemon::start(&(ours.section() + &bridge));
    let address = format!("ssl:127.0.0.1:{port}");
    let shown = text(&ours.show(&address));
    assert!(shown.contains("OFPT_FEATURES_REPLY"), "{shown}");
    error_text(&theirs.show(&address));
    // Without TLS, no client gets an answer.
    let plain = format!("tcp:127.0.0.1:{port}");
    let mut command = Command::new("ovs-ofctl");
    error_text(&output(command.args(["-O", "OpenFlow13", "--timeout=10", "show", &plain])));
    assert!(wait_until(|| daemon.log().contains("the TLS handshake failed")), "{}", daemon.log());
    // The switch still answers.
    text(&ours.show(&address));
}

#[test]
fn a_switch_trusts_only_controllers_of_its_authority() {
    let (ours, theirs, port) = (Authority::new(), Authority::new(), free_port());
    let listener = format!("[[bridge]]\nname = \"br1\"\nlisten = [\"pssl:{port}:127.0.0.1\"]\n");
    let _controller = Daemon::start(&(ours.section() + &listener));
    let caller = format!("[[bridge]]\nname = \"br0\"\ncontrollers = [\"ssl:127.0.0.1:{port}\"]\n");
    let friend = Daemon::start(&(ours.section() + &caller));
    assert!(wait_until(|| friend.log().contains("controller connected")), "{}", friend.log());
    let stranger = Daemon::start(&(theirs.section() + &caller));
    let shows = |wanted: &str| text(&stranger.shuntctl(&["show"])).contains(wanted);
    assert!(
        wait_until(|| shows("TLS handshake failed")),
        "{}",
        text(&stranger.shuntctl(&["show"]))
    );
    assert!(!stranger.log().contains("controller connected"), "{}", stranger.log());
}

#[test]
fn set_ssl_takes_effect_at_the_next_attempt() {
    for fixture in DaemonFixture::both("tls") {
        let (authority, daemon) = (Authority::new(), fixture.start());
        fixture.namespace.run("ip", &["link", "set", "lo", "up"]);
        fixture.done("add-br br0");
        fixture.done("set-controller br0 pssl:6699:127.0.0.1 -- add-br br1");
        fixture.done("set-controller br1 ssl:127.0.0.1:6699");
        let state = || {
            fixture
                .done("--columns=status,is_connected find Controller target=\"ssl:127.0.0.1:6699\"")
        };
        assert!(wait_until(|| state().contains("no private key")), "{}", state());
        let listener = || {
            let target = "pssl:6699:127.0.0.1";
            fixture.done(&format!("--columns=status find Controller target=\"{target}\""))
        };
        let has_problem = || listener().contains("last_error=\"TLS has no private key");
        assert!(wait_until(has_problem), "{}", listener());
        assert!(listener().contains("LISTENING"), "{}", listener());
        let files = ["switch.key", "switch.pem", "ca.pem"].map(|name| authority.path(name));
        let files = files.map(|file| file.display().to_string()).join(" ");
        fixture.done(&format!("set-ssl {files}"));
        assert!(
            wait_until(|| daemon
                .log()
                .contains("ovsdb: the TLS files of the row of SSL are in force")),
            "{}",
            daemon.log()
        );
        assert!(wait_until(|| state().contains("is_connected        : true")), "{}", state());
        assert!(wait_until(|| !has_problem()), "{}", listener());
        // The row has precedence over a section [tls] that is loaded later.
        let file = daemon.run_dir().join("shunt.toml");
        let without = fs::read_to_string(&file).expect("the configuration");
        fs::write(&file, format!("{without}{}", authority.section())).expect("a file");
        let report = text(&daemon.shuntctl(&["reload"]));
        let expected = format!("tls.private_key={}, ", authority.path("switch.key").display());
        assert!(report.starts_with(&expected), "{report}");
        assert!(report.contains("not in force for controllers and managers"), "{report}");
        fs::write(&file, without).expect("a file");
        text(&daemon.shuntctl(&["reload"]));
        fixture.done("del-ssl");
        assert!(
            wait_until(|| daemon.log().contains("ovsdb: the row of SSL was removed")),
            "{}",
            daemon.log()
        );
    }
}

#[test]
fn the_http_server_speaks_tls() {
    let (authority, port) = (Authority::new(), free_port());
    let [key, certificate] = ["switch.key", "switch.pem"].map(|name| authority.path(name));
    let http = format!(
        "[http]\nlisten = \"127.0.0.1:{port}\"\nprivate_key = {key:?}\ncertificate = {certificate:?}\n"
    );
    let daemon = Daemon::start(&http);
    let fetch = |address: String, ca: &Path| {
        let mut command = Command::new("curl");
        command.args(["--silent", "--show-error", "--max-time", "10", "--cacert"]).arg(ca);
        output(command.arg(address))
    };
    let page = format!("https://127.0.0.1:{port}/healthz");
    assert_eq!(text(&fetch(page.clone(), &authority.path("ca.pem"))), "ok\n");
    error_text(&fetch(page, &Authority::new().path("ca.pem")));
    error_text(&fetch(format!("http://127.0.0.1:{port}/healthz"), &authority.path("ca.pem")));
    assert!(daemon.log().contains("http: ready"), "{}", daemon.log());
}

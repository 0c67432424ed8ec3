//! The embedded NIC with third-party P4Runtime clients: conformance cases, and p4runtime-shell.

#![expect(clippy::panic, reason = "a test that cannot be set up has failed")]

use std::{
    env, fs,
    process::{Child, Command, Stdio},
};

use shunt_tests::{
    daemon::{binary, output, until},
    namespace::skipped,
    repository::root,
};

/// Variable with the Python that has p4runtime-shell; `cargo xtask test` sets it.
const PYTHON: &str = "SHUNT_P4RUNTIME_PYTHON";

/// A standalone NIC, which is stopped on drop.
struct Nic {
    process: Child,
    folder: tempfile::TempDir,
}

impl Nic {
    fn start(arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let log = fs::File::create(folder.path().join("log")).map(Stdio::from);
        let mut command = Command::new(binary("shuntd"));
        command.current_dir(folder.path()).args(["nic", "--listen", "127.0.0.1:0"]);
        command.args(arguments).stderr(log.unwrap_or_else(|error| panic!("{error}")));
        let process = command.spawn().unwrap_or_else(|error| panic!("shuntd: {error}"));
        let nic = Self { process, folder };
        assert!(until(|| nic.find_address().is_some()), "no NIC: {}", nic.log());
        nic
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Returns the listening address of the NIC.
    fn find_address(&self) -> Option<String> {
        let log = self.log();
        let (_, rest) = log.split_once("127.0.0.1:")?;
        let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
        Some(format!("127.0.0.1:{port}"))
    }
}

impl Drop for Nic {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Runs a tool against the NIC and returns its output.
///
/// Without the Python for the tool, returns `None`.
fn run(tool: &str, nic: &Nic) -> Option<String> {
    let Some(python) = env::var_os(PYTHON) else {
        skipped(&format!("{PYTHON} is not set; `cargo xtask test p4runtime` sets it"));
        return None;
    };
    let mut command = Command::new(python);
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.arg(root().join("tests/tools").join(tool)).arg(nic.find_address().unwrap_or_default());
    command.arg(root().join("p4/gigaflow.p4info.txtpb")).arg(root().join("p4/gigaflow.json"));
    let answer = output(&mut command);
    let [said, error_text] =
        [&answer.stdout, &answer.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(answer.status.success(), "{said}{error_text}\n{}", nic.log());
    Some(said)
}

#[test]
fn conformance_cases_pass() {
    let nic = Nic::start(&["--port", "1=null", "--port", "2=null"]);
    let Some(said) = run("p4runtime_cases.py", &nic) else { return };
    let passed = said.lines().filter(|line| line.starts_with("ok ")).count();
    assert_eq!(passed, CASES, "cases passed:\n{said}");
    assert!(said.contains(&format!("\n{passed} passed, 0 failed")), "{said}");
}

/// Number of cases, so that a group that ends early does not pass.
const CASES: usize = 265;

#[test]
fn p4runtime_shell_pushes_the_pipeline_and_drives_it() {
    let nic = Nic::start(&["--port", "1=null", "--port", "2=pcap::out.pcap"]);
    let Some(_) = run("p4runtime_shell_client.py", &nic) else { return };
    // The file contains the sent packets: one packet of the controller, and three packets that hit
    // an entry.
    let sent = || fs::read(nic.folder.path().join("out.pcap")).unwrap_or_default();
    let count = |bytes: &[u8], wanted: &[u8]| {
        bytes.windows(wanted.len()).filter(|window| *window == wanted).count()
    };
    assert!(until(|| count(&sent(), b"direct") == 1), "the packet of the controller");
    let hit = [0x02, 0, 0, 0, 0, 0x01, 0x08, 0x00, 0x45];
    assert!(until(|| count(&sent(), &hit) == 3), "the packets that hit");
}

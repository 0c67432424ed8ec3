//! Compares the instruction counts of the kernels with `icount.toml`.
//!
//! The counts come from callgrind. The counts do not depend on the load of the machine, and show
//! neither cache misses nor contention. A count that grew by more than 1 % fails. `cargo xtask test
//! icount --bless` writes the counts of this build.
//!
//! The counts do not depend on the processor either. Shunt is built for the x86-64 baseline and
//! does not detect CPU features at run time. The C library detects CPU features for copying,
//! filling and comparing bytes. So the test disables this detection, and checks the names of the
//! functions that ran. The allocator differs between releases of the C library, so counts are valid
//! for one release, which the file names.

#![expect(clippy::unwrap_used, reason = "a test that cannot run fails")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::Command,
};

/// Relative growth of a count above which the test fails.
const TOLERANCE: f64 = 0.01;

/// Two numbers of calls. The difference of the counts excludes start-up.
///
/// Both numbers are whole rounds of the 256 flows that the kernels cycle through.
const CALLS: [u32; 2] = [1_024, 3_072];

/// The file with the committed counts.
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../icount.toml");

/// The comment at the top of that file.
const HEAD: &str =
    "# Instructions per call of each kernel, by callgrind, in the release profile, on any x86-64.
# Written by `cargo xtask test icount --bless`; growth of more than 1 % fails the gate.
";

/// Restricts glibc to functions that every x86-64 can run.
const PLAIN: &str =
    "glibc.cpu.hwcaps=-AVX2,-AVX,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM,-SSSE3,-SSE4_1,-SSE4_2";

/// Substrings of function names that need newer processors.
const NOT_PLAIN: [&str; 5] = ["avx", "evex", "_erms", "ssse3", "sse4"];

/// Result of one run of the program under callgrind.
struct Profile {
    instructions: f64,
    /// Functions that ran and need a newer processor.
    not_plain: BTreeSet<String>,
}

/// Calls a kernel under callgrind.
///
/// The program path and the environment are in the memory of the program, so both are fixed.
fn profile(kernel: &str, calls: u32) -> Profile {
    let program = Path::new(env!("CARGO_BIN_EXE_kernels"));
    let file = format!("icount.{}.{kernel}", std::process::id());
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
    let mut command = Command::new("valgrind");
    command.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
    command.env("GLIBC_TUNABLES", PLAIN).current_dir(program.parent().unwrap());
    command.args(["--tool=callgrind", &format!("--callgrind-out-file={}", file.display())]);
    command.arg("./kernels").args(["call", kernel, &calls.to_string()]);
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let written = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let collected = text.lines().find_map(|line| line.split_once("Collected :"));
    let instructions = collected.and_then(|(_, count)| count.trim().parse().ok()).unwrap();
    Profile { instructions, not_plain: not_plain(&written) }
}

/// Returns the processor-specific functions in a callgrind file.
///
/// The file defines each name once, as `fn=(7) name`.
fn not_plain(written: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let function = line.strip_prefix("fn=").or_else(|| line.strip_prefix("cfn="))?;
        function.split_once(' ').map(|(_, name)| name.to_owned())
    };
    let is_named = |name: &String| NOT_PLAIN.iter().any(|word| name.contains(word));
    written.lines().filter_map(name).filter(is_named).collect()
}

/// Returns the instructions per call of each kernel.
///
/// # Errors
///
/// With the processor-specific functions that ran.
fn counts() -> Result<BTreeMap<String, f64>, BTreeSet<String>> {
    let names = Command::new(env!("CARGO_BIN_EXE_kernels")).arg("names").output().unwrap();
    let names = String::from_utf8(names.stdout).unwrap();
    let count = |name: &str| {
        let [few, many] = CALLS.map(|calls| profile(name, calls));
        if many.not_plain.is_empty() {
            let calls = f64::from(CALLS[1] - CALLS[0]);
            Ok((name.to_owned(), (many.instructions - few.instructions) / calls))
        } else {
            Err(many.not_plain)
        }
    };
    names.lines().map(count).collect()
}

/// Returns the running C library, such as `glibc 2.36`.
fn libc() -> String {
    let output = Command::new("getconf").arg("GNU_LIBC_VERSION").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.ok().filter(|text| !text.is_empty()).unwrap_or_else(|| "an unknown one".to_owned())
}

/// Returns the C library and the counts of the committed file.
fn read_committed() -> (String, BTreeMap<String, f64>) {
    let text = fs::read_to_string(PAGE).unwrap_or_default();
    let pairs = text.lines().filter_map(|line| line.split_once(" = "));
    let libc = pairs.clone().find(|(name, _)| *name == "libc").map_or("", |(_, libc)| libc);
    let counts = pairs.filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)));
    (libc.trim_matches('"').to_owned(), counts.collect())
}

/// Returns why counts of this machine are not comparable with the committed counts.
fn reason_to_skip() -> Option<String> {
    if cfg!(not(all(target_arch = "x86_64", target_env = "gnu"))) {
        return Some("instruction counts need x86-64 with glibc".to_owned());
    }
    let valgrind = Command::new("valgrind").arg("--version").output();
    valgrind.err().map(|_| "valgrind is not installed".to_owned())
}

/// Prints which part was not tested, although the test passes.
fn print_skip(what: &str) {
    // Without standard error, no message can be printed.
    let _ = writeln!(io::stderr(), "{what}");
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "counts need the release profile: run `cargo xtask test \
                                       icount`"
)]
fn no_hot_function_needs_more_instructions() {
    if let Some(reason_to_skip) = reason_to_skip() {
        return print_skip(&format!("SKIPPED: {reason_to_skip}"));
    }
    let (libc, (libc_then, committed)) = (libc(), read_committed());
    let is_blessed = std::env::var_os("SHUNT_BLESS").is_some();
    if libc != libc_then && !is_blessed {
        return print_skip(&format!(
            "SKIPPED: the committed counts are for {libc_then}, and this machine \
                             has {libc}"
        ));
    }
    let counts = match counts() {
        Ok(counts) => counts,
        Err(names) => {
            return print_skip(&format!("SKIPPED: processor-specific functions ran: {names:?}"));
        }
    };
    if is_blessed {
        let lines = counts.iter().map(|(name, count)| format!("{name} = {count:.1}\n"));
        let lines: String = lines.collect();
        fs::write(PAGE, format!("{HEAD}libc = \"{libc}\"\n\n{lines}")).unwrap();
        return;
    }
    let names: Vec<&String> = counts.keys().collect();
    assert_eq!(names, committed.keys().collect::<Vec<_>>(), "icount.toml has every kernel");
    let changed = |is_changed: fn(f64, f64) -> bool| {
        let changed = counts.iter().filter(|(name, count)| is_changed(**count, committed[*name]));
        let words =
            changed.map(|(name, count)| format!("{name}: {count:.1}, was {:.1}", committed[name]));
        words.collect::<Vec<_>>()
    };
    let shrunk = changed(|count, before| count < before * (1.0 - TOLERANCE));
    if !shrunk.is_empty() {
        print_skip(&format!("fewer instructions than before: {shrunk:?}; keep them with --bless"));
    }
    let grown = changed(|count, before| count > before * (1.0 + TOLERANCE));
    let advice = "if the change is worth it: cargo xtask test icount --bless";
    assert!(grown.is_empty(), "more instructions than before: {grown:?}; {advice}");
}

#[test]
fn processor_specific_functions_are_found_by_name() {
    let written = "fl=(1) x.S\nfn=(3) __memcpy_avx_unaligned_erms\n16 2\ncfn=(4) main\ncfn=(4)\n\
                   cfn=(5) memchr::arch::x86_64::avx2::find\nfn=(6) shunt::terms\n";
    let found: Vec<String> = not_plain(written).into_iter().collect();
    assert_eq!(found, ["__memcpy_avx_unaligned_erms", "memchr::arch::x86_64::avx2::find"]);
}

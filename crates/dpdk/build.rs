//! Compiles the C shim against the installed libdpdk; does nothing without the feature `dpdk`.

/// Compiles the shim if the feature `dpdk` is enabled.
fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=c/shim.c");
    #[cfg(feature = "dpdk")]
    shim::compile();
}

#[cfg(feature = "dpdk")]
mod shim {
    use std::{
        env,
        path::{Path, PathBuf},
        process::Command,
    };

    /// The oldest release of DPDK that the shim supports.
    const OLDEST: &str = "22.11";

    /// Finds libdpdk and compiles the shim.
    pub(super) fn compile() {
        let library = match pkg_config::Config::new().atleast_version(OLDEST).probe("libdpdk") {
            Ok(library) => library,
            Err(error) => {
                println!(
                    "cargo::error=the feature `dpdk` needs libdpdk {OLDEST} or later: run \
                     `apt-get install libdpdk-dev pkg-config`, or build without the feature"
                );
                for line in error.to_string().lines().filter(|line| !line.is_empty()) {
                    println!("cargo::warning={line}");
                }
                return;
            }
        };
        watch(&library.include_paths);
        let mut build = cc::Build::new();
        build.file("c/shim.c").opt_level(3).extra_warnings(true);
        // As system headers, the headers of DPDK cause no warnings.
        for path in &library.include_paths {
            build.flag("-isystem").flag(path);
        }
        for flag in other_flags() {
            build.flag(flag);
        }
        build.compile("shunt_dpdk");
    }

    /// Makes Cargo compile the shim again when another libdpdk is installed.
    ///
    /// Files of a package keep their old time stamps, but folders get new time stamps when files
    /// are installed. So the build watches the folders of headers, not single headers.
    fn watch(include_paths: &[PathBuf]) {
        let is_own = |path: &&PathBuf| {
            ["rte_ethdev.h", "rte_build_config.h"].iter().any(|header| path.join(header).exists())
        };
        for path in include_paths.iter().filter(is_own) {
            println!("cargo::rerun-if-changed={}", path.display());
        }
        if let Ok(folder) = pkg_config::get_variable("libdpdk", "pcfiledir") {
            let file = Path::new(&folder).join("libdpdk.pc");
            println!("cargo::rerun-if-changed={}", file.display());
        }
    }

    /// Returns the compiler flags that libdpdk requires.
    ///
    /// The flags contain the configuration of DPDK, and the instruction set of its headers.
    fn other_flags() -> Vec<String> {
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let printed = Command::new(program).args(["--cflags-only-other", "libdpdk"]).output();
        let printed = printed.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&printed).split_whitespace().map(str::to_owned).collect()
    }
}

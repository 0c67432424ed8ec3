//! Compiles the C shim against the installed libdpdk; does nothing without the feature `dpdk`.

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

    /// The oldest release that the shim supports.
    const OLDEST: &str = "22.11";

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
        // The headers of DPDK do not compile without warnings.
        for path in &library.include_paths {
            build.flag("-isystem").flag(path);
        }
        for flag in other_flags() {
            build.flag(flag);
        }
        build.compile("shunt_dpdk");
    }

    /// Compiles the shim again when another libdpdk is installed.
    ///
    /// A package keeps the old times of its files, but the folders that get them are new. So the folders of
    /// headers are watched, not single headers.
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

    /// Returns the flags that libdpdk wants.
    ///
    /// They are its configuration, and the instruction set of its headers.
    fn other_flags() -> Vec<String> {
        let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned());
        let printed = Command::new(program).args(["--cflags-only-other", "libdpdk"]).output();
        let printed = printed.map(|output| output.stdout).unwrap_or_default();
        String::from_utf8_lossy(&printed).split_whitespace().map(str::to_owned).collect()
    }
}

//! Writes the P4Info and the bmv2 program of the LTM cache into a folder. `cargo xtask p4` runs the
//! example.

use std::{env, error::Error, fs, path::PathBuf};

use shunt_p4runtime::program::{Program, p4info_text};

/// Writes the P4Info and bmv2 files to a folder. Fails if a write fails.
fn main() -> Result<(), Box<dyn Error>> {
    let folder: PathBuf =
        env::args_os().nth(1).ok_or("no folder: pass it as the first argument")?.into();
    let program = Program::default();
    fs::write(folder.join("gigaflow.p4info.txtpb"), p4info_text(&program.p4info()))?;
    let json = serde_json::to_string_pretty(&program.bmv2_json())?;
    fs::write(folder.join("gigaflow.json"), json + "\n")?;
    Ok(())
}

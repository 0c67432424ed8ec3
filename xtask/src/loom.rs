//! `cargo xtask loom`: the concurrency models, under every interleaving that loom can explore.

use crate::shell::{TaskError, cargo, root, run};

/// Runs the models with a separate target folder,
/// because `--cfg loom` rebuilds everything.
pub(crate) fn run_command(_: &[String]) -> Result<(), TaskError> {
    // The other tests of nuevomatch, pipeline and memif have no models.
    let models = [
        &["shunt-datapath", "--lib"][..],
        &["shunt-nuevomatch", "--lib", "live::double_buffer"],
        &["shunt-pipeline", "--lib", "token_bucket::models"],
        &["shunt-memif", "--lib", "doorbell::models"],
    ];
    models.into_iter().try_for_each(|model| {
        let arguments = [&["test", "--release", "--package"], model].concat();
        run(cargo(&arguments)
            .env("RUSTFLAGS", "--cfg loom")
            .env("LOOM_MAX_PREEMPTIONS", "3")
            .env("CARGO_TARGET_DIR", root().join("target/loom")))
    })
}

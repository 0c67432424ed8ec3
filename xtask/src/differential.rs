//! `cargo xtask differential`: generated rules and frames, replayed to Shunt and to Open vSwitch.

use crate::shell::{TaskError, cargo, run, step};

/// Seeds of the generated cases without `--seeds`.
const SEEDS: &str = "0..16";

/// Environment variables of the suite, and the option for each.
const OPTIONS: &[(&str, &str)] = &[
    ("--seeds", "SHUNT_SEEDS"),
    ("--kind", "SHUNT_KIND"),
    ("--cases", "SHUNT_CASES"),
    ("--record", "SHUNT_RECORD"),
];

/// Replays the cases of some seeds, or the cases of a file.
///
/// Without Open vSwitch, the command reports a skipped test.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), TaskError> {
    let variables = variables(arguments)?;
    step("Shunt compared with Open vSwitch", || {
        let test = ["test", "--quiet", "--package", "shunt-tests", "--test", "trace_cases"];
        let filter = ["--", "--nocapture", "cases_match_open_vswitch"];
        // If the user also sets a variable, the last value is used.
        run(cargo(&test).args(filter).env("SHUNT_SEEDS", SEEDS).envs(variables))
    })
}

/// Returns the environment variables that the options set.
fn variables(arguments: &[String]) -> Result<Vec<(&'static str, String)>, TaskError> {
    let pair = |pair: &[String]| {
        let [flag, value] = pair else { return None };
        let (_, variable) = OPTIONS.iter().find(|(option, _)| option == flag)?;
        Some((*variable, value.clone()))
    };
    let usage = "cargo xtask differential [--seeds FIRST..END] [--kind tables|normal|mirrors] \
                 [--cases FILE] [--record FILE]";
    arguments.chunks(2).map(pair).collect::<Option<_>>().ok_or_else(|| TaskError::new(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<(&'static str, String)>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        variables(&words).ok()
    }

    #[test]
    fn options_become_environment_variables() {
        assert_eq!(read(""), Some(Vec::new()));
        let seeds = vec![("SHUNT_SEEDS", "5..9".to_owned())];
        assert_eq!(read("--seeds 5..9"), Some(seeds));
        assert!(["--seeds", "--hours 1"].iter().all(|line| read(line).is_none()));
    }
}

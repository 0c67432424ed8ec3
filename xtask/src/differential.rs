//! `cargo xtask differential`: rules and frames that nobody has recorded, played to Shunt and to Open
//! vSwitch side by side.

use crate::shell::{Failure, cargo, run, step};

/// Seeds that are tried unless it is said which.
const SEEDS: &str = "0..16";

/// What the suite goes by, and the option that says it.
const OPTIONS: &[(&str, &str)] = &[
    ("--seeds", "SHUNT_SEEDS"),
    ("--kind", "SHUNT_KIND"),
    ("--cases", "SHUNT_CASES"),
    ("--record", "SHUNT_RECORD"),
];

/// Plays the cases of some seeds or of a file; without Open vSwitch it says that it is skipped.
pub(crate) fn run_command(arguments: &[String]) -> Result<(), Failure> {
    let variables = variables(arguments)?;
    step("Shunt and Open vSwitch, side by side", || {
        let test = ["test", "--quiet", "--package", "shunt-tests", "--test", "trace_cases"];
        let filter = ["--", "--nocapture", "cases_fare_as_in_open_vswitch"];
        // What is said last counts.
        run(cargo(&test).args(filter).env("SHUNT_SEEDS", SEEDS).envs(variables))
    })
}

/// What the options set.
fn variables(arguments: &[String]) -> Result<Vec<(&'static str, String)>, Failure> {
    let pair = |pair: &[String]| {
        let [flag, value] = pair else { return None };
        let (_, variable) = OPTIONS.iter().find(|(option, _)| option == flag)?;
        Some((*variable, value.clone()))
    };
    let usage = "cargo xtask differential [--seeds FIRST..END] [--kind tables|normal] \
                 [--cases FILE] [--record FILE]";
    arguments.chunks(2).map(pair).collect::<Option<_>>().ok_or_else(|| Failure::new(usage))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Vec<(&'static str, String)>> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        variables(&words).ok()
    }

    #[test]
    fn options_become_what_the_suite_goes_by() {
        assert_eq!(read(""), Some(Vec::new()));
        let seeds = vec![("SHUNT_SEEDS", "5..9".to_owned())];
        assert_eq!(read("--seeds 5..9"), Some(seeds));
        assert!(["--seeds", "--hours 1"].iter().all(|line| read(line).is_none()));
    }
}

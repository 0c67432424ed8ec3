//! The command line of the experiments, which `cargo xtask bench` forwards.
//!
//! Experiments run in a separate network namespace, so that bridges and devices with equal names do
//! not collide and nothing is left over. The first process reads the command line and downloads
//! everything that the experiments need. The first process then starts this program again in a
//! namespace without network access.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use shunt_flow::text::nearest_of;

use super::{
    Choice, EXPERIMENTS, Experiment, Form, OF_DBSP, Progress, Report, Run, WITH_CIRCUITS, find,
    interrupt, table,
};
use crate::{experiments::regress, switch::is_root};

/// Exit code of the second process if it skipped its experiment.
const SKIPPED_CODE: u8 = 77;

/// The end of a run without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunEnd {
    /// Everything was measured.
    Measured,
    /// The experiment cannot run here.
    Skipped,
}

/// Environment variable that marks the second process.
const INSIDE_VARIABLE: &str = "SHUNT_BENCH_INSIDE";

const USAGE: &str = "usage: cargo xtask bench NAME.. [--quick] [--dbsp] [--dpdk] [options]
       cargo xtask bench --all [--shard I/N] [--quick] [--dbsp] [--dpdk]
       cargo xtask bench --list
       cargo xtask bench regress BASE [--quick]
    --quick       a short run of about a minute each, which does not write docs/results
    --shard I/N   run every Nth of all experiments, starting with the Ith
    --dbsp        include the eviction engines that run as dbsp circuits (builds dbsp)
    --dpdk        build the daemon with DPDK, which ports-dpdk needs (installs libdpdk)
";

/// Runs the experiments that the command line selects.
#[must_use]
pub fn run_command() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run_words(&arguments) {
        Ok(RunEnd::Measured) => ExitCode::SUCCESS,
        Ok(RunEnd::Skipped) => ExitCode::from(SKIPPED_CODE),
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the experiments that the words of a command line select.
fn run_words(words: &[String]) -> Result<RunEnd, String> {
    let has = |word: &str| words.iter().any(|other| other == word);
    if words.is_empty() || has("--help") || has("-h") {
        print!("{USAGE}\n{}", list());
        return Ok(RunEnd::Measured);
    }
    if has("--list") {
        print!("{}", list());
        return Ok(RunEnd::Measured);
    }
    let chosen = select_experiments(words)?;
    check_options(&chosen, words)?;
    if env::var_os(INSIDE_VARIABLE).is_none() {
        interrupt::watch("");
        chosen.iter().for_each(|one| one.map_or((), |experiment| (experiment.prepare)()));
        return run_all(&chosen, words).map(|()| RunEnd::Measured);
    }
    // A part has no results to write and ends immediately.
    if !has("--part") {
        interrupt::watch(interrupt::MEASURING);
    }
    let mut end = RunEnd::Measured;
    for one in chosen {
        match one {
            Some(experiment) if run_one(experiment, words)? == RunEnd::Skipped => {
                end = RunEnd::Skipped;
            }
            Some(_) => {}
            None => print!("{}", regress::run(&mut new_run(words)?)?),
        }
    }
    Ok(end)
}

/// Returns one line per experiment.
fn list() -> String {
    let line = |one: &Experiment| format!("  {:<19} {} ({})\n", one.name, one.what, one.source);
    let lines: String = EXPERIMENTS.iter().map(line).collect();
    let (alone, also) = (OF_DBSP.join(", "), WITH_CIRCUITS.join(", "));
    let without = format!("--dbsp adds {alone}, and more engines in {also}\n");
    if cfg!(feature = "dbsp") { lines } else { lines + &without }
}

/// Returns the selected experiments: all, a shard of all, or the named experiments.
fn select_experiments(words: &[String]) -> Result<Vec<Option<&'static Experiment>>, String> {
    let has = |word: &str| words.iter().any(|other| other == word);
    let is_named = words.first().is_some_and(|word| !word.starts_with('-'));
    match (has("--all"), is_named) {
        (true, true) => {
            Err("names and --all exclude each other: --all runs every experiment".to_owned())
        }
        (true, false) => shard(words),
        (false, _) if has("--shard") => {
            Err("--shard selects a part of all experiments: add --all".to_owned())
        }
        (false, _) => find_experiments(words),
    }
}

/// Runs experiments one after the other;
/// after a failure, the next experiment still runs.
///
/// `--all` skips the experiments that cannot run here, and names them at the end. A skipped
/// experiment that was named is a failure.
fn run_all(chosen: &[Option<&Experiment>], words: &[String]) -> Result<(), String> {
    let is_all = words.iter().any(|word| word == "--all");
    let (mut failures, mut skipped) = (Vec::new(), Vec::new());
    for one in chosen {
        let Err(failure) = end_of(name_of(*one), run_inside(*one, words), is_all, &mut skipped)
        else {
            continue;
        };
        if interrupt::is_interrupted() {
            return Err(format!("interrupted: {failure}"));
        }
        eprintln!("bench: {failure}");
        failures.push(failure);
    }
    if !skipped.is_empty() {
        let (count, names) = (skipped.len(), skipped.join(", "));
        eprintln!("bench: SKIPPED {count} of {}: {names}; the reasons are above", chosen.len());
    }
    match failures.len() {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} failed: {}", chosen.len(), failures.join("; "))),
    }
}

/// Returns the name of an experiment; `None` means the comparison of two builds.
fn name_of(one: Option<&Experiment>) -> &'static str {
    one.map_or("regress", |experiment| experiment.name)
}

/// Returns the result of an experiment, and adds a permitted skip to `skipped`.
fn end_of(
    name: &'static str,
    end: Result<RunEnd, String>,
    is_all: bool,
    skipped: &mut Vec<&'static str>,
) -> Result<(), String> {
    match end? {
        RunEnd::Measured => Ok(()),
        RunEnd::Skipped if is_all => {
            skipped.push(name);
            Ok(())
        }
        RunEnd::Skipped => Err(format!("{name} measured nothing: it was skipped")),
    }
}

/// Returns the named experiments; `None` means the comparison of two builds.
fn find_experiments(words: &[String]) -> Result<Vec<Option<&'static Experiment>>, String> {
    let names = words.iter().take_while(|word| !word.starts_with('-'));
    let names: Vec<&String> = names.collect();
    if names.first().is_some_and(|name| *name == "regress") {
        return Ok(vec![None]);
    }
    if names.is_empty() {
        return Err(format!("name an experiment:\n{}", list()));
    }
    names.into_iter().map(|name| find(name).map(Some)).collect()
}

/// Options of every experiment, and whether each option has a value.
const COMMON: [(&str, bool); 3] = [("--quick", false), ("--all", false), ("--shard", true)];
/// Option that the measuring processes pass to each other.
const PART_OPTION: &str = "--part";
/// Options of `bench regress` alone.
const OF_REGRESS: [&str; 2] = ["--base", "--base-name"];

/// Checks the options and their values against the selected experiments.
///
/// Otherwise, a run of an hour ignores a mistyped option.
fn check_options(chosen: &[Option<&Experiment>], words: &[String]) -> Result<(), String> {
    let choices: Vec<&Choice> = chosen.iter().flatten().flat_map(|one| one.options).collect();
    let is_regress = chosen.iter().any(Option::is_none);
    let own = OF_REGRESS.iter().filter(|_| is_regress).chain(choices.iter().map(|own| &own.option));
    let known: Vec<(&str, bool)> =
        COMMON.into_iter().chain(own.map(|option| (*option, true))).collect();
    let mut words = words.iter().skip_while(|word| !word.starts_with('-')).peekable();
    while let Some(word) = words.next() {
        let found = known.iter().find(|(name, _)| name == word).map(|(_, has_value)| *has_value);
        let Some(has_value) = found.or_else(|| (word == PART_OPTION).then_some(true)) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            return Err(no_such_option(word, &names));
        };
        if !has_value {
            continue;
        }
        let value = words.next_if(|value| !value.starts_with("--"));
        let value = value.ok_or_else(|| format!("{word} needs a value after it"))?;
        if let Some(choice) = choices.iter().find(|choice| choice.option == word) {
            choice.check(value)?;
        }
    }
    Ok(())
}

fn no_such_option(word: &str, known: &[&str]) -> String {
    if !word.starts_with('-') {
        return format!("`{word}` is not an option: put names before all options");
    }
    let advice = nearest_of(word, known.iter().copied()).map_or_else(
        || format!("choose from {}", known.join(", ")),
        |near| format!("did you mean `{near}`?"),
    );
    format!("unknown option {word}: {advice}")
}

/// Returns all experiments, or the experiments of one shard.
fn shard(words: &[String]) -> Result<Vec<Option<&'static Experiment>>, String> {
    let place = words.iter().position(|word| word == "--shard");
    let text = place.map(|place| words.get(place + 1).map_or("", String::as_str));
    let (index, count) = shard_numbers(text.unwrap_or("1/1"))?;
    let all = EXPERIMENTS.len();
    if count > all {
        return Err(format!("there are only {all} experiments, too few for {count} shards"));
    }
    let mine = EXPERIMENTS.iter().enumerate().filter(|(at, _)| at % count == index - 1);
    Ok(mine.map(|(_, experiment)| Some(experiment)).collect())
}

/// Parses `2/3`: the second of three shards.
fn shard_numbers(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(index, count)| {
        let (index, count) = (index.parse().ok()?, count.parse().ok()?);
        (0 < index && index <= count).then_some((index, count))
    });
    numbers.ok_or_else(|| {
        format!(
            "`{text}` is not a shard: write the second of three as \
                                   `--shard 2/3`"
        )
    })
}

/// Starts this program again for one experiment, without network access.
fn run_inside(one: Option<&Experiment>, words: &[String]) -> Result<RunEnd, String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = if is_root() {
        let mut command = Command::new("unshare");
        command.args(["--net", "--"]).arg(program);
        command
    } else {
        println!(
            "not root: without a network namespace there is no Open vSwitch and there are \
                  no devices"
        );
        Command::new(program)
    };
    let name = name_of(one);
    let status = command.arg(name).args(options_of_one(words)).env(INSIDE_VARIABLE, "1").status();
    let status = status.map_err(|error| format!("{name} did not start: {error}"))?;
    match status.code() {
        Some(0) => Ok(RunEnd::Measured),
        Some(code) if code == i32::from(SKIPPED_CODE) => Ok(RunEnd::Skipped),
        _ => Err(format!("{name} failed")),
    }
}

/// Returns the options except the options that select experiments.
fn options_of_one(words: &[String]) -> Vec<&String> {
    let options: Vec<&String> = words.iter().skip_while(|word| !word.starts_with('-')).collect();
    let is_shard = |at: usize| options.get(at).is_some_and(|word| *word == "--shard");
    let stays =
        |at: usize| !is_shard(at) && (at == 0 || !is_shard(at - 1)) && options[at] != "--all";
    (0..options.len()).filter(|at| stays(*at)).map(|at| options[at]).collect()
}

fn new_run(words: &[String]) -> Result<Run, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    Ok(Run {
        is_quick: words.iter().any(|word| word == "--quick"),
        folder,
        options: words.to_vec(),
        progress: Progress::new(1),
        skipped: None,
    })
}

/// Runs an experiment, and writes its results.
fn run_one(experiment: &'static Experiment, words: &[String]) -> Result<RunEnd, String> {
    let mut run = new_run(words)?;
    if let Some(part) = run.option("--part").map(str::to_owned) {
        (experiment.run_part)(&mut run, &part);
        return Ok(RunEnd::Measured);
    }
    println!("{}: {}", experiment.name, experiment.what);
    let rows = (experiment.run)(&mut run);
    if let Some(reason) = &run.skipped {
        eprintln!("bench: SKIPPED {}: {reason}", experiment.name);
        return Ok(RunEnd::Skipped);
    }
    let options = own_options(words);
    let is_beside = rows.iter().any(|row| row.rival.is_some());
    let lacks_something =
        !options.is_empty() || experiment.has_rival && !is_beside || experiment.lacks_circuits();
    let form = Form::of(run.is_quick, lacks_something);
    drop(run);
    if rows.is_empty() {
        return Err(format!("{} measured nothing, so no file was written", experiment.name));
    }
    println!("{}", table(&rows));
    let folder = form.folder(&root(), &target());
    let written = Report { experiment, rows: &rows, form, options }.write(&folder)?;
    written.iter().for_each(|path| println!("wrote {}", path.display()));
    if form != Form::Full {
        println!("quick, partial, and rival-less runs do not write docs/results");
    }
    Ok(RunEnd::Measured)
}

/// Returns the experiment's own options.
fn own_options(words: &[String]) -> Vec<String> {
    let common = |word: &&String| ["--quick", "--all", "--shard"].contains(&word.as_str());
    words.iter().filter(|word| word.starts_with("--") && !common(word)).cloned().collect()
}

/// Returns the root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(".")).to_path_buf()
}

/// Returns the build folder of cargo, which contains this program.
pub(crate) fn target() -> PathBuf {
    let program = env::current_exe().unwrap_or_default();
    program.ancestors().nth(2).map_or_else(|| root().join("target"), Path::to_path_buf)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn shards_have_each_experiment_once() {
        let mut names = Vec::new();
        for index in 1..=3 {
            let chosen = shard(&words(&format!("--all --shard {index}/3"))).unwrap();
            names.extend(chosen.into_iter().flatten().map(|experiment| experiment.name));
            assert!(
                names.len().abs_diff(EXPERIMENTS.len() * index / 3) <= 1,
                "shards of equal \
                                         size"
            );
        }
        names.sort_unstable();
        let mut all: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        all.sort_unstable();
        assert_eq!(names, all);
    }

    /// `--all` passes over an experiment that cannot run here; a named one fails.
    #[test]
    fn only_all_permits_skipped_experiments() {
        let mut skipped = Vec::new();
        let mut end = |end, is_all| end_of("ports-dpdk", end, is_all, &mut skipped);
        assert_eq!(end(Ok(RunEnd::Measured), true), Ok(()));
        assert_eq!(end(Err("failed".to_owned()), true), Err("failed".to_owned()));
        assert!(end(Ok(RunEnd::Skipped), false).unwrap_err().contains("ports-dpdk"));
        assert_eq!(end(Ok(RunEnd::Skipped), true), Ok(()));
        assert_eq!(skipped, ["ports-dpdk"]);
    }

    #[test]
    fn an_invalid_shard_is_refused() {
        for text in ["0/3", "4/3", "3", "a/b", ""] {
            assert!(shard_numbers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_empty_shard_is_refused() {
        let all = EXPERIMENTS.len();
        let last =
            select_experiments(&words(&format!("--all --shard {all}/{all} --quick"))).unwrap();
        assert_eq!(last.len(), 1);
        let refused = |text: &str| select_experiments(&words(text)).unwrap_err();
        assert!(refused(&format!("--all --shard 1/{}", all + 1)).contains("too few for"));
        assert!(refused("--all --shard").contains("is not a shard"));
        assert!(refused("--all --shard --quick").contains("is not a shard"));
        assert!(refused("--shard 1/2").contains("add --all"));
        assert!(refused("spine --shard 1/2").contains("add --all"));
        assert!(refused("spine --all").contains("exclude"));
    }

    #[test]
    fn selecting_options_are_not_passed_on() {
        let passed = |text: &str| {
            options_of_one(&words(text)).into_iter().cloned().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(passed("--all --shard 1/2 --quick"), "--quick");
        assert_eq!(passed("--quick --shard 1/2 --all"), "--quick");
        assert_eq!(passed("spine pipeline --only translate --quick"), "--only translate --quick");
        assert_eq!(passed("spine"), "");
    }

    #[test]
    fn an_unknown_option_gets_a_suggestion() {
        let check = |text: &str| {
            let words = words(text);
            check_options(&find_experiments(&words).unwrap(), &words)
        };
        let refused = check("spine --qiuck").unwrap_err();
        assert!(refused.contains("--qiuck") && refused.contains("`--quick`"), "{refused}");
        let refused = check("spine --only translate").unwrap_err();
        assert!(
            refused.contains("choose from --quick"),
            "the option belongs to another \
                                         experiment: {refused}"
        );
        for (text, words) in [
            ("spine -quick", "did you mean `--quick`?"),
            ("spine --quick pipeline", "before all options"),
            ("pipeline --only", "--only needs a value"),
            ("pipeline --only --quick", "--only needs a value"),
            ("pipeline --only translat", "did you mean `translate`?"),
            ("gigaflow-hits --caches megaflow,nosuch", "choose from megaflow, gigaflow"),
        ] {
            let refused = check(text).unwrap_err();
            assert!(refused.contains(words), "{text}: {refused}");
        }
        check("kairo-updates --part x --quick").unwrap();
        check("pipeline --quick --only translate,set-up").unwrap();
        check("regress --base /x --base-name y --quick").unwrap();
    }

    #[test]
    fn options_are_not_names_of_experiments() {
        let chosen = find_experiments(&words("spine pipeline --quick")).unwrap();
        assert_eq!(chosen.len(), 2);
        assert!(find_experiments(&words("spine pipline")).unwrap_err().contains("`pipeline`"));
        assert!(find_experiments(&words("--quick")).is_err());
    }
}

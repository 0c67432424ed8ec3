//! The command line of the experiments, which `cargo xtask bench` passes on.
//!
//! Experiments run in a network namespace of their own, so that bridges and devices of the same
//! names do not meet and nothing is left behind: the process that reads the command line fetches
//! what comes from the network, and starts itself again without one.

use std::{
    env,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use super::{EXPERIMENTS, Experiment, Form, Progress, Report, Run, find, table};
use crate::{experiments::regress, switch::is_root};

/// Says to the second process that it is the second.
const INSIDE: &str = "SHUNT_BENCH_INSIDE";

const USAGE: &str = "\
usage: cargo xtask bench NAME.. [--quick] [options of the experiment]
       cargo xtask bench --all [--shard I/N] [--quick]
       cargo xtask bench --list
       cargo xtask bench regress BASE [--quick]
";

/// Runs what the command line says.
#[must_use]
pub fn run_command() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run_words(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run_words(words: &[String]) -> Result<(), String> {
    let has = |word: &str| words.iter().any(|other| other == word);
    if words.is_empty() || has("--help") || has("-h") {
        print!("{USAGE}\n{}", list());
        return Ok(());
    }
    if has("--list") {
        print!("{}", list());
        return Ok(());
    }
    let chosen = if has("--all") { shard(words)? } else { named(words)? };
    check_options(&chosen, words)?;
    if env::var_os(INSIDE).is_none() {
        chosen.iter().for_each(|one| one.map_or((), |experiment| (experiment.prepare)()));
        return chosen.iter().try_for_each(|one| run_inside(*one, words));
    }
    for one in chosen {
        match one {
            Some(experiment) => run_one(experiment, words)?,
            None => print!("{}", regress::run(&mut new_run(words)?)),
        }
    }
    Ok(())
}

/// A line for each experiment.
fn list() -> String {
    let line = |one: &Experiment| format!("  {:<16} {} ({})\n", one.name, one.what, one.source);
    EXPERIMENTS.iter().map(line).collect()
}

/// The experiments named; `None` is the comparison of two builds.
fn named(words: &[String]) -> Result<Vec<Option<&'static Experiment>>, String> {
    let names = words.iter().take_while(|word| !word.starts_with('-'));
    let names: Vec<&String> = names.collect();
    if names.first().is_some_and(|name| *name == "regress") {
        return Ok(vec![None]);
    }
    if names.is_empty() {
        return Err(format!("say which:\n{}", list()));
    }
    names.into_iter().map(|name| find(name).map(Some)).collect()
}

/// That each option is one of all experiments or of one that was chosen: a mistyped one would be
/// ignored for an hour.
fn check_options(chosen: &[Option<&Experiment>], words: &[String]) -> Result<(), String> {
    const COMMON: [&str; 4] = ["--quick", "--all", "--shard", "--part"];
    const OF_REGRESS: [&str; 2] = ["--base", "--base-name"];
    let own = |one: &Option<&Experiment>| one.map_or(&OF_REGRESS[..], |one| one.options).to_vec();
    let known: Vec<&str> = COMMON.into_iter().chain(chosen.iter().flat_map(own)).collect();
    let unknown =
        words.iter().find(|word| word.starts_with("--") && !known.contains(&word.as_str()));
    let Some(word) = unknown else { return Ok(()) };
    let near = known
        .iter()
        .max_by(|one, other| strsim::jaro(one, word).total_cmp(&strsim::jaro(other, word)));
    Err(format!("there is no option {word}: perhaps {}", near.unwrap_or(&"--quick")))
}

/// All experiments, or those of one shard of several.
fn shard(words: &[String]) -> Result<Vec<Option<&'static Experiment>>, String> {
    let place = words.iter().position(|word| word == "--shard");
    let text = place.map(|place| words.get(place + 1).map_or("", String::as_str));
    let (index, count) = shard_numbers(text.unwrap_or("1/1"))?;
    let mine = EXPERIMENTS.iter().enumerate().filter(|(at, _)| at % count == index - 1);
    Ok(mine.map(|(_, experiment)| Some(experiment)).collect())
}

/// `2/3`: the second of three.
fn shard_numbers(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once('/').and_then(|(index, count)| {
        let (index, count) = (index.parse().ok()?, count.parse().ok()?);
        (0 < index && index <= count).then_some((index, count))
    });
    numbers.ok_or_else(|| format!("`{text}` is no shard: the second of three is `--shard 2/3`"))
}

/// Starts this program again for one experiment, without a network.
fn run_inside(one: Option<&Experiment>, words: &[String]) -> Result<(), String> {
    let program = env::current_exe().map_err(|error| error.to_string())?;
    let mut command = if is_root() {
        let mut command = Command::new("unshare");
        command.args(["--net", "--"]).arg(program);
        command
    } else {
        println!("not root: without a network namespace, so without Open vSwitch and devices");
        Command::new(program)
    };
    let name = one.map_or("regress", |experiment| experiment.name);
    let options = words.iter().skip_while(|word| !word.starts_with('-'));
    let options = options.filter(|word| *word != "--all");
    let status = command.arg(name).args(options).env(INSIDE, "1").status();
    let status = status.map_err(|error| format!("{name} did not start: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{name} was not measured")) }
}

fn new_run(words: &[String]) -> Result<Run, String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    Ok(Run {
        is_quick: words.iter().any(|word| word == "--quick"),
        folder,
        options: words.to_vec(),
        progress: Progress::new(1),
    })
}

fn run_one(experiment: &'static Experiment, words: &[String]) -> Result<(), String> {
    let mut run = new_run(words)?;
    if let Some(part) = run.option("--part").map(str::to_owned) {
        (experiment.run_part)(&mut run, &part);
        return Ok(());
    }
    println!("{}: {}", experiment.name, experiment.what);
    let rows = (experiment.run)(&mut run);
    let options = own_options(words);
    let is_beside = rows.iter().any(|row| row.rival.is_some());
    let form = match () {
        () if run.is_quick => Form::Quick,
        () if !options.is_empty() || experiment.has_rival && !is_beside => Form::Part,
        () => Form::Full,
    };
    drop(run);
    if rows.is_empty() {
        return Err(format!("{} measured nothing: nothing was written", experiment.name));
    }
    println!("{}", table(&rows));
    let folder = match form {
        Form::Full => root().join("docs/results"),
        Form::Part | Form::Quick => target().join("results"),
    };
    let written = Report { experiment, rows: &rows, form, options }.write(&folder)?;
    written.iter().for_each(|path| println!("wrote {}", path.display()));
    if form != Form::Full {
        println!("a look, a part, or a run without the rival leaves docs/results as it is");
    }
    Ok(())
}

/// Options that are the experiment's own.
fn own_options(words: &[String]) -> Vec<String> {
    let common = |word: &&String| ["--quick", "--all", "--shard"].contains(&word.as_str());
    words.iter().filter(|word| word.starts_with("--") && !common(word)).cloned().collect()
}

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or_else(|| Path::new(".")).to_path_buf()
}

/// The folder that cargo builds in, which this program is in.
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
    fn shards_are_all_experiments_and_each_once() {
        let mut names = Vec::new();
        for index in 1..=3 {
            let chosen = shard(&words(&format!("--all --shard {index}/3"))).unwrap();
            names.extend(chosen.into_iter().flatten().map(|experiment| experiment.name));
        }
        names.sort_unstable();
        let mut all: Vec<&str> = EXPERIMENTS.iter().map(|experiment| experiment.name).collect();
        all.sort_unstable();
        assert_eq!(names, all);
    }

    #[test]
    fn a_shard_that_is_none_is_refused() {
        for text in ["0/3", "4/3", "3", "a/b", ""] {
            assert!(shard_numbers(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_option_that_nobody_has_is_refused_with_the_nearest() {
        let check = |text: &str| {
            let words = words(text);
            check_options(&named(&words).unwrap(), &words)
        };
        let refused = check("spine --qiuck").unwrap_err();
        assert!(refused.contains("--qiuck") && refused.contains("perhaps --quick"), "{refused}");
        assert!(check("spine --only translate").is_err(), "it is another experiment's");
        check("pipeline --quick --only translate").unwrap();
        check("regress --base /x --base-name y --quick").unwrap();
    }

    #[test]
    fn several_names_may_be_given_and_options_are_none() {
        let chosen = named(&words("spine pipeline --quick")).unwrap();
        assert_eq!(chosen.len(), 2);
        assert!(named(&words("spine pipline")).unwrap_err().contains("`pipeline`"));
        assert!(named(&words("--quick")).is_err());
    }
}

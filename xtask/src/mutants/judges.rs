//! The tests that judge mutants: how long each takes, which mutants it reaches, and how it fares.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU32, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use super::tree::Program;
use crate::shell::{Failure, output};

/// What became of a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// This test fails.
    Found(String),
    /// This test does not end.
    Endless(String),
    /// All tests that reach it pass.
    Survived,
    /// No test reaches it.
    Unreached,
    /// It does not type-check.
    Unbuildable,
}

/// One test by name.
struct Judge {
    program: usize,
    name: String,
    length: Duration,
    /// How many mutants it has found.
    found: AtomicU32,
}

/// All tests, and which of them reach a mutant.
pub(super) struct Judges {
    programs: Vec<Program>,
    effort: Effort,
    judges: Vec<Judge>,
    reach: BTreeMap<usize, Vec<usize>>,
    /// Where programs say which of their tests failed.
    said: PathBuf,
}

/// How much of a processor a test took, and the mutants that it reached.
type Run = (Duration, BTreeSet<usize>);

/// How many random cases properties are tried with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effort {
    /// As many as always.
    #[default]
    Whole,
    /// A part of them, and no test that takes long: what survives is to be tried again.
    Quick,
}

impl Judges {
    /// Runs each test once, with all mutants asleep.
    pub(super) fn new(
        programs: Vec<Program>,
        effort: Effort,
        trace: &Path,
        jobs: usize,
        tell: impl Fn(usize, usize) + Sync,
    ) -> Result<Self, Failure> {
        let mut tests = Vec::new();
        for (index, program) in programs.iter().enumerate() {
            let list = output(
                command(program, LENGTH_MAX)
                    .args(["--list", "--format", "terse"])
                    .stdout(Stdio::piped()),
            )?;
            let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
            tests.extend(names.map(|name| (index, name.to_owned())));
        }
        let (judges, reach, said) = (Vec::new(), BTreeMap::new(), trace.to_path_buf());
        let mut this = Self { programs, effort, judges, reach, said };
        let (count, done) = (tests.len(), AtomicUsize::new(0));
        let runs = in_parallel(jobs, &tests, |worker, (program, name)| {
            tell(done.fetch_add(1, Ordering::Relaxed), count);
            this.run_asleep(*program, name, &trace.with_extension(format!("trace{worker}")))
        });
        for ((program, name), run) in tests.into_iter().zip(runs) {
            let Some((length, reached)) = run? else { continue };
            let judge = this.judges.len();
            this.judges.push(Judge { program, name, length, found: AtomicU32::new(0) });
            reached.into_iter().for_each(|id| this.reach.entry(id).or_default().push(judge));
        }
        if this.judges.is_empty() {
            return Err(Failure::new("there is no test that could notice anything"));
        }
        Ok(this)
    }

    /// How much a test takes with all mutants asleep, and which it reaches; `None` if it is no judge.
    fn run_asleep(&self, program: usize, name: &str, trace: &Path) -> Result<Option<Run>, Failure> {
        let _ = fs::remove_file(trace);
        let limit = if self.effort == Effort::Quick { 2 * QUICK_MAX } else { LENGTH_MAX };
        let mut run = self.command(program, &[name], limit);
        let (ended, length) = wait(run.env("SHUNT_MUTANT_TRACE", trace).spawn()?)?;
        if ended != Some(true) {
            let why = if ended.is_none() { "takes too long" } else { "fails by itself" };
            println!("{name} {why}: it is no judge");
            return Ok(None);
        }
        let reached = fs::read_to_string(trace).unwrap_or_default();
        let reached = reached.lines().filter_map(|id| id.parse().ok()).collect();
        Ok(Some((length, reached)))
    }

    /// Wakes a mutant, and asks the tests that reach it until one notices: first all that take next
    /// to nothing, then one by one those that are quick or have noticed much.
    pub(super) fn judge(&self, mutant: usize) -> Result<Verdict, Failure> {
        let Some(mut order) = self.reach.get(&mutant).cloned() else {
            return Ok(Verdict::Unreached);
        };
        if self.effort == Effort::Quick {
            order.retain(|judge| self.judges[*judge].length < QUICK_MAX);
        }
        order.sort_by_key(|judge| {
            let judge = &self.judges[*judge];
            judge.length / (1 + judge.found.load(Ordering::Relaxed))
        });
        let (together, alone): (Vec<_>, Vec<_>) =
            order.into_iter().partition(|judge| self.judges[*judge].length < TOGETHER_MAX);
        let mut batches: Vec<Vec<usize>> = vec![Vec::new(); self.programs.len()];
        together.into_iter().for_each(|judge| batches[self.judges[judge].program].push(judge));
        let batches = batches.into_iter().filter(|batch| !batch.is_empty());
        for batch in batches.chain(alone.into_iter().map(|judge| vec![judge])) {
            let verdict = self.ask(&batch, mutant)?;
            if verdict != Verdict::Survived {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Survived)
    }

    /// What some tests of one program, run one after another, say of a mutant.
    fn ask(&self, batch: &[usize], mutant: usize) -> Result<Verdict, Failure> {
        let judges: Vec<&Judge> = batch.iter().map(|judge| &self.judges[*judge]).collect();
        let length: Duration = judges.iter().map(|judge| judge.length).sum();
        let names: Vec<&str> = judges.iter().map(|judge| judge.name.as_str()).collect();
        let said = self.said.with_extension(format!("said{mutant}"));
        let mut run = self.command(judges[0].program, &names, length * SLOWER + SLACK);
        run.env("SHUNT_MUTANT", mutant.to_string()).stdout(fs::File::create(&said)?);
        let (ended, _) = wait(run.spawn()?)?;
        let text = fs::read_to_string(&said).unwrap_or_default();
        fs::remove_file(&said)?;
        if ended == Some(true) {
            return Ok(Verdict::Survived);
        }
        let by = failed(&text).and_then(|name| judges.iter().find(|judge| judge.name == name));
        let by = by.unwrap_or(&judges[0]);
        by.found.fetch_add(1, Ordering::Relaxed);
        let verdict = if ended.is_some() { Verdict::Found } else { Verdict::Endless };
        Ok(verdict(by.name.clone()))
    }

    fn command(&self, program: usize, names: &[&str], limit: Duration) -> Command {
        let mut command = command(&self.programs[program], limit);
        command.args(["--test-threads", "1", "--exact"]).args(names);
        if self.effort == Effort::Quick {
            command.env("SHUNT_CASES_DIVISOR", QUICK_DIVISOR);
        }
        command
    }
}

/// The first test that a test program says to have failed, or the last that it has begun.
fn failed(said: &str) -> Option<&str> {
    let mut tests = said.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let is_failed = |(_, end): &(&str, &str)| end.starts_with("FAILED");
    tests.clone().find(is_failed).or_else(|| tests.next_back()).map(|(name, _)| name)
}

/// What becomes of each item, in their order; `work` is told which of the workers does it.
pub(super) fn in_parallel<I: Sync, T: Send>(
    jobs: usize,
    items: &[I],
    work: impl Fn(usize, &I) -> T + Sync,
) -> Vec<T> {
    let (next, results) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    thread::scope(|scope| {
        for worker in 0..jobs {
            let (next, results, work) = (&next, &results, &work);
            scope.spawn(move || {
                while let Some((index, item)) = {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    items.get(index).map(|item| (index, item))
                } {
                    let result = work(worker, item);
                    results.lock().unwrap_or_else(PoisonError::into_inner).insert(index, result);
                }
            });
        }
    });
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_values().collect()
}

/// A test program with bounded memory that leaves the machine to others; random cases are the same in each run, and do not shrink.
fn command(program: &Program, limit: Duration) -> Command {
    let seconds = limit.as_secs().max(1);
    let mut command = Command::new("sh");
    command
        .args([
            "-c",
            &format!("ulimit -v {MEMORY_KIB}; ulimit -t {seconds}; exec nice -n 10 \"$0\" \"$@\""),
        ])
        .arg(&program.path)
        .current_dir(&program.folder)
        .env("PROPTEST_MAX_SHRINK_ITERS", "0")
        .env("PROPTEST_DISABLE_FAILURE_PERSISTENCE", "1")
        .env("PROPTEST_RNG_SEED", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Whether a program succeeds, and how much of a processor it took; `None` if it does not end within
/// its share, or takes nothing of it for long: others may have the machine, but never all of it.
fn wait(mut child: Child) -> Result<(Option<bool>, Duration), Failure> {
    let start = Instant::now();
    let (mut used, mut grown) = (Duration::ZERO, start);
    loop {
        let now = Usage::of(child.id());
        if now.used > used {
            (used, grown) = (now.used, Instant::now());
        }
        // What it took is told until it is waited for.
        if now.has_ended {
            let status = child.wait()?;
            let is_stopped = status.signal().is_some_and(|signal| STOPS.contains(&signal));
            return Ok(((!is_stopped).then(|| status.success()), used));
        }
        if grown.elapsed() > IDLE_MAX {
            child.kill()?;
            child.wait()?;
            return Ok((None, used));
        }
        thread::sleep((start.elapsed() / 20).clamp(POLL_MIN, POLL_MAX));
    }
}

/// What the kernel tells of a program (`proc(5)`, `/proc/pid/stat`).
struct Usage {
    has_ended: bool,
    used: Duration,
}

impl Usage {
    fn of(program: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{program}/stat")).unwrap_or_default();
        // Its name, in parentheses, may have spaces.
        let mut cells = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let has_ended = cells.next().is_none_or(|state| matches!(state, "Z" | "X" | ""));
        let ticks: u64 = cells.skip(10).take(2).filter_map(|cell| cell.parse::<u64>().ok()).sum();
        Self { has_ended, used: Duration::from_millis(ticks * TICK_MS) }
    }
}

/// What a test is given at most, with all mutants asleep.
const LENGTH_MAX: Duration = Duration::from_secs(20);
/// How much slower than asleep a test may be with a mutant, and how much longer besides.
const SLOWER: u32 = 10;
const SLACK: Duration = Duration::from_secs(3);
/// Signals of a program that has had its share: `SIGXCPU`, and `SIGKILL` where that is ignored.
const STOPS: [i32; 2] = [24, 9];
/// How long a program may take nothing of a processor: it waits for itself.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// The unit in which the kernel tells what a program took: `USER_HZ` is 100.
const TICK_MS: u64 = 10;
/// Tests that take less are run together: to start a program costs more than most of them.
const TOGETHER_MAX: Duration = Duration::from_millis(50);
const POLL_MIN: Duration = Duration::from_millis(1);
const POLL_MAX: Duration = Duration::from_millis(50);
/// What is not tried in a hurry; to be traced costs more.
const QUICK_MAX: Duration = Duration::from_secs(1);
/// One case of so many.
const QUICK_DIVISOR: &str = "30";
const MEMORY_KIB: u32 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_tests_that_are_run_together_the_first_that_fails_has_noticed() {
        let said = "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n";
        assert_eq!(failed(said), Some("a::c"));
        assert_eq!(failed("test a::b ... ok\ntest a::c ... "), Some("a::c"), "it does not end");
        assert_eq!(failed("running 3 tests"), None);
    }

    #[test]
    fn a_program_that_has_ended_tells_how_and_what_it_took() {
        let run = |text: &str| {
            let child = Command::new("sh").args(["-c", text]).spawn().expect("there is a shell");
            wait(child).expect("it can be waited for")
        };
        let (ended, used) = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
        assert!(ended == Some(true) && used > Duration::ZERO);
        assert_eq!(run("exit 3").0, Some(false));
        assert_eq!(run("kill -XCPU $$").0, None, "it had its share");
    }
}

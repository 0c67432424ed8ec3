//! The tests that run with mutants: duration, reached mutants, and results.

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

use super::tree::TestProgram;
use crate::shell::{TaskError, output};

/// The verdict of the tests about a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MutantResult {
    /// The test of this name fails.
    Detected(String),
    /// The test of this name does not end.
    Endless(String),
    /// All tests that reach the mutant pass.
    Survived,
    /// No test reaches the mutant.
    Unreached,
    /// The mutant does not type-check.
    Unbuildable,
}

/// One test by name.
struct MutantTest {
    program: usize,
    name: String,
    length: Duration,
    /// Number of mutants that the test has detected.
    found: AtomicU32,
}

/// All tests, and the list of tests that reach each mutant.
pub(super) struct MutantTests {
    programs: Vec<TestProgram>,
    effort: Effort,
    mutant_tests: Vec<MutantTest>,
    reach: BTreeMap<usize, Vec<usize>>,
    /// File with the failed tests of a program.
    output_path: PathBuf,
}

/// CPU time of a test, and the mutants that it reached.
type TestRun = (Duration, BTreeSet<usize>);

/// The number of random cases for property tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Effort {
    /// The default number of cases.
    #[default]
    Full,
    /// Fewer cases, and no long tests: survivors need another full run.
    Quick,
}

impl MutantTests {
    /// Runs each test once without an active mutant.
    pub(super) fn new(
        programs: Vec<TestProgram>,
        effort: Effort,
        trace: &Path,
        jobs: usize,
        show: impl Fn(usize, usize) + Sync,
    ) -> Result<Self, TaskError> {
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
        let (mutant_tests, reach, output_path) = (Vec::new(), BTreeMap::new(), trace.to_path_buf());
        let mut this = Self { programs, effort, mutant_tests, reach, output_path };
        let (count, done) = (tests.len(), AtomicUsize::new(0));
        let runs = in_parallel(jobs, &tests, |worker, (program, name)| {
            show(done.fetch_add(1, Ordering::Relaxed), count);
            this.run_asleep(*program, name, &trace.with_extension(format!("trace{worker}")))
        });
        for ((program, name), run) in tests.into_iter().zip(runs) {
            let Some((length, reached)) = run? else { continue };
            let run_against = this.mutant_tests.len();
            this.mutant_tests.push(MutantTest { program, name, length, found: AtomicU32::new(0) });
            reached.into_iter().for_each(|id| this.reach.entry(id).or_default().push(run_against));
        }
        if this.mutant_tests.is_empty() {
            return Err(TaskError::new("there is no test to run"));
        }
        Ok(this)
    }

    /// Runs a test without an active mutant.
    ///
    /// Returns CPU time and reached mutants, or `None` if the test fails.
    fn run_asleep(
        &self,
        program: usize,
        name: &str,
        trace: &Path,
    ) -> Result<Option<TestRun>, TaskError> {
        let _ = fs::remove_file(trace);
        let limit = if self.effort == Effort::Quick { 2 * QUICK_MAX } else { LENGTH_MAX };
        let mut run = self.command(program, &[name], limit);
        let (ended, length) = wait(run.env("SHUNT_MUTANT_TRACE", trace).spawn()?)?;
        if ended != Some(true) {
            let reason = if ended.is_none() { "takes too long" } else { "fails without a mutant" };
            println!("{name} {reason}: it is not used");
            return Ok(None);
        }
        let reached = fs::read_to_string(trace).unwrap_or_default();
        let reached = reached.lines().filter_map(|id| id.parse().ok()).collect();
        Ok(Some((length, reached)))
    }

    /// Activates a mutant, and runs the tests that reach the mutant until a test fails.
    ///
    /// Very short tests run first, together. The other tests follow one by one, ordered by duration
    /// and by the number of mutants that each test has detected.
    pub(super) fn run_against(&self, mutant: usize) -> Result<MutantResult, TaskError> {
        let Some(mut order) = self.reach.get(&mutant).cloned() else {
            return Ok(MutantResult::Unreached);
        };
        if self.effort == Effort::Quick {
            order.retain(|run_against| self.mutant_tests[*run_against].length < QUICK_MAX);
        }
        order.sort_by_key(|run_against| {
            let run_against = &self.mutant_tests[*run_against];
            run_against.length / (1 + run_against.found.load(Ordering::Relaxed))
        });
        let (together, alone): (Vec<_>, Vec<_>) = order
            .into_iter()
            .partition(|run_against| self.mutant_tests[*run_against].length < TOGETHER_MAX);
        let mut batches: Vec<Vec<usize>> = vec![Vec::new(); self.programs.len()];
        together.into_iter().for_each(|run_against| {
            batches[self.mutant_tests[run_against].program].push(run_against);
        });
        let batches = batches.into_iter().filter(|batch| !batch.is_empty());
        for batch in batches.chain(alone.into_iter().map(|run_against| vec![run_against])) {
            let verdict = self.ask(&batch, mutant)?;
            if verdict != MutantResult::Survived {
                return Ok(verdict);
            }
        }
        Ok(MutantResult::Survived)
    }

    /// Runs some tests of one program, one after the other, with a mutant.
    fn ask(&self, batch: &[usize], mutant: usize) -> Result<MutantResult, TaskError> {
        let mutant_tests: Vec<&MutantTest> =
            batch.iter().map(|run_against| &self.mutant_tests[*run_against]).collect();
        let length: Duration = mutant_tests.iter().map(|run_against| run_against.length).sum();
        let names: Vec<&str> =
            mutant_tests.iter().map(|run_against| run_against.name.as_str()).collect();
        let output_path = self.output_path.with_extension(format!("said{mutant}"));
        let mut run = self.command(mutant_tests[0].program, &names, length * SLOWER + SLACK);
        run.env("SHUNT_MUTANT", mutant.to_string()).stdout(fs::File::create(&output_path)?);
        let (ended, _) = wait(run.spawn()?)?;
        let text = fs::read_to_string(&output_path).unwrap_or_default();
        fs::remove_file(&output_path)?;
        if ended == Some(true) {
            return Ok(MutantResult::Survived);
        }
        let by = failed_test(&text)
            .and_then(|name| mutant_tests.iter().find(|run_against| run_against.name == name));
        let by = by.unwrap_or(&mutant_tests[0]);
        by.found.fetch_add(1, Ordering::Relaxed);
        let verdict = if ended.is_some() { MutantResult::Detected } else { MutantResult::Endless };
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

/// Returns the first failed test in the output, or the last started test.
fn failed_test(output_path: &str) -> Option<&str> {
    let mut tests =
        output_path.lines().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
    let is_failed = |(_, end): &(&str, &str)| end.starts_with("FAILED");
    tests.clone().find(is_failed).or_else(|| tests.next_back()).map(|(name, _)| name)
}

/// Maps items in parallel, in order. `work` gets the number of the worker.
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

/// Returns a command for a test program with bounded memory and low priority.
///
/// Random cases are the same in each run, and do not shrink.
fn command(program: &TestProgram, limit: Duration) -> Command {
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

/// Waits for a program. Returns success and CPU time,
/// or no success after a timeout.
///
/// A timeout means that the program used its CPU limit, or used no CPU for a long time.
fn wait(mut child: Child) -> Result<(Option<bool>, Duration), TaskError> {
    let start = Instant::now();
    let (mut used, mut grown) = (Duration::ZERO, start);
    loop {
        let now = Usage::of(child.id());
        if now.used > used {
            (used, grown) = (now.used, Instant::now());
        }
        // The kernel reports the usage until this process has waited for the program.
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

/// Usage of a process, from `/proc/pid/stat` (`proc(5)`).
struct Usage {
    has_ended: bool,
    used: Duration,
}

impl Usage {
    fn of(program: u32) -> Self {
        let stat = fs::read_to_string(format!("/proc/{program}/stat")).unwrap_or_default();
        // The name in parentheses may contain spaces.
        let mut cells = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let has_ended = cells.next().is_none_or(|state| matches!(state, "Z" | "X" | ""));
        let ticks: u64 = cells.skip(10).take(2).filter_map(|cell| cell.parse::<u64>().ok()).sum();
        Self { has_ended, used: Duration::from_millis(ticks * TICK_MS) }
    }
}

/// Maximum CPU time of a test without an active mutant.
const LENGTH_MAX: Duration = Duration::from_secs(20);
/// Allowed slowdown factor of a test with a mutant, in addition to a constant.
const SLOWER: u32 = 10;
/// Time that a test with a mutant may take in addition.
const SLACK: Duration = Duration::from_secs(3);
/// Signals at the CPU limit: `SIGXCPU`,
/// and `SIGKILL` if the program ignores `SIGXCPU`.
const STOPS: [i32; 2] = [24, 9];
/// Maximum time without CPU use. After this time, the program is in a deadlock.
const IDLE_MAX: Duration = Duration::from_secs(30);
/// Unit of CPU times in `/proc`: `USER_HZ` is 100.
const TICK_MS: u64 = 10;
/// Maximum CPU time of a test that runs together with other tests.
///
/// The start of a program costs more than most short tests.
const TOGETHER_MAX: Duration = Duration::from_millis(50);
/// First pause between two checks of a running test.
const POLL_MIN: Duration = Duration::from_millis(1);
/// Longest pause between two checks of a running test.
const POLL_MAX: Duration = Duration::from_millis(50);
/// Maximum duration of a test in a quick run. Tracing increases the duration.
const QUICK_MAX: Duration = Duration::from_secs(1);
/// Divisor of the number of cases in a quick run.
const QUICK_DIVISOR: &str = "30";
const MEMORY_KIB: u32 = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failing_test_detects_the_mutant() {
        let output_path =
            "running 3 tests\ntest a::b ... ok\ntest a::c ... FAILED\ntest d ... FAILED\n";
        assert_eq!(failed_test(output_path), Some("a::c"));
        assert_eq!(
            failed_test("test a::b ... ok\ntest a::c ... "),
            Some("a::c"),
            "the last test does not end"
        );
        assert_eq!(failed_test("running 3 tests"), None);
    }

    #[test]
    fn an_ended_program_has_status_and_usage() {
        let run = |text: &str| {
            let child = Command::new("sh").args(["-c", text]).spawn().expect("there is a shell");
            wait(child).expect("the child can be waited for")
        };
        let (ended, used) = run("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done");
        assert!(ended == Some(true) && used > Duration::ZERO);
        assert_eq!(run("exit 3").0, Some(false));
        assert_eq!(run("kill -XCPU $$").0, None, "the program used its CPU limit");
    }
}

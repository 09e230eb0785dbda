use std::{
    fs::{self, OpenOptions},
    num::NonZero,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
};

use crate::{
    check::Violation,
    disk::{Disk, Rules, Variant},
    error::{Attempt, Error, Result},
    images::{Case, images, moments},
    random::Random,
    recorder::{Recorder, Recording},
    subject::{Ack, EXIT_CODE_DEAD, Load, Subject},
    target::{Target, reopen},
    trace::{Record, decode},
};

/// What to unplug, and how.
#[derive(Clone, Debug)]
pub struct PowerOptions {
    /// The store.
    pub target: Target,
    /// For the choice of what survives.
    pub seed: u64,
    /// The recorded load: commits of all lives together, and writers.
    pub load: Load,
    /// How often the process dies and starts again during the recording; the last life ends well.
    pub deaths: u32,
    /// What a crash may do to names.
    pub rules: Rules,
    /// Random choices of what survives, for each moment.
    pub torn_per_moment: u32,
    /// Directories are made in here; memory is best.
    pub scratch: PathBuf,
}

/// A run that was recorded.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// What it did.
    pub records: Vec<Record>,
    /// What it acknowledged, by mark.
    pub acks: Vec<Ack>,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct PowerReport {
    /// Moments of the run at which the power was cut.
    pub prefixes: usize,
    /// Disks that were looked at; equal ones are looked at once.
    pub images: usize,
    /// Broken promises, with where they were seen.
    pub violations: Vec<(Moment, Violation)>,
}

/// Where the power was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// After so many records.
    pub prefix: usize,
    /// With this left on the disk.
    pub variant: Variant,
}

/// Records a load and returns the bytes of the trace; keep them to look at a failure again.
///
/// # Errors
///
/// If the recorder cannot run, the load fails, or the trace does not reproduce the directory byte
/// for byte.
pub fn record(options: &PowerOptions) -> Result<Vec<u8>> {
    // Not in memory: there a sync takes no time and nothing happens meanwhile.
    let directory = tempfile::tempdir().attempt(|| "make a directory for the recording")?;
    let recording = Recording {
        directory: directory.path().join("data"),
        trace: directory.path().join("trace"),
        marks: directory.path().join("marks"),
    };
    fs::create_dir(&recording.directory).attempt(|| "make a directory for the store")?;
    let mut command = options.target.command("lives", &recording.directory, &options.load);
    command.arg("--marks").arg(&recording.marks);
    command.args(["--deaths", &options.deaths.to_string()]);
    let status = Recorder::build()?.run(&recording, &command)?;
    if !status.success() {
        return Err(Error::new(format!("run the load: it ended with {status}")));
    }
    let trace = fs::read(&recording.trace).attempt(|| "read the trace")?;
    verify(&decode(&trace)?, &recording.directory)?;
    Ok(trace)
}

/// Checks that a trace reproduces a directory, so that nothing was missed.
///
/// # Errors
///
/// If it does not.
pub fn verify(records: &[Record], directory: &Path) -> Result<()> {
    let mut disk = Disk::new(Rules::Strict);
    for record in records {
        disk.apply(record)?;
    }
    let differences = disk.image(Variant::Kept).differences(directory)?;
    if !differences.is_empty() {
        return Err(Error::new(format!("record everything: {}", differences.join(", "))));
    }
    Ok(())
}

/// Reads a trace and the acknowledgements in it.
///
/// # Errors
///
/// If either cannot be read.
pub fn read(trace: &[u8]) -> Result<Recorded> {
    let records = decode(trace)?;
    let mut acks = Vec::new();
    for record in &records {
        if let Record::Mark { data } = record {
            let mut lines = Ack::parse_lines(data)?;
            match (lines.pop(), lines.is_empty()) {
                (Some(ack), true) => acks.push(ack),
                _ => return Err(Error::new("read the marks: one is not one line")),
            }
        }
    }
    Ok(Recorded { records, acks })
}

/// Cuts the power of a recorded run at every moment, and looks at what is left each time.
///
/// `progress` is called after each disk; it ends the run by returning false.
///
/// # Errors
///
/// If a disk cannot be written for the store to open.
pub fn unplug(
    options: &PowerOptions,
    recorded: &Recorded,
    mut progress: impl FnMut(&PowerReport) -> bool,
) -> Result<PowerReport> {
    let subject = options.target.open()?;
    let mut variants = vec![Variant::Dropped, Variant::Kept];
    let mut random = Random::new(options.seed);
    variants.extend((0..options.torn_per_moment).map(|_| Variant::Torn(random.next())));
    let workers = thread::available_parallelism().map_or(1, NonZero::get);
    let mut report = PowerReport { prefixes: moments(&recorded.records), ..PowerReport::default() };

    let stop = AtomicBool::new(false);
    let failure = thread::scope(|scope| {
        let (send_case, cases) = mpsc::sync_channel::<Case>(2 * workers);
        let (send_result, results) = mpsc::channel();
        let cases = Arc::new(Mutex::new(cases));
        let (stop, subject, variants) = (&stop, &*subject, &variants);
        scope.spawn({
            let send_result = send_result.clone();
            move || {
                for case in images(&recorded.records, variants, options.rules) {
                    let sent = match case {
                        Ok(case) => send_case.send(case).is_ok(),
                        Err(error) => send_result.send(Err(error)).is_ok(),
                    };
                    if !sent || stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            }
        });
        for _ in 0..workers {
            let send_result = send_result.clone();
            let cases = Arc::clone(&cases);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let case = cases.lock().unwrap_or_else(PoisonError::into_inner).recv();
                    let Ok(case) = case else { return };
                    if send_result.send(look(options, subject, recorded, &case)).is_err() {
                        return;
                    }
                }
            });
        }
        // Whoever is left waiting for the other side then sees that it is gone.
        drop((cases, send_result));
        let mut failure = None;
        for result in results {
            report.images += 1;
            let go_on = match result {
                Ok(violations) => {
                    report.violations.extend(violations);
                    progress(&report)
                }
                Err(error) => {
                    failure = Some(error);
                    false
                }
            };
            if !go_on {
                stop.store(true, Ordering::Relaxed);
                break;
            }
        }
        failure
    });
    report.violations.sort_by_key(|(moment, _)| moment.prefix);
    failure.map_or(Ok(report), Err)
}

/// Runs the load several times in the same directory, each life but the last cut short.
///
/// # Errors
///
/// If a life ends in another way than it should.
pub fn lives(
    target: &Target,
    directory: &Path,
    marks: &Path,
    load: &Load,
    deaths: u32,
) -> Result<()> {
    let share = load.commits / u64::from(deaths + 1);
    for life in 0..=deaths {
        let last = life == deaths;
        let commits = if last { share } else { u64::MAX };
        let seed = load.seed.wrapping_add(u64::from(life));
        let mut child: Command =
            target.load_command(directory, &Load { seed, commits, writers: load.writers });
        if !last {
            child.args(["--exit-after", &share.max(1).to_string()]);
        }
        let marks = OpenOptions::new()
            .append(true)
            .create(true)
            .open(marks)
            .attempt(|| "open the marks file")?;
        let status =
            child.stdin(Stdio::null()).stdout(marks).status().attempt(|| "start a life")?;
        let expected = if last { 0 } else { EXIT_CODE_DEAD };
        if status.code() != Some(expected) {
            return Err(Error::new(format!("live: life {life} ended with {status}")));
        }
    }
    Ok(())
}

fn look(
    options: &PowerOptions,
    subject: &dyn Subject,
    recorded: &Recorded,
    case: &Case,
) -> Result<Vec<(Moment, Violation)>> {
    let directory = tempfile::Builder::new()
        .prefix("millstream-crash-")
        .tempdir_in(&options.scratch)
        .attempt(|| "make a directory for a disk")?;
    case.image.write_to(directory.path())?;
    let acks = &recorded.acks[..case.marks];
    let (_, violations) = reopen(subject, directory.path(), options.load.writers, acks);
    let moment = Moment { prefix: case.prefix, variant: case.variant };
    Ok(violations.into_iter().map(|it| (moment, it)).collect())
}

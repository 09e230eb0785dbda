use std::{
    env,
    fs::{self, File, OpenOptions},
    io::{IoSlice, Seek, SeekFrom, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use millstream_crash::{Record, Recorder, Recording, decode, verify};
use tempfile::{NamedTempFile, TempDir, tempdir};

const CHILD: &str = "MILLSTREAM_CRASH_CHILD";

/// Runs a test of this file as a recorded child.
struct Run {
    _directory: TempDir,
    recording: Recording,
    records: Vec<Record>,
}

fn run(child: &str, prepare: impl FnOnce(&Path)) -> Run {
    let (directory, recording) = run_child(child, prepare);
    let records = decode(&fs::read(&recording.trace).unwrap()).unwrap();
    Run { _directory: directory, recording, records }
}

fn run_child(child: &str, prepare: impl FnOnce(&Path)) -> (TempDir, Recording) {
    let directory = tempdir().unwrap();
    let recording = Recording {
        directory: directory.path().join("data"),
        trace: directory.path().join("trace"),
        marks: directory.path().join("marks"),
    };
    fs::create_dir(&recording.directory).unwrap();
    prepare(&recording.directory);
    // The recorder hands its environment down, but a Command's own variables would not pass through
    // it.
    let mut command = Command::new("env");
    command.arg(format!("{CHILD}={}", directory.path().display()));
    command.arg(env::current_exe().unwrap()).args(["--exact", child, "--nocapture"]);
    let status = Recorder::build().unwrap().run(&recording, &command).unwrap();
    assert!(matches!(status.code(), Some(0 | 86)), "{status}");
    (directory, recording)
}

/// The directory of a child, or nothing if this is an ordinary test.
fn child() -> Option<PathBuf> {
    env::var_os(CHILD).map(PathBuf::from)
}

#[test]
fn a_trace_reproduces_the_directory_byte_for_byte() {
    let run = run("recorder::child_does_everything", |directory| {
        fs::create_dir_all(directory.join("before/deep")).unwrap();
        fs::write(directory.join("before/deep/file"), vec![7; 10_000]).unwrap();
    });
    verify(&run.records, &run.recording.directory).unwrap();
    let count = |kind: fn(&Record) -> bool| run.records.iter().filter(|it| kind(it)).count();
    assert_eq!(count(|it| matches!(it, Record::Mark { .. })), 3);
    assert!(4 <= count(|it| matches!(it, Record::Rename { .. })), "raw system calls are seen too");
    assert!(1 <= count(|it| matches!(it, Record::SyncDirectory { .. })));
    fs::write(run.recording.directory.join("before/deep/file"), b"changed").unwrap();
    let error = verify(&run.records, &run.recording.directory).unwrap_err();
    assert!(error.report().contains("before/deep/file"), "{}", error.report());
}

#[test]
fn child_does_everything() {
    let Some(root) = child() else { return };
    let data = root.join("data");
    let path = |name: &str| data.join(name);
    let mut marks = OpenOptions::new().append(true).open(root.join("marks")).unwrap();

    let mut file = File::create_new(path("plain")).unwrap();
    file.write_all(b"one two three").unwrap();
    file.seek(SeekFrom::Start(4)).unwrap();
    file.write_all(b"TWO").unwrap();
    assert!(0 < file.write_vectored(&[IoSlice::new(b" a"), IoSlice::new(b"bc")]).unwrap());
    file.write_at(b"far", 9_000).unwrap();
    file.sync_data().unwrap();
    marks.write_all(b"first\n").unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(1 << 20).unwrap();
    drop(file);

    let mut twice = OpenOptions::new().append(true).open(path("plain")).unwrap();
    twice.write_all(b"appended").unwrap();
    let mut copy = twice.try_clone().unwrap();
    copy.write_all(b" by a copy").unwrap();

    fs::create_dir_all(path("a/b/c")).unwrap();
    fs::write(path("a/b/c/file"), vec![1; 100_000]).unwrap();
    fs::copy(path("a/b/c/file"), path("a/copy")).unwrap();
    fs::rename(path("a/b"), path("moved")).unwrap();
    fs::write(path("moved/c/file"), b"shorter").unwrap();
    fs::hard_link(path("a/copy"), path("linked")).unwrap();
    fs::remove_file(path("a/copy")).unwrap();
    fs::create_dir_all(path("gone/deep")).unwrap();
    fs::write(path("gone/deep/file"), b"gone").unwrap();
    fs::remove_dir_all(path("gone")).unwrap();
    File::open(&data).unwrap().sync_all().unwrap();
    marks.write_all(b"second\n").unwrap();

    // These go past libc.
    for name in ["linked", "fresh"] {
        let mut temporary = NamedTempFile::new_in(&data).unwrap();
        temporary.write_all(name.as_bytes()).unwrap();
        temporary.as_file().sync_all().unwrap();
        temporary.persist(path(name)).unwrap();
    }
    NamedTempFile::new_in(&data).unwrap().persist_noclobber(path("fresh")).unwrap_err();
    NamedTempFile::new_in(&data).unwrap().persist_noclobber(path("fresher")).unwrap();

    env::set_current_dir(path("moved")).unwrap();
    fs::rename("c/file", "../moved/./relative").unwrap();
    fs::write(path("before/deep/file"), b"overwritten").unwrap();
    // Written after its name is gone, so there is nothing to compare, but it must not disturb.
    let mut unnamed = File::create(path("unnamed")).unwrap();
    fs::remove_file(path("unnamed")).unwrap();
    unnamed.write_all(b"lost").unwrap();
    fs::write(path("after"), b"may have the same inode").unwrap();

    write_from_threads(&data, 200);
    marks.write_all(b"third\n").unwrap();
}

#[test]
fn a_trace_is_whole_when_the_process_dies_in_the_middle_of_writes() {
    for _ in 0..3 {
        let run = run("recorder::child_dies_while_it_writes", |_| {});
        verify(&run.records, &run.recording.directory).unwrap();
    }
}

#[test]
fn child_dies_while_it_writes() {
    let Some(root) = child() else { return };
    let data = root.join("data");
    thread::spawn(move || write_from_threads(&data, usize::MAX));
    thread::sleep(Duration::from_millis(50));
    std::process::exit(86);
}

#[test]
fn a_way_to_write_that_the_model_does_not_know_is_refused() {
    let (_directory, recording) = run_child("recorder::child_opens_with_dsync", |_| {});
    let error = decode(&fs::read(&recording.trace).unwrap()).unwrap_err().report();
    assert!(error.contains("O_DSYNC"), "{error}");
}

#[test]
fn child_opens_with_dsync() {
    use std::os::unix::fs::OpenOptionsExt;
    let Some(root) = child() else { return };
    const O_DSYNC: i32 = 0o10000;
    let mut options = OpenOptions::new();
    options.write(true).create(true).custom_flags(O_DSYNC);
    options.open(root.join("data/file")).unwrap().write_all(b"x").unwrap();
}

fn write_from_threads(data: &Path, times: usize) {
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let path = data.join(format!("thread-{number}"));
                let mut file = File::create(&path).unwrap();
                for round in 0..times {
                    file.write_all(format!("{number} {round}\n").as_bytes()).unwrap();
                    if round % 16 == 15 {
                        file.sync_data().unwrap();
                        fs::rename(&path, data.join(format!("old-{number}"))).unwrap();
                        file = File::create(&path).unwrap();
                    }
                }
            });
        }
    });
}

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::*;
use crate::disk::SystemDisk;

const SEGMENT_BYTES: u64 = 4096;

fn open(directory: &TempDir, applied: u64) -> Result<(Log, Vec<String>)> {
    let disk: Arc<dyn Disk> = Arc::new(SystemDisk);
    let Recovered { log, groups } = Log::open(&disk, directory.path(), SEGMENT_BYTES, applied)?;
    let text = |it: Vec<u8>| String::from_utf8(it).unwrap().trim_end_matches('.').to_owned();
    Ok((log, groups.into_iter().map(text).collect()))
}

fn append(log: &mut Log, text: &str) -> u64 {
    let mut group = vec![0; GROUP_HEADER_BYTES];
    group.extend_from_slice(text.as_bytes());
    let number = log.append(&mut group).unwrap();
    log.sync().unwrap();
    number
}

/// A group that fills a third of a segment.
fn long(text: &str) -> String {
    format!("{text}{}", ".".repeat(1300))
}

fn segment_files(directory: &TempDir) -> Vec<PathBuf> {
    SystemDisk.list(directory.path()).unwrap()
}

#[test]
fn groups_come_back_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, groups) = open(&directory, 0).unwrap();
    assert_eq!(groups, [""; 0]);
    for number in 1..=7 {
        assert_eq!(append(&mut log, &long(&number.to_string())), number);
    }
    drop(log);
    assert_eq!(open(&directory, 0).unwrap().1, ["1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!(open(&directory, 5).unwrap().1, ["6", "7"], "applied groups are left out");
}

/// The disk of the machine, on which the names in a directory are synced only if it is asked.
#[derive(Debug, Default)]
struct ForgetfulDisk {
    has_synced_names: AtomicBool,
}

impl Disk for ForgetfulDisk {
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        SystemDisk.create(path, length)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        SystemDisk.open(path)
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        SystemDisk.list(directory)
    }

    fn sync_names(&self, _: &Path) -> io::Result<()> {
        self.has_synced_names.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }
}

#[test]
fn a_segment_that_was_found_is_not_used_before_its_name_is_durable() {
    let directory = tempfile::tempdir().unwrap();
    // What a process leaves that dies before it syncs the name.
    fs::write(directory.path().join("0000000001.log"), [0; 4096]).unwrap();
    let forgetful = Arc::new(ForgetfulDisk::default());
    let disk: Arc<dyn Disk> = forgetful.clone();
    let mut log = Log::open(&disk, directory.path(), SEGMENT_BYTES, 0).unwrap().log;
    append(&mut log, "one");
    assert_eq!(segment_files(&directory).len(), 1, "the segment that was there is used");
    assert!(forgetful.has_synced_names.load(Ordering::Relaxed));
}

#[test]
fn segments_are_used_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    for number in 1..=60 {
        append(&mut log, &long(&number.to_string()));
        log.release_through(number - 1);
    }
    drop(log);
    assert!(segment_files(&directory).len() <= 3, "{:?}", segment_files(&directory));
    assert_eq!(open(&directory, 58).unwrap().1, ["59", "60"]);
}

#[test]
fn a_torn_end_is_left_out_and_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    append(&mut log, "one");
    append(&mut log, "two");
    drop(log);
    tear(&directory, "two");
    let (mut log, groups) = open(&directory, 0).unwrap();
    assert_eq!(groups, ["one"]);
    append(&mut log, "other two");
    append(&mut log, "three");
    drop(log);
    assert_eq!(open(&directory, 0).unwrap().1, ["one", "other two", "three"]);
}

#[test]
fn damage_to_a_synced_group_is_told_from_a_torn_end() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    for text in ["one", "two", "three"] {
        append(&mut log, text);
    }
    drop(log);
    tear(&directory, "two");
    assert_eq!(open(&directory, 0).unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(open(&directory, 2).unwrap_err().kind(), ErrorKind::Corrupt, "three is behind it");
}

#[test]
fn damage_to_the_last_group_of_a_full_segment_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    for text in ["one", "two", "three"] {
        append(&mut log, &long(text));
    }
    drop(log);
    tear(&directory, "two");
    assert_eq!(open(&directory, 0).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn remains_of_an_earlier_life_of_a_segment_are_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    for number in 1..=4 {
        append(&mut log, &format!("{number:0>40}"));
    }
    drop(log);
    // Everything is applied; the next opening writes over the first group and stops before the
    // others.
    let (mut log, _) = open(&directory, 4).unwrap();
    append(&mut log, &format!("{:0>40}", 5));
    drop(log);
    assert_eq!(open(&directory, 4).unwrap().1, [format!("{:0>40}", 5)]);
}

#[test]
fn a_group_larger_than_a_segment_gets_one_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(&directory, 0).unwrap();
    let large = "x".repeat(20_000);
    append(&mut log, "small");
    append(&mut log, &large);
    append(&mut log, "small again");
    drop(log);
    assert_eq!(open(&directory, 0).unwrap().1, ["small", &large, "small again"]);
}

#[test]
fn an_empty_or_foreign_file_is_no_segment() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("0000000001.log"), b"").unwrap();
    fs::write(directory.path().join("notes.txt"), b"mine").unwrap();
    let (mut log, groups) = open(&directory, 0).unwrap();
    assert_eq!(groups, [""; 0]);
    append(&mut log, "one");
    drop(log);
    assert_eq!(open(&directory, 0).unwrap().1, ["one"]);
    assert_eq!(fs::read(directory.path().join("notes.txt")).unwrap(), b"mine");
}

/// Breaks the first byte of a payload.
fn tear(directory: &TempDir, payload: &str) {
    for path in segment_files(directory) {
        let mut bytes = fs::read(&path).unwrap();
        let found = bytes.windows(payload.len()).position(|it| it == payload.as_bytes());
        if let Some(at) = found {
            bytes[at] ^= 0xFF;
            fs::write(&path, bytes).unwrap();
            return;
        }
    }
    panic!("no segment holds {payload:?}");
}

use super::*;

/// `"make a; create 1 a/b; write 1 0 text; cut 1 2; sync 1; sync a; move a/b c; remove c"`; `begin`
/// and `end` are the halves of `sync`.
fn parse(script: &str) -> Vec<Record> {
    let mut records = Vec::new();
    for (number, step) in (1..).zip(script.split(';')) {
        let words: Vec<&str> = step.split_whitespace().collect();
        let file = || FileId(words[1].parse().expect("the number of a file"));
        let begin = |sync| match words[1].parse() {
            Ok(file) => Record::SyncFile { sync, file: FileId(file) },
            Err(_) => Record::SyncDirectory { sync, path: words[1].trim_matches('.').to_owned() },
        };
        match words[0] {
            "settled" => records.push(Record::Settled),
            "make" => records.push(Record::Directory { path: words[1].to_owned() }),
            "create" => records.push(Record::Create { file: file(), path: words[2].to_owned() }),
            "write" => records.push(Record::Write {
                file: file(),
                offset: words[2].parse().unwrap(),
                data: words[3].as_bytes().to_vec(),
            }),
            "cut" => {
                records.push(Record::Truncate { file: file(), length: words[2].parse().unwrap() })
            }
            "begin" => records.push(begin(SyncId(1000))),
            "end" => records.push(Record::SyncEnd { sync: SyncId(1000) }),
            "sync" => {
                records.push(begin(SyncId(number)));
                records.push(Record::SyncEnd { sync: SyncId(number) });
            }
            "move" => {
                records.push(Record::Rename { from: words[1].to_owned(), to: words[2].to_owned() })
            }
            "remove" => records.push(Record::Unlink { path: words[1].to_owned() }),
            other => panic!("unknown step {other}"),
        }
    }
    records
}

fn show(disk: &Disk, variant: Variant) -> String {
    let image = disk.image(variant);
    let scratch = tempfile::tempdir().unwrap();
    image.write_to(scratch.path()).unwrap();
    assert_eq!(image.differences(scratch.path()).unwrap(), [""; 0]);
    let mut lines: Vec<String> = image
        .files
        .iter()
        .map(|(path, _)| {
            let bytes = std::fs::read(scratch.path().join(path)).unwrap();
            format!("{path}={}", String::from_utf8(bytes).unwrap().replace('\0', "0"))
        })
        .chain(image.directories.iter().map(|it| format!("{it}/")))
        .collect();
    lines.sort();
    lines.join(" ")
}

fn run(rules: Rules, script: &str) -> Disk {
    let mut disk = Disk::new(rules);
    for record in parse(script) {
        disk.apply(&record).unwrap();
    }
    disk
}

/// What is certain under the strict rules, and what the process sees.
#[track_caller]
fn check(script: &str, dropped: &str, kept: &str) {
    let disk = run(Rules::Strict, script);
    assert_eq!(show(&disk, Variant::Dropped), dropped, "dropped");
    assert_eq!(show(&disk, Variant::Kept), kept, "kept");
}

#[track_caller]
fn check_journaled(script: &str, dropped: &str) {
    assert_eq!(show(&run(Rules::Journaled, script), Variant::Dropped), dropped);
}

#[test]
fn bytes_need_a_sync_of_the_file_and_its_name_a_sync_of_the_directory() {
    check("create 1 a; write 1 0 hi", "", "a=hi");
    check("create 1 a; write 1 0 hi; sync 1", "", "a=hi");
    check("create 1 a; write 1 0 hi; sync .", "a=", "a=hi");
    check("create 1 a; write 1 0 hi; sync 1; sync .", "a=hi", "a=hi");
    check("make d; create 1 d/a; sync 1; sync d", "", "d/ d/a=");
    check("make d; create 1 d/a; sync 1; sync d; sync .", "d/ d/a=", "d/ d/a=");
}

#[test]
fn a_sync_promises_what_was_written_before_it_began() {
    check("create 1 a; sync .; write 1 0 x; begin 1; write 1 1 y; end", "a=x", "a=xy");
    check("create 1 a; sync .; write 1 0 x; begin 1", "a=", "a=x");
    check("create 1 a; begin .; create 2 b; end", "a=", "a= b=");
}

#[test]
fn a_rename_happens_or_does_not() {
    let start = "create 1 new; write 1 0 n; sync 1; create 2 old; write 2 0 o; sync 2; sync .";
    check(&format!("{start}; move new old"), "new=n old=o", "old=n");
    check(&format!("{start}; move new old; sync ."), "old=n", "old=n");
    let disk = run(Rules::Strict, &format!("{start}; move new old"));
    for seed in 0..50 {
        let shown = show(&disk, Variant::Torn(seed));
        assert!(["new=n old=o", "old=n"].contains(&shown.as_str()), "{shown}");
    }
}

#[test]
fn a_rename_across_directories_is_kept_by_a_sync_of_either() {
    let start = "make d; create 1 a; sync .; create 2 d/a; move a d/a";
    check(&format!("{start}; sync ."), "d/ d/a=", "d/ d/a=");
    check(&format!("{start}; sync d"), "d/ d/a=", "d/ d/a=");
    check(start, "a= d/", "d/ d/a=");
}

#[test]
fn lengths_and_removals_are_changes_too() {
    let start = "create 1 a; write 1 0 abc; sync 1; sync .";
    check(&format!("{start}; cut 1 1"), "a=abc", "a=a");
    check(&format!("{start}; cut 1 1; cut 1 3; sync 1"), "a=a00", "a=a00");
    check(&format!("{start}; remove a"), "a=abc", "");
    check(&format!("{start}; remove a; sync ."), "", "");
    check("create 1 a; write 1 0 abc; settled; write 1 3 d", "a=abc", "a=abcd");
}

#[test]
fn a_journal_keeps_names_in_order() {
    check_journaled("create 1 a; create 2 b; write 2 0 x; sync 2", "a= b=x");
    check_journaled("create 1 a; create 2 b; sync 1", "a=");
    check_journaled("create 1 a; move a b; create 2 c; sync 1", "b=");
    let disk = run(Rules::Journaled, "create 1 a; create 2 b; create 3 c");
    for seed in 0..50 {
        let shown = show(&disk, Variant::Torn(seed));
        assert!(["", "a=", "a= b=", "a= b= c="].contains(&shown.as_str()), "{shown}");
    }
}

#[test]
fn a_torn_write_is_cut_between_sectors_only() {
    let mut disk = run(Rules::Strict, "create 1 a; sync .");
    disk.apply(&Record::Write { file: FileId(1), offset: 100, data: vec![b'x'; 1500] }).unwrap();
    let mut shown = BTreeSet::new();
    for seed in 0..400 {
        let image = disk.image(Variant::Torn(seed));
        let scratch = tempfile::tempdir().unwrap();
        image.write_to(scratch.path()).unwrap();
        let mut bytes = std::fs::read(scratch.path().join("a")).unwrap();
        bytes.resize(1600, 0);
        let sectors: Vec<u8> =
            [&bytes[100..512], &bytes[512..1024], &bytes[1024..1536], &bytes[1536..1600]]
                .iter()
                .map(|sector| {
                    assert!(sector.iter().all(|it| *it == sector[0]), "a sector was cut");
                    sector[0]
                })
                .collect();
        shown.insert(sectors);
    }
    assert_eq!(shown.len(), 16, "every choice of four sectors comes up");
}

#[test]
fn a_name_nobody_made_is_an_error() {
    for script in ["move a b", "remove a", "create 1 d/a", "write 7 0 x"] {
        let mut disk = Disk::new(Rules::Strict);
        assert!(disk.apply(&parse(script)[0]).is_err(), "{script}");
    }
}

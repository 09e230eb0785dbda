//! Two processors, each a process of its own, share the feed of one gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use millstream_core::{
    Batch, Container, ContainerName, ContainerSettings, Containers, Operation,
    PartitionKeyDefinition,
};
use millstream_store::Store;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::gateway::{Serving, block_on};

/// Longest time in which something must go on.
const STEP_MAX: Duration = Duration::from_secs(40);
const RANGES: u32 = 4;
const KEYS: usize = 40;
/// Changes until which both processes must have had some.
const CHANGES_MAX: usize = 10_000;

/// A process that handles changes.
struct Follower {
    process: Child,
    /// It ends when this is dropped.
    _input: ChildStdin,
}

/// What a process said: its name, the keys of the lease, and which change it handled.
struct Said {
    who: &'static str,
    lease: String,
    key: String,
    number: usize,
}

/// What was handled so far.
#[derive(Default)]
struct Handled {
    numbers: BTreeSet<usize>,
    /// Who handled which change for which lease.
    said: BTreeSet<(&'static str, usize, String)>,
    /// The newest change of a key that a process was given for the first time.
    newest: BTreeMap<(&'static str, String), usize>,
}

impl Handled {
    fn note(&mut self, said: Said) {
        let Said { who, lease, key, number } = said;
        self.numbers.insert(number);
        if self.said.insert((who, number, lease)) {
            let newest = self.newest.insert((who, key.clone()), number);
            assert!(newest <= Some(number), "{who} was given {number} of {key} after {newest:?}");
        }
    }

    /// The leases for which a process handled changes from a number on.
    fn leases(&self, who: &str, from: usize) -> BTreeSet<&str> {
        let said = self.said.iter().filter(|(it, number, _)| *it == who && from <= *number);
        said.map(|(_, _, lease)| lease.as_str()).collect()
    }
}

#[test]
fn when_one_of_two_processes_is_killed_the_other_takes_over() {
    block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let serving = Serving::over(Arc::new(store)).await;
        let data = prepare(&serving).await;
        let (say, mut said) = unbounded_channel();
        let mut one = follow(&serving, "one", say.clone());
        let two = follow(&serving, "two", say);
        let mut handled = Handled::default();

        // The first to start has all leases until the other has made itself known.
        let mut written = 0;
        while ["one", "two"].iter().any(|it| handled.leases(it, 0).is_empty()) {
            assert!(written < CHANGES_MAX, "the leases were not shared");
            write(&data, written..written + KEYS).await;
            written += KEYS;
            let is_done = |it: &Handled| it.numbers.len() == written;
            until(&mut said, &mut handled, "all is handled", is_done).await;
        }

        // Killed in the middle of its work, without a chance to say anything.
        write(&data, written..written + 2 * KEYS).await;
        one.process.start_kill().unwrap();
        let after = written + 2 * KEYS;
        let all = after + 2 * KEYS;
        write(&data, after..all).await;
        let status = one.process.wait().await.unwrap();
        assert_eq!(status.code(), None, "it ended by itself");

        let ranges = usize::try_from(RANGES).unwrap();
        until(&mut said, &mut handled, "the other has taken over", |it| {
            it.numbers.len() == all && it.leases("two", after).len() == ranges
        })
        .await;
        assert_eq!(handled.numbers, (0..all).collect());
        stop(two).await;
    });
}

async fn prepare(serving: &Serving) -> Container {
    let cosmos = serving.connect().await;
    cosmos.create_database("shop").await.unwrap();
    let by_key = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey").unwrap());
    let leases = ContainerName::new("shop", "leases").unwrap();
    cosmos.create(&leases, by_key.clone()).await.unwrap();
    let data = ContainerName::new("shop", "data").unwrap();
    cosmos.create(&data, by_key.ranges(RANGES)).await.unwrap();
    cosmos.open(&data).await.unwrap()
}

async fn write(data: &Container, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let key = format!("key-{}", number % KEYS);
        let body = format!(r#"{{"id":"{number}","partitionKey":"{key}"}}"#);
        let batch = Batch::new(key.as_str()).with(Operation::create(body));
        data.documents.commit(batch).await.unwrap();
    }
}

fn follow(serving: &Serving, who: &'static str, say: UnboundedSender<Said>) -> Follower {
    let mut process = Command::new(example())
        .args([serving.url.as_str(), "shop", "data", "leases", "printer", who])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    tokio::spawn(async move {
        while let Some(line) = lines.next_line().await.unwrap() {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap().to_owned();
            let (lease, key, number) = (word(), word(), word().parse().unwrap());
            if say.send(Said { who, lease, key, number }).is_err() {
                return;
            }
        }
    });
    Follower { _input: process.stdin.take().unwrap(), process }
}

async fn until(
    said: &mut UnboundedReceiver<Said>,
    handled: &mut Handled,
    what: &str,
    is_done: impl Fn(&Handled) -> bool,
) {
    while !is_done(handled) {
        let next = tokio::time::timeout(STEP_MAX, said.recv()).await;
        let Ok(Some(next)) = next else {
            let (count, leases) = (handled.numbers.len(), handled.leases("two", 0));
            panic!("waited in vain until {what}: {count} changes, leases of two {leases:?}");
        };
        handled.note(next);
    }
}

/// Lets a process end as it would want to.
async fn stop(follower: Follower) {
    let Follower { mut process, _input } = follower;
    drop(_input);
    let status = tokio::time::timeout(STEP_MAX, process.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

/// The example `follow`, which was built with this test.
fn example() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().and_then(|it| it.parent()).unwrap();
    let example = built.join("examples").join("follow");
    assert!(example.exists(), "the example is not there: cargo build --examples");
    example
}

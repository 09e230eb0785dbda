//! A tour of the embedded store: what it does, shown on a container that is made for the occasion.
//!
//! ```text
//! cargo run --release --example tour [directory]
//! ```
//!
//! Without a directory it uses a temporary one and leaves nothing behind. In a directory of yours
//! each tour adds a container, so that the last step finds those of earlier tours too.

#![expect(clippy::print_stdout, reason = "a tour talks to the person who takes it")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures_lite::future::{block_on, try_zip};
use millstream::{
    Batch, Change, Clock, Container, ContainerName, ContainerSettings, Containers, Continuation,
    ErrorKind, FeedMode, IdSource, ItemId, KeyRange, Operation, PageSize, PartitionKey,
    PartitionKeyDefinition, RandomIds, Result, StartFrom, Store, SystemClock, TimeToLive,
};

const DATABASE: &str = "tour";

fn main() -> ExitCode {
    let temporary = match tempfile::tempdir() {
        Ok(directory) => directory,
        Err(error) => return failed(&format!("could not make a temporary directory: {error}")),
    };
    let given = env::args_os().nth(1).map(PathBuf::from);
    let directory = given.as_deref().unwrap_or(temporary.path());
    let tour = async {
        Tour::take(directory).await?;
        // Every handle is gone now, and with the last one the store was closed.
        reopen(directory).await
    };
    match block_on(tour) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error.report()),
    }
}

fn failed(reason: &str) -> ExitCode {
    eprintln!("error: {reason}");
    ExitCode::FAILURE
}

struct Tour {
    store: Store,
    name: ContainerName,
    contacts: Container,
    clock: Arc<SystemClock>,
    ids: RandomIds,
}

impl Tour {
    async fn take(directory: &Path) -> Result<()> {
        title(&format!("A store in {}", directory.display()));
        let tour = Self::begin(directory).await?;

        title("A contact and its events: each commit has both, and a reader waits for them");
        let feed = &tour.contacts.feed;
        let now = feed.start(&KeyRange::all(), StartFrom::Now, FeedMode::LatestVersion).await?;
        let (seen, ()) = try_zip(tour.follow(now), tour.commit()).await?;

        tour.refuse().await?;
        tour.split_and_merge(&seen).await?;
        tour.expire().await?;
        tour.count();
        Ok(())
    }

    async fn begin(directory: &Path) -> Result<Self> {
        let store = Store::open(directory)?;
        if let Err(error) = store.create_database(DATABASE).await {
            // An earlier tour made it.
            if error.kind() != ErrorKind::AlreadyExists {
                return Err(error);
            }
        }
        let earlier = store.list(DATABASE).await?.len();
        let name = ContainerName::new(DATABASE, &format!("contacts-{}", earlier + 1))?;
        // Where the container has a default, even "never", items may have a time to live.
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/partitionKey")?)
            .default_ttl(TimeToLive::Never);
        store.create(&name, settings).await?;
        let contacts = store.open(&name).await?;
        say(&format!("made the container {name} with the partition key /partitionKey"));
        let clock = Arc::new(SystemClock::default());
        let ids = RandomIds::new(clock.clone());
        Ok(Self { store, name, contacts, clock, ids })
    }

    async fn commit(&self) -> Result<()> {
        for (name, action) in [("Ada Byron", "created"), ("Ada Lovelace", "renamed")] {
            let batch = Batch::new("ada")
                .with(Operation::upsert(contact("ada", name)))
                .with(Operation::create(self.event(action)));
            let outcome = self.contacts.documents.commit(batch).await?;
            say(&format!("commit {} is on disk: contact {name:?} {action}", outcome.lsn));
        }
        Ok(())
    }

    /// Reads, and waits when there is nothing to read, until two events have come.
    async fn follow(&self, mut after: Continuation) -> Result<Continuation> {
        let (feed, keys) = (&self.contacts.feed, KeyRange::all());
        let mut events = 0;
        while events < 2 {
            feed.wait(&keys, &after).await?;
            let page = feed.read(&keys, &after, PageSize::default()).await?;
            for change in &page.changes {
                say(&format!("    reader: {}", describe(change)));
                events += usize::from(sequence(change).is_some());
            }
            after = page.continuation;
        }
        Ok(after)
    }

    async fn refuse(&self) -> Result<()> {
        title("Two writers start from the same version, and one of them is late");
        let id = ItemId::new("ada")?;
        let found = self.contacts.documents.read(&PartitionKey::from("ada"), &id).await?;
        let etag = found.expect("it was committed").etag;
        for name in ["Ada King", "Ada Gordon"] {
            let batch = Batch::new("ada")
                .with(Operation::create(self.event("renamed")))
                .with(Operation::replace(id.clone(), contact("ada", name)).if_match(etag.clone()));
            match self.contacts.documents.commit(batch).await {
                Ok(outcome) => say(&format!("commit {}: contact {name:?}", outcome.lsn)),
                Err(error) => {
                    let which = error.operation().map_or(0, |it| it + 1);
                    say(&format!("{name:?} is refused at operation {which} of 2:"));
                    say(&format!("    {}", error.report()));
                    say("    its event was not written either");
                }
            }
        }
        Ok(())
    }

    async fn split_and_merge(&self, seen: &Continuation) -> Result<()> {
        title("A range is split and merged while a reader has a position in it");
        let feed = &self.contacts.feed;
        let ranges = feed.ranges().await?;
        let halves = self.store.split(&self.name, ranges[0].id, None).await?;
        for half in &halves {
            let page = feed.read(&half.keys, seen, PageSize::default()).await?;
            say(&format!("range {}: {} changes since", half.id, page.changes.len()));
        }
        let merged = self.store.merge(&self.name, halves[0].id, halves[1].id).await?;
        let page = feed.read(&merged.keys, seen, PageSize::default()).await?;
        say(&format!("range {}, both again: {} changes since", merged.id, page.changes.len()));
        Ok(())
    }

    async fn expire(&self) -> Result<()> {
        title("An item that lives for one second");
        let body = r#"{"id": "session", "partitionKey": "ada", "ttl": 1}"#;
        let batch = Batch::new("ada").with(Operation::create(body));
        self.contacts.documents.commit(batch).await?;
        say(&format!("at once: {}", self.look_for("session").await?));
        self.clock.sleep(Duration::from_millis(1100)).await;
        say(&format!("after 1.1 s: {}", self.look_for("session").await?));
        Ok(())
    }

    async fn look_for(&self, id: &str) -> Result<&'static str> {
        let id = ItemId::new(id)?;
        let found = self.contacts.documents.read(&PartitionKey::from("ada"), &id).await?;
        Ok(if found.is_some() { "it is there" } else { "it is gone" })
    }

    fn count(&self) {
        title("What it took");
        let it = self.store.statistics();
        say(&format!("{} commits, those of the store itself included", it.commits));
        say(&format!("{} syncs of the log, {} bytes logged", it.syncs, it.logged_bytes));
    }

    fn event(&self, action: &str) -> String {
        let id = self.ids.next_id();
        format!(r#"{{"id":"{id}","partitionKey":"ada","type":"domainEvent","action":"{action}"}}"#)
    }
}

/// Opens the directory anew and shows what is still there.
async fn reopen(directory: &Path) -> Result<()> {
    title("Closed and opened again");
    let clock = SystemClock::default();
    let store = Store::open(directory)?;
    say(&format!("opened in {} ms", clock.monotonic().as_millis()));
    for info in store.list(DATABASE).await? {
        let contacts = store.open(&info.name).await?;
        say(&format!("{} still has, in commit order:", info.name));
        for range in contacts.feed.ranges().await? {
            show_all(&contacts, &range.keys).await?;
        }
    }
    Ok(())
}

async fn show_all(contacts: &Container, keys: &KeyRange) -> Result<()> {
    let feed = &contacts.feed;
    let mut after = feed.start(keys, StartFrom::Beginning, FeedMode::LatestVersion).await?;
    loop {
        let page = feed.read(keys, &after, PageSize::default()).await?;
        if page.changes.is_empty() {
            return Ok(());
        }
        for change in &page.changes {
            say(&format!("    {}", describe(change)));
        }
        after = page.continuation;
    }
}

fn contact(id: &str, name: &str) -> String {
    format!(r#"{{"id":"{id}","partitionKey":"{id}","type":"contact","name":"{name}"}}"#)
}

fn sequence(change: &Change) -> Option<u64> {
    change.current.as_ref()?.sequence
}

fn describe(change: &Change) -> String {
    let kind = match sequence(change) {
        Some(number) => format!("event {number} of its key"),
        None => "item".to_owned(),
    };
    let body = change.current.as_ref().map(|it| String::from_utf8_lossy(&it.body));
    format!("commit {}, {kind}: {}", change.lsn, body.unwrap_or_default())
}

fn title(text: &str) {
    println!("\n{text}");
}

fn say(text: &str) {
    println!("  {text}");
}

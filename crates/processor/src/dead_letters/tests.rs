use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_lite::future::block_on;
use millstream_core::memory::Memory;
use millstream_core::{
    Batch, BatchOutcome, BoxFuture, Change, ChangeKind, Clock, Container, ContainerName,
    ContainerSettings, Containers, Documents, EffectiveKey, Error as CoreError,
    ErrorKind as CoreErrorKind, Etag, Item, ItemId, KeyRange, Lsn, ManualClock, Operation,
    PageSize, PartitionKey, PartitionKeyDefinition, Result as CoreResult, ScanContinuation,
    ScanPage, ScanScope, Timestamp, set_property,
};

use crate::dead_letters::documents::{Head, Letter, PROPERTIES, hash};
use crate::dead_letters::{DeadLetters, ParkedState};
use crate::error::{ErrorKind, Result};

/// A container for dead letters.
struct Scene {
    container: Container,
    clock: Arc<ManualClock>,
    letters: DeadLetters,
}

/// Runs a test with a container of each kind.
#[track_caller]
fn on_both(test: impl AsyncFn(Scene)) {
    for path in ["/id", "/partitionKey"] {
        block_on(async { test(scene(path).await.unwrap()).await });
    }
}

async fn scene(path: &str) -> Result<Scene> {
    let clock = Arc::new(ManualClock::starting_at(Timestamp::from_millis(1_000)));
    let memory = Memory::new(Arc::<ManualClock>::clone(&clock));
    memory.create_database("app").await.unwrap();
    let name = ContainerName::new("app", "letters").unwrap();
    let settings = ContainerSettings::new(PartitionKeyDefinition::hash(path).unwrap());
    memory.create(&name, settings).await.unwrap();
    let container = memory.open(&name).await.unwrap();
    let letters = dead_letters(&container, &clock)?;
    Ok(Scene { container, clock, letters })
}

fn dead_letters(container: &Container, clock: &Arc<ManualClock>) -> Result<DeadLetters> {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    DeadLetters::new(container, "orders", clock, Duration::from_secs(5))
}

impl Scene {
    /// Dead letters in the same container, through a store that misbehaves.
    fn through(&self, fault: impl Fn(usize) -> Fault + Send + Sync + 'static) -> DeadLetters {
        let inner = Arc::clone(&self.container.documents);
        let faulty = Faulty { inner, fault: Box::new(fault), commits: AtomicUsize::new(0) };
        let container = Container { documents: Arc::new(faulty), ..self.container.clone() };
        dead_letters(&container, &self.clock).unwrap()
    }

    /// Parks a change, or puts it behind the others.
    async fn park(&self, change: &Change) {
        self.letters.park(change, &effective(), "no such customer", 5).await.unwrap();
    }

    async fn append(&self, change: &Change) -> bool {
        self.letters.append_if_parked(change, &effective()).await.unwrap()
    }

    /// The sequence of a key, read in pages: `"a@5 b@5"`.
    async fn sequence(&self, key: &str) -> String {
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let page = self.letters.sequence(&key.into(), after.as_deref(), 3).await.unwrap();
            let Some(last) = page.last() else { return found.join(" ") };
            after = Some(last.id.clone());
            found.extend(page.iter().map(|it| format!("{}@{}", it.change.id, it.change.lsn)));
        }
    }

    /// Redrives a key to its end and returns what was delivered; `meanwhile` runs after each.
    async fn deliver_all(&self, key: &str, meanwhile: impl AsyncFn(usize)) -> String {
        let (key, mut delivered) = (PartitionKey::from(key), Vec::new());
        while !self.letters.finish_redrive(&key).await.unwrap() {
            for parked in self.letters.sequence(&key, None, 2).await.unwrap() {
                delivered.push(format!("{}@{}", parked.change.id, parked.change.lsn));
                self.letters.delete_delivered(&parked).await.unwrap();
                meanwhile(delivered.len()).await;
            }
        }
        delivered.join(" ")
    }

    async fn documents(&self) -> Vec<Item> {
        let all = ScanScope::Keys(KeyRange::all());
        let page = self.container.documents.scan(&all, None, PageSize::items(10_000)).await;
        page.unwrap().items
    }

    async fn replace(&self, item: &Item, body: impl Into<Bytes>) {
        let operation = Operation::replace(item.id.clone(), body);
        let batch = Batch::new(item.partition_key.clone()).with(operation);
        self.container.documents.commit(batch).await.unwrap();
    }

    /// The document of the head, if there is one.
    async fn head(&self) -> Option<Item> {
        let id = format!("orders:parked:{}", hash(r#"["k"]"#));
        self.documents().await.into_iter().find(|it| it.id.as_str() == id)
    }
}

/// What happens to a commit, by its number.
enum Fault {
    None,
    /// It is done, and the reply is lost.
    LostReply,
    /// It is lost, and the caller does not know.
    LostRequest,
    /// Something happens right before it.
    After(BoxFuture<'static, ()>),
}

struct Faulty {
    inner: Arc<dyn Documents>,
    fault: Box<dyn Fn(usize) -> Fault + Send + Sync>,
    commits: AtomicUsize,
}

#[async_trait]
impl Documents for Faulty {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> CoreResult<Option<Item>> {
        self.inner.read(key, id).await
    }

    async fn commit(&self, batch: Batch) -> CoreResult<BatchOutcome> {
        let lost = || CoreError::new(CoreErrorKind::Unavailable, "commit").with_unknown_effect();
        match (self.fault)(self.commits.fetch_add(1, Ordering::SeqCst)) {
            Fault::None => (),
            Fault::LostReply => {
                // A refusal is lost just the same.
                let _ = self.inner.commit(batch).await;
                return Err(lost());
            }
            Fault::LostRequest => return Err(lost()),
            Fault::After(something) => something.await,
        }
        self.inner.commit(batch).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> CoreResult<ScanPage> {
        self.inner.scan(scope, after, size).await
    }
}

fn item(key: &str, id: &str, lsn: u64, body: &str) -> Item {
    Item {
        id: ItemId::new(id).unwrap(),
        partition_key: key.into(),
        body: Bytes::copy_from_slice(body.as_bytes()),
        etag: Etag::new(format!("{id}-{lsn}")),
        lsn: Lsn::new(lsn),
        written_at: Timestamp::from_millis(lsn.saturating_mul(10)),
        expires_at: None,
        sequence: None,
    }
}

fn change(key: &str, id: &str, lsn: u64) -> Change {
    Change {
        kind: ChangeKind::Written,
        lsn: Lsn::new(lsn),
        committed_at: Timestamp::from_millis(lsn.saturating_mul(10)),
        partition_key: key.into(),
        id: ItemId::new(id).unwrap(),
        current: Some(item(key, id, lsn, r#"{"id":"x"}"#)),
        previous: None,
    }
}

fn effective() -> EffectiveKey {
    "1FFF".parse().unwrap()
}

fn k() -> PartitionKey {
    "k".into()
}

#[test]
fn a_parked_sequence_keeps_the_order_of_commits_and_within_them() {
    on_both(async |scene| {
        scene.park(&change("k", "z", 9)).await;
        for (id, lsn) in [("b", 10), ("a", 10), ("c", 10), ("y", 100), ("a", 101), ("b", 1_000)] {
            assert!(scene.append(&change("k", id, lsn)).await);
        }
        assert_eq!(scene.sequence("k").await, "z@9 b@10 a@10 c@10 y@100 a@101 b@1000");
        let shown = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!((shown.state, shown.parked), (ParkedState::Parked, 7));
        assert_eq!((shown.attempts, shown.error.as_str()), (5, "no such customer"));
        assert_eq!((shown.first_id.as_str(), shown.first_lsn), ("z", Lsn::new(9)));
        assert!(scene.letters.show(&"other".into()).await.unwrap().is_none());
    });
}

#[test]
fn parking_the_same_change_again_changes_nothing() {
    on_both(async |scene| {
        let changes = [("a", 5), ("b", 5), ("a", 6), ("c", 6), ("a", 7)];
        let changes = changes.map(|(id, lsn)| change("k", id, lsn));
        for _ in 0..3 {
            // As after a crash: everything since the checkpoint comes again.
            scene.park(&changes[0]).await;
            for change in &changes[1..] {
                assert!(scene.append(change).await);
            }
        }
        assert_eq!(scene.sequence("k").await, "a@5 b@5 a@6 c@6 a@7");
        assert_eq!(scene.documents().await.len(), 6);
        assert_eq!(scene.letters.show(&k()).await.unwrap().unwrap().parked, 5);
    });
}

#[test]
fn a_change_that_comes_again_finds_itself_behind_a_gap() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 5)).await;
        scene.append(&change("k", "b", 5)).await;
        let first = scene.letters.sequence(&k(), None, 1).await.unwrap().remove(0);
        scene.letters.delete_delivered(&first).await.unwrap();
        assert!(scene.append(&change("k", "b", 5)).await);
        assert!(scene.append(&change("k", "c", 5)).await);
        assert_eq!(scene.sequence("k").await, "b@5 c@5");
        // And when later commits came since.
        scene.append(&change("k", "a", 9)).await;
        assert!(scene.append(&change("k", "b", 5)).await);
        assert_eq!(scene.sequence("k").await, "b@5 c@5 a@9");
    });
}

#[test]
fn changes_before_the_sequence_are_put_before_it() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 50)).await;
        // The position was reset.
        for (id, lsn) in [("b", 3), ("a", 3), ("c", 4)] {
            assert!(scene.append(&change("k", id, lsn)).await);
        }
        assert_eq!(scene.sequence("k").await, "b@3 a@3 c@4 a@50");
    });
}

#[test]
fn a_redrive_is_in_order_with_what_comes_meanwhile() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        for lsn in 2..6 {
            scene.append(&change("k", "a", lsn)).await;
        }
        scene.letters.redrive(&k()).await.unwrap();
        scene.letters.redrive(&k()).await.unwrap();
        let shown = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!(shown.state, ParkedState::Redriving);
        let delivered = scene.deliver_all("k", async |count| {
            if count == 3 || count == 5 {
                let lsn = u64::try_from(count).unwrap() * 10;
                assert!(scene.append(&change("k", "late", lsn)).await);
            }
        });
        assert_eq!(delivered.await, "a@1 a@2 a@3 a@4 a@5 late@30 late@50");
        assert!(!scene.append(&change("k", "a", 60)).await);
        assert_eq!(scene.documents().await, []);
    });
}

#[test]
fn a_failed_redrive_parks_the_rest_again() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        scene.letters.redrive(&k()).await.unwrap();
        // The second call is as after a lost reply.
        for _ in 0..2 {
            scene.letters.fail_redrive(&k(), "still no such customer").await.unwrap();
        }
        let shown = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!((shown.state, shown.attempts), (ParkedState::Parked, 6));
        assert_eq!(shown.error, "still no such customer");
        assert!(!scene.letters.finish_redrive(&k()).await.unwrap());
        scene.letters.fail_redrive(&"nobody".into(), "x").await.unwrap();
    });
}

#[test]
fn a_sequence_does_not_end_while_a_change_is_put_behind_it() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        let first = scene.letters.sequence(&k(), None, 1).await.unwrap().remove(0);
        scene.letters.delete_delivered(&first).await.unwrap();
        // The finisher has seen an empty sequence when the other one appends.
        let other = scene.letters.clone();
        let finisher = scene.through(move |commit| {
            let other = other.clone();
            let append = async move {
                let late = change("k", "a", 2);
                assert!(other.append_if_parked(&late, &effective()).await.unwrap());
            };
            if commit == 0 { Fault::After(Box::pin(append)) } else { Fault::None }
        });
        assert!(!finisher.finish_redrive(&k()).await.unwrap());
        assert_eq!(scene.sequence("k").await, "a@2");
    });
}

#[test]
fn a_change_is_not_put_behind_a_sequence_that_has_ended() {
    // Before its letter is written, and before its head is.
    for commit_raced in 0..2 {
        on_both(async |scene| {
            scene.park(&change("k", "a", 1)).await;
            let other = scene.letters.clone();
            let appender = scene.through(move |commit| {
                let other = other.clone();
                let finish = async move { assert!(other.discard(&k()).await.is_ok()) };
                if commit == commit_raced { Fault::After(Box::pin(finish)) } else { Fault::None }
            });
            let late = change("k", "a", 2);
            assert!(!appender.append_if_parked(&late, &effective()).await.unwrap());
            assert_eq!(scene.documents().await, [], "{commit_raced}");
        });
    }
}

#[test]
fn a_change_parked_while_its_sequence_ends_begins_another() {
    for commit_raced in 0..2 {
        on_both(async |scene| {
            scene.park(&change("k", "a", 1)).await;
            let other = scene.letters.clone();
            let parker = scene.through(move |commit| {
                let other = other.clone();
                let finish = async move { assert!(other.discard(&k()).await.is_ok()) };
                if commit == commit_raced { Fault::After(Box::pin(finish)) } else { Fault::None }
            });
            parker.park(&change("k", "b", 2), &effective(), "e", 1).await.unwrap();
            assert_eq!(scene.sequence("k").await, "b@2");
            assert_eq!(scene.documents().await.len(), 2);
        });
    }
}

#[test]
fn an_item_that_only_azure_takes_is_parked_like_any_other() {
    on_both(async |scene| {
        let id = ItemId::stored("a/b");
        let mut of_azure = change("k", "x", 1);
        of_azure.current.as_mut().unwrap().id = id.clone();
        of_azure.id = id;
        scene.park(&of_azure).await;
        assert_eq!(scene.sequence("k").await, "a/b@1");
        scene.letters.redrive(&k()).await.unwrap();
        assert_eq!(scene.deliver_all("k", async |_| ()).await, "a/b@1");
    });
}

#[test]
fn a_letter_left_behind_is_not_part_of_the_next_sequence() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        scene.append(&change("k", "a", 2)).await;
        // A crash after the letter was written and before the head was; then the sequence ended.
        let head = scene.head().await.unwrap();
        let delete = Operation::delete(head.id.clone());
        let batch = Batch::new(head.partition_key.clone()).with(delete);
        scene.container.documents.commit(batch).await.unwrap();
        scene.clock.advance(Duration::from_secs(1));
        scene.park(&change("k", "a", 2)).await;
        assert_eq!(scene.sequence("k").await, "a@2");
        assert_eq!(scene.documents().await.len(), 3);
        scene.letters.redrive(&k()).await.unwrap();
        assert_eq!(scene.deliver_all("k", async |_| ()).await, "a@2");
        assert_eq!(scene.documents().await, []);
    });
}

#[test]
fn lost_replies_and_requests_neither_repeat_nor_fail() {
    // Every commit of the whole story in turn is lost, before or after it is done.
    for number in 0..24 {
        for reply in [true, false] {
            on_both(async |scene| {
                let faulty = scene.through(move |commit| match (commit == number, reply) {
                    (true, true) => Fault::LostReply,
                    (true, false) => Fault::LostRequest,
                    (false, _) => Fault::None,
                });
                let (a, b, c) = (change("k", "a", 1), change("k", "b", 1), change("k", "c", 2));
                faulty.park(&a, &effective(), "e", 1).await.unwrap();
                assert!(faulty.append_if_parked(&b, &effective()).await.unwrap());
                assert!(faulty.append_if_parked(&c, &effective()).await.unwrap());
                assert_eq!(scene.sequence("k").await, "a@1 b@1 c@2");
                assert_eq!(scene.documents().await.len(), 4);
                let shown = faulty.show(&k()).await.unwrap().unwrap();
                assert_eq!(shown.parked, 3, "commit {number}, reply {reply}");
                faulty.redrive(&k()).await.unwrap();
                faulty.fail_redrive(&k(), "e").await.unwrap();
                assert_eq!(faulty.show(&k()).await.unwrap().unwrap().attempts, 2);
                faulty.skip(&a, &effective(), "e", 1).await.unwrap();
                faulty.skip(&b, &effective(), "e", 1).await.unwrap();
                assert_eq!(scene.documents().await.len(), 6);
                assert_eq!(faulty.discard(&k()).await.unwrap(), 3);
                let skipped = faulty.list_skipped(None, 10).await.unwrap().changes;
                faulty.redrive_skipped(&skipped[0]).await.unwrap();
                faulty.discard_skipped(&skipped[1].id).await.unwrap();
                assert_eq!(scene.documents().await.len(), 2);
                assert_eq!(scene.deliver_all("k", async |_| ()).await.len(), 3);
                assert_eq!(scene.documents().await, []);
            });
        }
    }
}

#[test]
fn the_whole_change_survives() {
    let body = " {\"id\":\"ä\\u00e4\",\"n\":1e400,\"m\":18446744073709551615,\"e\":\"🚲\\n\"}\n";
    let mut updated = change("k", "ä", u64::MAX);
    updated.kind = ChangeKind::Replaced;
    updated.current = Some(Item {
        expires_at: Some(Timestamp::from_millis(77)),
        sequence: Some(3),
        ..item("k", "ä", u64::MAX, body)
    });
    updated.previous = Some(item("k", "ä", 4, r#"{"id":"ä","n":-0.0}"#));
    let deleted = Change {
        kind: ChangeKind::Deleted,
        current: None,
        partition_key: PartitionKey::of(["tenant/ä", "\n"]).unwrap(),
        previous: None,
        ..change("k", "b", 7)
    };
    on_both(async |scene| {
        for (change, skipped) in [(&updated, false), (&deleted, false), (&deleted, true)] {
            let found = if skipped {
                scene.letters.skip(change, &effective(), "e", 3).await.unwrap();
                scene.letters.list_skipped(None, 1_000).await.unwrap().changes
            } else {
                scene.park(change).await;
                scene.letters.sequence(&change.partition_key, None, 5).await.unwrap()
            };
            assert_eq!(found.len(), 1);
            assert_eq!(found[0].change, *change);
            assert!(!found[0].previous_dropped);
            assert_eq!(found[0].parked_at, Timestamp::from_millis(1_000));
        }
    });
}

#[test]
fn a_change_is_told_from_others_of_its_commit_by_kind_and_version() {
    on_both(async |scene| {
        let mut changes = [change("k", "a", 5), change("k", "a", 5), change("k", "a", 5)];
        changes[1].kind = ChangeKind::Deleted;
        changes[2].current.as_mut().unwrap().etag = Etag::new("another");
        for change in changes.iter().chain(&changes) {
            scene.park(change).await;
        }
        let found = scene.letters.sequence(&k(), None, 10).await.unwrap();
        assert_eq!(found.into_iter().map(|it| it.change).collect::<Vec<_>>(), changes);
    });
}

#[test]
fn a_large_change_is_kept_in_a_smaller_form() {
    on_both(async |scene| {
        // Quotes double in a string, so the body is kept as it is; then there is room.
        let quotes = format!(r#"{{"id":"a","q":[{}1e400]}}"#, r#""","#.repeat(500_000));
        let mut large = change("k", "a", 1);
        large.current = Some(item("k", "a", 1, &quotes));
        scene.park(&large).await;
        // Two of them do not fit in any way.
        large.lsn = Lsn::new(2);
        large.previous = large.current.clone();
        assert!(scene.append(&large).await);
        let first = scene.letters.sequence(&k(), None, 1).await.unwrap().remove(0);
        assert_eq!(first.change.current.unwrap().body, quotes);
        let second = scene.letters.sequence(&k(), Some(&first.id), 1).await.unwrap().remove(0);
        assert!(second.previous_dropped && second.change.previous.is_none());
        assert!(scene.append(&large).await);
        assert_eq!(scene.sequence("k").await, "a@1 a@2");

        let huge = format!(r#"{{"id":"a","t":"{}"}}"#, "x".repeat(2 * 1024 * 1024 - 40));
        large.current = Some(item("k", "a", 3, &huge));
        let error = scene.letters.park(&large, &effective(), "e", 1).await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Store(CoreErrorKind::TooLarge));
    });
}

#[test]
fn keys_with_the_same_hash_are_not_mixed() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        let head = scene.head().await.unwrap();
        scene.replace(&head, set_property(&head.body, "parkedKey", r#""[\"other\"]""#)).await;
        assert!(scene.letters.show(&k()).await.unwrap().is_none());
        assert!(!scene.append(&change("k", "a", 2)).await);
        let error = scene.letters.park(&change("k", "a", 1), &effective(), "e", 1).await;
        assert_eq!(*error.unwrap_err().kind(), ErrorKind::Conflict);
        assert!(scene.letters.finish_redrive(&k()).await.unwrap());
        assert!(scene.head().await.is_some());
    });
}

/// Puts a change off, and once more as after a crash.
async fn postpone(scene: &Scene, change: &Change, due: u64) {
    for _ in 0..2 {
        let due = Timestamp::from_millis(due);
        scene.letters.postpone(change, &effective(), due).await.unwrap();
    }
}

async fn postponed(scene: &Scene) -> Vec<String> {
    let page = scene.letters.list_postponed(None, 100).await.unwrap();
    let mut all: Vec<_> = page.changes.iter().map(|it| it.change.id.to_string()).collect();
    all.sort();
    all
}

#[test]
fn a_change_that_was_put_off_is_redriven_when_it_is_due() {
    on_both(async |scene| {
        let everything = [Arc::new(KeyRange::all())];
        let at = Timestamp::from_millis;
        postpone(&scene, &change("k", "a", 1), 5_000).await;
        postpone(&scene, &change("k", "b", 2), 3_000).await;
        assert_eq!(postponed(&scene).await, ["a", "b"]);
        let woken = scene.letters.wake(at(2_999), &everything).await.unwrap();
        assert!(woken.is_empty());
        assert_eq!(woken.next, Some(at(3_000)));
        assert!(scene.letters.wake(at(9_000), &[]).await.unwrap().is_empty());
        assert!(scene.letters.show(&k()).await.unwrap().is_none());

        // A crash before they are forgotten repeats and loses nothing.
        for _ in 0..2 {
            let woken = scene.letters.wake(at(4_000), &everything).await.unwrap();
            assert!(!woken.is_empty());
            assert_eq!(woken.next, Some(at(5_000)));
            assert_eq!(postponed(&scene).await, ["a", "b"]);
        }
        let woken = scene.letters.wake(at(4_000), &everything).await.unwrap();
        scene.letters.forget(&woken).await.unwrap();
        scene.letters.forget(&woken).await.unwrap();
        assert_eq!(postponed(&scene).await, ["a"]);
        let parked = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!(parked.state, ParkedState::Redriving);
        assert_eq!(scene.deliver_all("k", async |_| ()).await, "b@2");
    });
}

#[test]
fn a_change_that_is_due_waits_with_its_parked_key() {
    on_both(async |scene| {
        scene.park(&change("k", "c", 9)).await;
        postpone(&scene, &change("k", "a", 1), 2_000).await;
        let everything = [Arc::new(KeyRange::all())];
        scene.letters.wake(Timestamp::from_millis(2_000), &everything).await.unwrap();
        let parked = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!(parked.state, ParkedState::Parked);
        assert_eq!(scene.sequence("k").await, "a@1 c@9");
    });
}

#[test]
fn a_change_that_is_put_off_again_is_not_forgotten_by_whoever_woke_it_before() {
    on_both(async |scene| {
        let (a, everything) = (change("k", "a", 1), [Arc::new(KeyRange::all())]);
        postpone(&scene, &a, 2_000).await;
        let woken = scene.letters.wake(Timestamp::from_millis(2_000), &everything).await.unwrap();
        // Another instance, whose clock is behind, gets it delivered meanwhile.
        postpone(&scene, &a, 2_000).await;
        assert_eq!(scene.deliver_all("k", async |_| ()).await, "a@1");
        scene.letters.forget(&woken).await.unwrap();
        assert_eq!(postponed(&scene).await, ["a"]);
    });
}

#[test]
fn a_key_that_cannot_be_woken_keeps_no_other_waiting() {
    on_both(async |scene| {
        postpone(&scene, &change("k", "a", 1), 2_000).await;
        postpone(&scene, &change("m", "b", 2), 2_000).await;
        postpone(&scene, &change("n", "c", 3), 1_500).await;
        // Another key has the same hash as one of them, and the document of another is damaged.
        scene.park(&change("k", "z", 9)).await;
        let head = scene.head().await.unwrap();
        scene.replace(&head, set_property(&head.body, "parkedKey", r#""[\"other\"]""#)).await;
        let all = scene.documents().await;
        let damaged = all.iter().find(|it| it.id.as_str().contains(":later:00000000000000001500"));
        let damaged = damaged.unwrap();
        scene.replace(damaged, set_property(&damaged.body, "due", "\"soon\"")).await;
        let everything = [Arc::new(KeyRange::all())];
        let woken = scene.letters.wake(Timestamp::from_millis(2_000), &everything).await.unwrap();
        assert!(woken.failed.is_some());
        scene.letters.forget(&woken).await.unwrap();
        assert_eq!(scene.deliver_all("m", async |_| ()).await, "b@2");
        let left = scene.documents().await;
        let left = left.iter().filter(|it| it.id.as_str().contains(":later:")).count();
        assert_eq!(left, 2);
    });
}

#[test]
fn a_change_that_was_put_off_can_be_discarded() {
    on_both(async |scene| {
        postpone(&scene, &change("k", "a", 1), 2_000).await;
        let id = scene.letters.list_postponed(None, 1).await.unwrap().changes[0].id.clone();
        scene.letters.discard_postponed(&id).await.unwrap();
        let gone = scene.letters.discard_postponed(&id).await.unwrap_err();
        assert_eq!(*gone.kind(), ErrorKind::NotFound);
        assert!(postponed(&scene).await.is_empty());
    });
}

#[test]
fn a_skipped_change_is_redriven_alone() {
    on_both(async |scene| {
        let (a, b) = (change("k", "a", 1), change("k", "b", 1));
        for change in [&a, &b, &a] {
            scene.letters.skip(change, &effective(), "no", 2).await.unwrap();
        }
        let skipped = scene.letters.list_skipped(None, 100).await.unwrap();
        assert_eq!((skipped.changes.len(), skipped.next), (2, None));
        assert!(!scene.append(&change("k", "a", 3)).await);
        scene.letters.redrive_skipped(&skipped.changes[0]).await.unwrap();
        let again = scene.letters.redrive_skipped(&skipped.changes[0]).await.unwrap_err();
        assert_eq!(*again.kind(), ErrorKind::NotFound);
        scene.letters.redrive_skipped(&skipped.changes[1]).await.unwrap();
        let parked = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!((parked.state, parked.attempts), (ParkedState::Redriving, 2));
        let mut order = skipped.changes.iter().map(|it| format!("{}@1", it.change.id));
        let expected = format!("{} {}", order.next().unwrap(), order.next().unwrap());
        assert_eq!(scene.deliver_all("k", async |_| ()).await, expected);

        scene.letters.skip(&a, &effective(), "no", 2).await.unwrap();
        scene.park(&b).await;
        let skipped = scene.letters.list_skipped(None, 100).await.unwrap().changes;
        let refused = scene.letters.redrive_skipped(&skipped[0]).await.unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::Conflict);
    });
}

#[test]
fn operators_discard_a_sequence_or_one_change() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        scene.append(&change("k", "b", 2)).await;
        scene.append(&change("k", "c", 3)).await;
        scene.park(&change("other", "a", 1)).await;
        let found = scene.letters.sequence(&k(), None, 5).await.unwrap();
        scene.letters.discard_item(&k(), &found[0].id).await.unwrap();
        for (key, id) in [(k(), &found[0].id), ("other".into(), &found[1].id)] {
            let error = scene.letters.discard_item(&key, id).await.unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::NotFound);
        }
        assert_eq!(scene.sequence("k").await, "b@2 c@3");
        assert_eq!(scene.letters.discard(&k()).await.unwrap(), 2);
        assert_eq!(*scene.letters.discard(&k()).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(*scene.letters.redrive(&k()).await.unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!scene.append(&change("k", "d", 4)).await);
        // The last change takes the parking with it.
        let last = scene.letters.sequence(&"other".into(), None, 5).await.unwrap().remove(0);
        scene.letters.discard_item(&"other".into(), &last.id).await.unwrap();
        assert_eq!(scene.documents().await, []);
        assert!(scene.letters.discard_skipped("orders:skipped:x").await.is_err());
    });
}

#[test]
fn keys_are_listed_by_page_and_by_range() {
    on_both(async |scene| {
        let halves = KeyRange::divide(2).unwrap();
        for (number, place) in ["10", "20", "30"].into_iter().cycle().take(30).enumerate() {
            let change = change(&format!("key-{number}"), "a", 1);
            let place = place.parse().unwrap();
            scene.letters.park(&change, &place, "e", 1).await.unwrap();
            assert!(scene.letters.append_if_parked(&change, &place).await.unwrap());
        }
        // Another processor has nothing to do with it.
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&scene.clock);
        let other = DeadLetters::new(&scene.container, "ord", clock, Duration::from_secs(5));
        assert_eq!(other.unwrap().parked_keys(&KeyRange::all()).await.unwrap(), []);
        assert_eq!(scene.letters.parked_keys(&halves[0]).await.unwrap().len(), 10);
        assert_eq!(scene.letters.parked_keys(&halves[1]).await.unwrap().len(), 20);
        let (mut count, mut after) = (0, None::<String>);
        loop {
            let page = scene.letters.list_parked(after.as_deref(), 7).await.unwrap();
            assert!(page.sequences.len() <= 7);
            count += page.sequences.len();
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(count, 30);
        assert_eq!(scene.letters.redrive_all().await.unwrap(), 30);
        let redriven = scene.letters.parked_keys(&KeyRange::all()).await.unwrap();
        assert!(redriven.iter().all(|it| it.state == ParkedState::Redriving));
    });
}

#[test]
fn what_a_later_version_added_is_kept() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        let head = scene.head().await.unwrap();
        scene.replace(&head, set_property(&head.body, "later", r#"{"x":[1]}"#)).await;
        scene.letters.redrive(&k()).await.unwrap();
        scene.append(&change("k", "a", 2)).await;
        let body: serde_json::Value =
            serde_json::from_slice(&scene.head().await.unwrap().body).unwrap();
        assert_eq!(body["later"].to_string(), r#"{"x":[1]}"#);
        assert_eq!((&body["state"], &body["ttl"]), (&"redriving".into(), &(-1).into()));
    });
}

#[test]
fn documents_of_a_newer_schema_are_refused() {
    on_both(async |scene| {
        scene.park(&change("k", "a", 1)).await;
        for item in scene.documents().await {
            let schema = r#"{"writtenBy":9,"minReader":9}"#;
            let is_head = !item.id.as_str().ends_with("0000");
            scene.replace(&item, set_property(&item.body, "schema", schema)).await;
            if is_head {
                let error = scene.letters.show(&k()).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::NewerSchema);
                let late = change("k", "a", 2);
                let error = scene.letters.append_if_parked(&late, &effective()).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::NewerSchema);
                scene.replace(&scene.head().await.unwrap(), item.body).await;
            } else {
                let error = scene.letters.sequence(&k(), None, 5).await.unwrap_err();
                assert_eq!(*error.kind(), ErrorKind::NewerSchema);
            }
        }
    });
}

#[test]
fn a_container_with_another_partition_key_is_refused() {
    let message = |path: &str| match block_on(scene(path)) {
        Ok(_) => "used".to_owned(),
        Err(error) => error.to_string(),
    };
    assert_eq!(message("/pk"), "used");
    let refused = "could not keep dead letters in the container app/letters";
    for path in ["/a/b", "/schema", "/lsn", "/state"] {
        assert_eq!(message(path), refused, "{path}");
    }
}

#[test]
fn the_properties_of_the_documents_are_those_that_are_reserved() {
    let mut letter = Letter::new(&change("k", "a", 1), &effective(), Timestamp::EPOCH).unwrap();
    letter.generation = Some(String::new());
    letter.due = Some(0);
    let head = Head::new(&letter, ParkedState::Parked, Timestamp::EPOCH);
    let mut found = vec!["ttl".to_owned()];
    for value in [serde_json::to_value(&letter).unwrap(), serde_json::to_value(&head).unwrap()] {
        found.extend(value.as_object().unwrap().keys().cloned());
    }
    found.sort_unstable();
    found.dedup();
    assert_eq!(found, PROPERTIES);
}

#[test]
fn a_long_error_is_cut_between_characters() {
    on_both(async |scene| {
        let error = "ä".repeat(5_000);
        scene.letters.park(&change("k", "a", 1), &effective(), &error, 1).await.unwrap();
        let shown = scene.letters.show(&k()).await.unwrap().unwrap();
        assert_eq!(shown.error, "ä".repeat(2_048));
    });
}

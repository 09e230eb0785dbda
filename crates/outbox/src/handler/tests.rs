use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use millstream_core::Clock;
use millstream_core::conformance::block_on;

use crate::test_world::{Contact, World, told};
use crate::{Changes, ErrorKind, EventHandler, HandlerError, RaisedEvent};

/// Yields before it answers, as a handler that waits for something does.
async fn yielded() {
    let mut waited = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut waited, true) {
            return std::task::Poll::Ready(());
        }
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

/// Writes down what it hears, and refuses once one action.
struct Recorder {
    heard: Arc<Mutex<Vec<String>>>,
    refuses: Mutex<Option<&'static str>>,
}

#[async_trait]
impl EventHandler for Recorder {
    async fn handle(&self, event: &RaisedEvent, _: &mut Changes) -> Result<(), HandlerError> {
        yielded().await;
        if *self.refuses.lock().unwrap() == Some(event.action.as_str()) {
            *self.refuses.lock().unwrap() = None;
            return Err("not today".into());
        }
        self.heard.lock().unwrap().push(event.action.clone());
        Ok(())
    }
}

fn recorder(refuses: Option<&'static str>) -> (Recorder, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    (Recorder { heard: Arc::clone(&heard), refuses: Mutex::new(refuses) }, heard)
}

#[test]
fn an_event_handler_is_awaited_and_its_failure_refuses_the_commit() {
    let world = World::new();
    let (handler, heard) = recorder(Some("ContactCreated"));
    let outbox = world.outbox().on_event(handler);
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        let error = unit.commit().await.unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Refused);
        assert_eq!(error.report(), "could not commit \"ContactCreated\" of \"a\": not today");
        assert!(world.items("a").await.is_empty());
        assert_eq!(world.faults.commits(), 0);
        unit.commit().await.unwrap();
        assert_eq!(*heard.lock().unwrap(), ["ContactCreated"]);
    });
}

#[test]
fn handlers_hear_of_an_event_once_however_often_the_commit_is_repeated() {
    let world = World::new();
    let (first, first_heard) = recorder(None);
    let (second, second_heard) = recorder(Some("ContactCreated"));
    let outbox = world.outbox().on_event(first).on_event(second);
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("a")).unwrap();
        unit.commit().await.unwrap_err();
        world.faults.plan("rd");
        unit.commit().await.unwrap_err();
        unit.commit().await.unwrap_err();
        unit.commit().await.unwrap();
        assert_eq!(*first_heard.lock().unwrap(), ["ContactCreated"]);
        assert_eq!(*second_heard.lock().unwrap(), ["ContactCreated"]);
    });
}

#[test]
fn a_handler_adds_events_and_entities_to_the_same_commit() {
    let world = World::new();
    let (handler, heard) = recorder(None);
    let outbox = world.outbox().on_event(handler).on_event_fn(|event, changes| {
        Box::pin(async move {
            yielded().await;
            if event.action == "ContactCreated" && event.entity_id == "h-1" {
                changes.raise(&event.entity_id, told("Welcomed", "hello"))?;
                changes.create(Contact::new("h-2"))?;
                changes.get_mut::<Contact>("h-1").ok_or("it is there")?.visit();
            }
            Ok(())
        })
    });
    block_on(async {
        let mut unit = outbox.unit();
        unit.create(Contact::new("h-1")).unwrap();
        let committed = unit.commit().await.unwrap();
        assert_eq!(committed.events.len(), 3);
        let expected = ["ContactCreated", "Welcomed", "ContactCreated"];
        assert_eq!(*heard.lock().unwrap(), expected);
        assert_eq!(world.actions("h").await, expected);
        let stored = unit.read::<Contact>("h", "h-1").await.unwrap().unwrap().entity;
        assert_eq!(stored.visits, 1);
        assert_eq!(world.faults.commits(), 1);
    });
}

#[test]
fn handlers_that_answer_themselves_are_stopped() {
    let world = World::new();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let outbox = world.outbox().on_event_fn(move |event, changes| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move { Ok(changes.raise(&event.entity_id, told("Again", "x"))?) })
    });
    let mut unit = outbox.unit();
    unit.create(Contact::new("a")).unwrap();
    let error = block_on(unit.commit()).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::HandlersNeverEnd);
    assert!(calls.load(Ordering::Relaxed) <= 1000);
    assert_eq!(world.faults.commits(), 0);
}

#[test]
fn a_handler_sees_the_event_as_it_will_be_stored() {
    let world = World::new();
    let seen = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&seen);
    let outbox = world.outbox().on_event_fn(move |event, _| {
        *kept.lock().unwrap() = Some(event.clone());
        Box::pin(async { Ok(()) })
    });
    let raised_at = world.clock.now();
    let mut unit = outbox.unit();
    unit.create(Contact::new("a")).unwrap();
    world.clock.advance(Duration::from_secs(60));
    let committed = block_on(unit.commit()).unwrap();
    let seen = seen.lock().unwrap().take().unwrap();
    assert_eq!(seen.created_at, raised_at);
    assert_eq!(committed.events[0].event, seen);
}

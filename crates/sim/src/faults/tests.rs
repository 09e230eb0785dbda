use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::conformance::block_on;
use millstream_core::{
    Batch, BoxFuture, Container, Effect, Error, ErrorKind, FeedMode, Item, ItemId, KeyRange,
    Operation, PageSize, Result, ScanScope, StartFrom,
};

use crate::executor::{Executor, NodeId, Stopped};
use crate::faults::{FaultRates, Link};
use crate::rng::Rng;
use crate::testing;
use crate::truth::version_in;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// One node, its faulty way to a container, and that container.
struct Scene {
    executor: Executor,
    node: NodeId,
    link: Arc<Link>,
    near: Container,
    far: Container,
}

impl Scene {
    fn new(rates: FaultRates) -> Self {
        let executor = Executor::new(1);
        let far = testing::container(executor.handle(), 1);
        let node = executor.handle().add_node("node");
        let link = Link::new(executor.handle(), node, rates, HOUR, Rng::stream(1, "link"));
        let near = link.wrap(&far, Some(&Arc::default()));
        Self { executor, node, link, near, far }
    }

    /// What a call of the node comes to, and when.
    fn run<T: Send + 'static>(&mut self, call: BoxFuture<'static, T>) -> (T, Duration) {
        let answer: Arc<Mutex<Option<T>>> = Arc::default();
        let slot = Arc::clone(&answer);
        let task = async move {
            let found = call.await;
            *slot.lock().unwrap() = Some(found);
        };
        self.executor.handle().spawn(self.node, Box::pin(task));
        let begun = self.executor.handle().now();
        let is_done = || answer.lock().unwrap().is_some();
        assert_eq!(self.executor.run_until_either(HOUR * 2, is_done), Stopped::Done);
        let found = answer.lock().unwrap().take().unwrap();
        (found, self.executor.handle().now() - begun)
    }

    fn commit(&mut self, version: u64) -> (Result<()>, Duration) {
        let documents = Arc::clone(&self.near.documents);
        self.run(Box::pin(async move { documents.commit(batch(version)).await.map(drop) }))
    }

    fn scan(&mut self) -> Vec<Option<u64>> {
        let documents = Arc::clone(&self.near.documents);
        let (items, _) = self.run(Box::pin(async move {
            let (mut items, mut after): (Vec<Item>, _) = (Vec::new(), None);
            loop {
                let size = PageSize::items(1);
                let page = documents.scan(&partition(), after.as_ref(), size).await.unwrap();
                items.extend(page.items);
                after = page.continuation;
                if after.is_none() {
                    return items;
                }
            }
        }));
        items.iter().map(|it| version_in(&it.body)).collect()
    }

    fn stored(&self) -> Option<u64> {
        let item = block_on(self.far.documents.read(&"k".into(), &ItemId::new("a").unwrap()));
        version_in(&item.unwrap()?.body)
    }
}

/// Writes two items, so that a torn listing would show.
fn batch(version: u64) -> Batch {
    ["a", "b"].into_iter().fold(Batch::new("k"), |batch, id| {
        let body = format!(r#"{{"id":"{id}","partitionKey":"k","version":{version}}}"#);
        batch.with(Operation::upsert(body))
    })
}

fn partition() -> ScanScope {
    ScanScope::Partition("k".into())
}

#[track_caller]
fn check_error(result: Result<()>, kind: ErrorKind, effect: Effect) -> Error {
    let error = result.expect_err("this should fail");
    assert_eq!((error.kind(), error.effect()), (kind, effect));
    error
}

#[test]
fn without_faults_everything_passes_at_once() {
    let mut scene = Scene::new(FaultRates::NONE);
    let (result, time) = scene.commit(1);
    assert!(result.is_ok() && time.is_zero());
    assert_eq!(scene.scan(), [Some(1), Some(1)]);
    assert_eq!(scene.link.faults(), 0);
}

#[test]
fn a_lost_request_changes_nothing() {
    let mut scene = Scene::new(FaultRates { lost_request: 1000, ..FaultRates::NONE });
    check_error(scene.commit(1).0, ErrorKind::Unavailable, Effect::None);
    assert_eq!(scene.stored(), None);
    let mut scene = Scene::new(FaultRates { lost_unknown: 1000, ..FaultRates::NONE });
    check_error(scene.commit(1).0, ErrorKind::Unavailable, Effect::Unknown);
    assert_eq!(scene.stored(), None);
}

#[test]
fn a_lost_reply_comes_after_the_effect() {
    let mut scene = Scene::new(FaultRates { lost_reply: 1000, ..FaultRates::NONE });
    check_error(scene.commit(1).0, ErrorKind::Unavailable, Effect::Unknown);
    assert_eq!(scene.stored(), Some(1));
}

#[test]
fn a_late_effect_comes_after_the_error() {
    let rates = FaultRates { late_effect: 1000, hang_max: SECOND * 60, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    check_error(scene.commit(1).0, ErrorKind::Unavailable, Effect::Unknown);
    assert_eq!(scene.stored(), None);
    scene.executor.run_until(SECOND * 60);
    assert_eq!(scene.stored(), Some(1));
}

#[test]
fn a_throttled_request_says_when_to_come_back() {
    let mut scene = Scene::new(FaultRates { throttled: 1000, ..FaultRates::NONE });
    let error = check_error(scene.commit(1).0, ErrorKind::Overloaded, Effect::None);
    assert!(error.retry_after().is_some());
    assert_eq!(scene.stored(), None);
}

#[test]
fn a_hang_takes_long_and_then_fails() {
    let rates = FaultRates { hang: 1000, hang_max: SECOND * 60, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    let (result, time) = scene.commit(1);
    check_error(result, ErrorKind::Unavailable, Effect::Unknown);
    assert!(SECOND * 20 <= time && time <= SECOND * 60, "{time:?}");
}

#[test]
fn a_request_on_its_way_survives_its_sender() {
    let rates = FaultRates { delay: 1000, delay_max: SECOND * 60, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    let documents = Arc::clone(&scene.near.documents);
    let handle = scene.executor.handle().clone();
    handle.spawn(scene.node, Box::pin(async move { drop(documents.commit(batch(1)).await) }));
    scene.executor.run_until(Duration::ZERO);
    assert_eq!(scene.stored(), None);
    handle.kill(scene.node);
    scene.executor.run_until(SECOND * 60);
    assert_eq!(scene.stored(), Some(1));
}

#[test]
fn an_old_listing_is_a_state_that_once_was() {
    let rates = FaultRates { stale_list: 500, stale_age_max: SECOND * 10, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    let mut old = 0;
    for version in 1..200 {
        block_on(scene.far.documents.commit(batch(version))).unwrap();
        let seen = scene.scan();
        // The first scans may find nothing older to show than an empty container.
        if let [one, other] = *seen.as_slice() {
            assert_eq!(one, other, "a torn listing");
            assert!(one <= Some(version));
            assert!(Some(version.saturating_sub(11)) <= one, "too old: {one:?} at {version}");
            old += u32::from(one < Some(version));
        }
        let now = scene.executor.handle().now();
        scene.executor.run_until(now + SECOND);
    }
    assert!((20..150).contains(&old), "{old}");
    scene.link.heal();
    assert_eq!(scene.scan(), [Some(199), Some(199)]);
}

#[test]
fn a_cut_lets_nothing_pass_until_it_ends() {
    let mut scene = Scene::new(FaultRates::NONE);
    let handle = scene.executor.handle().clone();
    scene.link.cut_off(SECOND * 10);
    assert!(scene.commit(1).0.is_err());
    let feed = Arc::clone(&scene.near.feed);
    assert!(scene.run(Box::pin(async move { feed.ranges().await })).0.is_err());
    assert_eq!(scene.stored(), None);
    scene.executor.run_until(handle.now() + SECOND * 10);
    assert!(scene.commit(2).0.is_ok());
    scene.link.cut_off(SECOND * 10);
    scene.link.heal();
    assert!(scene.commit(3).0.is_ok());
}

#[test]
fn wake_ups_come_without_reason_or_late() {
    let waiting = |scene: &Scene| {
        let (feed, keys) = (Arc::clone(&scene.near.feed), KeyRange::all());
        async move {
            let mode = FeedMode::LatestVersion;
            let after = feed.start(&keys, StartFrom::Now, mode).await.unwrap();
            feed.wait(&keys, &after).await
        }
    };
    let late_wake_max = SECOND * 5;
    let rates = FaultRates { spurious_wake: 1000, late_wake_max, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    let wait = waiting(&scene);
    let (result, time) = scene.run(Box::pin(wait));
    assert!(result.is_ok() && time <= late_wake_max);

    let rates = FaultRates { late_wake: 1000, late_wake_max, ..FaultRates::NONE };
    let mut scene = Scene::new(rates);
    let handle = scene.executor.handle().clone();
    let (far, own) = (scene.far.clone(), handle.clone());
    handle.spawn(
        NodeId::WORLD,
        Box::pin(async move {
            own.sleep(SECOND).await;
            far.documents.commit(batch(1)).await.unwrap();
        }),
    );
    let wait = waiting(&scene);
    let (result, time) = scene.run(Box::pin(wait));
    assert!(result.is_ok() && SECOND < time && time <= SECOND + late_wake_max, "{time:?}");
}

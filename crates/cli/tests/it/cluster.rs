//! Many processes on a cluster of NATS servers, none of which keeps anything.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_backend_nats::{NatsStore, NatsTopic, SubscriptionOptions, TopicOptions};
use millstream_core::{
    Clock, Container, ContainerName, Containers, Delivery, RandomIds, SessionReceiver, Settlement,
    Subscriber, SystemClock,
};
use millstream_outbox::{ErrorKind, Outbox, UnitOfWork};
use millstream_prove::{Account, Counted};
use tokio_util::sync::CancellationToken;

use crate::process::{Up, eventually, run, succeed};
use crate::server::Servers;

const INSTANCES: usize = 4;
const KEYS: u64 = 40;
const WRITERS: u64 = 4;
const RECEIVERS: usize = 8;
/// How long instances are killed; minutes if somebody asks for them.
const SECONDS: u64 = 15;
const SECONDS_VARIABLE: &str = "MILLSTREAM_TEST_KILL_SECONDS";
/// After the last kill something must be delivered in so long, until all is.
const PATIENCE: Duration = Duration::from_secs(90);

/// What was committed, and what came of it.
#[derive(Default)]
struct Truth {
    committed: Mutex<BTreeMap<String, u64>>,
    seen: Mutex<BTreeMap<String, u64>>,
    repeated: AtomicU64,
    disorder: Mutex<Vec<String>>,
}

impl Truth {
    fn see(&self, delivery: &Delivery) {
        let key = delivery.message.session_id.clone().unwrap();
        let event: Counted = serde_json::from_slice(&delivery.message.body).unwrap();
        let mut seen = self.seen.lock().unwrap();
        let last = seen.entry(key.clone()).or_default();
        if event.version <= *last {
            self.repeated.fetch_add(1, Ordering::SeqCst);
            return;
        }
        if event.version != *last + 1 {
            let found = format!("{key}: {} after {last}", event.version);
            self.disorder.lock().unwrap().push(found);
        }
        *last = event.version;
    }

    fn behind(&self) -> u64 {
        let seen = self.seen.lock().unwrap();
        let committed = self.committed.lock().unwrap();
        let missing = committed
            .iter()
            .map(|(key, version)| version.saturating_sub(seen.get(key).copied().unwrap_or(0)));
        missing.sum()
    }
}

async fn write(data: Container, truth: Arc<Truth>, writer: u64, stop: Arc<AtomicBool>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::default());
    let ids = Arc::new(RandomIds::new(Arc::clone(&clock)));
    let outbox = Outbox::new(&data, clock, ids).unwrap();
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let key = format!("key-{}", round % (KEYS / WRITERS) * WRITERS + writer);
        let mut unit = outbox.unit();
        let found = unit.read::<Account>(key.as_str(), &key).await.unwrap();
        let version = match found {
            Some(mut found) => {
                for _ in 0..2 {
                    found.entity.count();
                }
                let version = found.entity.version();
                unit.update(found.entity, found.etag).unwrap();
                version
            }
            None => {
                unit.create(Account::new(&key)).unwrap();
                1
            }
        };
        commit_surely(&mut unit).await;
        truth.committed.lock().unwrap().insert(key, version);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn commit_surely(unit: &mut UnitOfWork) {
    while let Err(error) = unit.commit().await {
        assert_eq!(*error.kind(), ErrorKind::Unknown, "{}", error.report());
    }
}

async fn receive(subscriber: impl Subscriber, truth: Arc<Truth>) {
    loop {
        let accepted = subscriber.accept_session(Duration::from_secs(1)).await.unwrap();
        let Some(session) = accepted else { continue };
        take(&*session, &truth).await;
    }
}

async fn take(session: &dyn SessionReceiver, truth: &Truth) {
    let Ok(received) = session.receive(20, Duration::ZERO).await else { return };
    for delivery in &received {
        truth.see(delivery);
    }
    // Who lost the session sees the messages again, which is not disorder.
    let _ = session.settle(&received, Settlement::Complete).await;
    let _ = session.close().await;
}

/// Kills any two, and starts two others in their place.
fn kill_two(instances: &mut Vec<Up>, directory: &Path, url: &str, random: &mut u64) {
    for _ in 0..2 {
        *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let place = usize::try_from(*random >> 33).unwrap() % instances.len();
        instances.swap_remove(place).kill();
    }
    std::thread::sleep(Duration::from_millis(500 + (*random >> 40) % 1500));
    for _ in 0..2 {
        instances.push(Up::start(directory, &["--store", url]));
    }
}

async fn topic(servers: &Servers) -> NatsTopic {
    servers.topic("events", &TopicOptions::default()).await
}

#[test]
fn four_instances_lose_and_reorder_nothing_while_any_two_are_killed() {
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|it| it.parse().ok());
    let duration = Duration::from_secs(seconds.unwrap_or(SECONDS));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let servers = Servers::start(3);
    let url = servers.url();
    let truth = Arc::new(Truth::default());
    let stop = Arc::new(AtomicBool::new(false));
    // Waits until the servers have found together, and makes the subscription before any event.
    let topic = runtime.block_on(topic(&servers));
    runtime.block_on(topic.create_subscription("default", true)).unwrap();
    let mut instances: Vec<Up> =
        (0..INSTANCES).map(|_| Up::start(directory.path(), &["--store", &url])).collect();
    let (data, subscriber, service) = runtime.block_on(async {
        let store = NatsStore::open(servers.connect().await).await.unwrap();
        let data = store.open(&ContainerName::new("app", "data").unwrap()).await.unwrap();
        let options = SubscriptionOptions::default();
        let (subscriber, service) = topic.subscribe("default", options).await.unwrap();
        (data, subscriber, service)
    });
    runtime.spawn(service.run(CancellationToken::new()));
    for _ in 0..RECEIVERS {
        runtime.spawn(receive(subscriber.clone(), Arc::clone(&truth)));
    }
    let writers: Vec<_> = (0..WRITERS)
        .map(|it| runtime.spawn(write(data.clone(), Arc::clone(&truth), it, Arc::clone(&stop))))
        .collect();
    let clock = SystemClock::default();
    let (mut random, mut kills) = (17, 0);
    while clock.monotonic() < duration {
        std::thread::sleep(Duration::from_millis(1500 + (random >> 40) % 2000));
        kill_two(&mut instances, directory.path(), &url, &mut random);
        kills += 2;
    }
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        runtime.block_on(writer).unwrap();
    }
    let (mut behind, mut deadline) = (truth.behind(), clock.monotonic() + PATIENCE);
    while 0 < behind && clock.monotonic() < deadline {
        std::thread::sleep(Duration::from_millis(100));
        if truth.behind() < behind {
            (behind, deadline) = (truth.behind(), clock.monotonic() + PATIENCE);
        }
    }
    let events: u64 = truth.committed.lock().unwrap().values().sum();
    let repeated = truth.repeated.load(Ordering::SeqCst);
    eprintln!("{kills} instances killed, {events} events, {repeated} came again");
    assert_eq!(truth.behind(), 0, "events were lost");
    assert_eq!(*truth.disorder.lock().unwrap(), Vec::<String>::new());
    assert!(0 < events && 0 < kills);
}

#[test]
fn the_demonstration_runs_on_nats_in_two_processes() {
    let directory = tempfile::tempdir().unwrap();
    let servers = Servers::start(1);
    let url = servers.url();
    let arguments = ["--demo", "--rate", "40", "--store", url.as_str()];
    let first = Up::start(directory.path(), &arguments);
    let second = Up::start(directory.path(), &arguments);
    let got = |up: &Up| up.metric("millstream_demo_events_total{consumer=\"search\"}");
    eventually("both processes get events", || 5.0 < got(&first) && 5.0 < got(&second));
    first.kill();
    let before = got(&second);
    eventually("the other one goes on", || before + 20.0 < got(&second));
    assert_eq!(second.metric("millstream_demo_out_of_order_total{consumer=\"search\"}"), 0.0);
    let path = directory.path();
    let found = succeed(path, &["topics", "--store", &url]);
    assert!(found.contains("contacts/Subscriptions/search"), "{found}");
    let lag = succeed(path, &["lag", "--store", &url]);
    assert!(lag.contains("contacts"), "{lag}");
    let refused = run(path, &["peek", "contacts", "--store", &url]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert_eq!(second.stop(), Some(0));
}

#[test]
fn a_directory_is_migrated_to_nats_and_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let servers = Servers::start(1);
    let url = servers.url();
    let up = Up::start(path, &[]);
    up.stop();
    let line =
        |it: u32| format!("{{\"id\":\"{it}\",\"partitionKey\":\"p{}\",\"n\":{it}}}\n", it % 7);
    let lines: String = (0..300).map(line).collect();
    let imported = crate::process::run_with_input(path, &["import", "app/data"], &lines);
    assert_eq!(imported.code, Some(0), "{imported:?}");
    let there = ["migrate", "--from", "file:data", "--to", &url];
    let out = succeed(path, &[&there[..], &["--once"]].concat());
    assert_eq!(out, "app/data: 300 changes copied\n");
    let out = succeed(path, &[&there[..], &["--switch"]].concat());
    let same = "300 changes copied, 0 removed, 0 repaired; 300 items are the same on both sides";
    assert_eq!(out, format!("app/data: {same}\n"));
    let again = run(path, &[&there[..], &["--switch"]].concat());
    assert!(again.err.contains("switched already"), "{again:?}");
    let back = ["migrate", "--from", &url, "--to", "file:again", "--switch"];
    assert_eq!(succeed(path, &back), format!("app/data: {same}\n"));
    let exported = |store: &str| {
        let text = succeed(path, &["export", "app/data", "--store", store]);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(exported("file:again"), exported("file:data"));
    let wrong = run(path, &["migrate", "--from", "file:data", "--to", "file:data"]);
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}

//! What the tools do with topics on NATS.

use std::fs;
use std::path::Path;
use std::time::Duration;

use millstream_backend_nats::{NatsTopic, SubscriptionOptions, TopicOptions};
use millstream_core::{Settlement, Subscriber};
use tokio_util::sync::CancellationToken;

use crate::process::{Up, eventually, run, run_with_input, succeed};
use crate::server::Servers;
use crate::tools::event;

const WAIT: Duration = Duration::from_secs(30);

/// Takes a message and makes it a dead letter.
async fn bury_one(topic: &NatsTopic) {
    let options = SubscriptionOptions::default();
    let (subscriber, service) = topic.subscribe("default", options).await.unwrap();
    let stop = CancellationToken::new();
    let service = tokio::spawn(service.run(stop.clone()));
    let session = subscriber.accept_session(WAIT).await.unwrap().expect("there is a message");
    let received = session.receive(1, WAIT).await.unwrap();
    let (reason, description) = ("Wrong".to_owned(), "it is wrong".to_owned());
    let dead = Settlement::DeadLetter { reason, description };
    session.settle(&received, dead).await.unwrap();
    stop.cancel();
    service.await.unwrap();
}

fn import_one(directory: &Path, url: &str) {
    let arguments = ["import", "app/data", "--store", url];
    let ended = run_with_input(directory, &arguments, &event("a", 1));
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

#[test]
fn dead_letters_on_nats_are_thrown_away_and_have_no_way_back() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let config = "[relay]\nduplicate_window_seconds = 120\n";
    fs::write(path.join("millstream.toml"), config).unwrap();
    let servers = Servers::start(1);
    let url = servers.url();
    let up = Up::start(path, &["--store", &url]);
    import_one(path, &url);
    let sent = "millstream_relay_published_total{relay=\"events\"}";
    eventually("it is sent", || up.metric(sent) == 1.0);
    let topic = runtime.block_on(servers.topic("events", &TopicOptions::default()));
    assert_eq!(topic.duplicate_window(), Duration::from_secs(120));
    runtime.block_on(bury_one(&topic));

    let on_nats = |arguments: &[&str]| run(path, &[arguments, &["--store", &url]].concat());
    let subscription = "events/Subscriptions/default";
    let dead = "events/Subscriptions/default/$DeadLetterQueue";
    let asked = on_nats(&["purge", dead]);
    assert_eq!(asked.code, Some(2), "{asked:?}");
    assert!(asked.err.contains(": 1 waiting message of "), "{asked:?}");
    let back = on_nats(&["resubmit", subscription]);
    assert_eq!(back.code, Some(2), "{back:?}");
    assert!(back.err.contains("no way back for dead letters"), "{back:?}");
    let others = on_nats(&["purge", subscription, "--yes"]);
    assert_eq!(others.code, Some(2), "{others:?}");
    let purged = succeed(path, &["purge", dead, "--yes", "--store", &url]);
    assert_eq!(purged, "1 message was thrown away\n");
    assert!(on_nats(&["purge", dead]).err.contains(": 0 waiting messages of "));
    assert_eq!(up.stop(), Some(0));
}

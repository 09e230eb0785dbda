//! The parts together, on the embedded store and over real sockets.

use std::sync::Arc;

use contacts::{ContactContainers, ContactService, Generator, GeneratorOptions, WebhookReceiver};
use millstream_core::{Message, Publisher, RandomIds, SystemClock};
use millstream_store::Store;
use millstream_webhook::{Signer, Webhook, WebhookOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

async fn open(store: &Store) -> ContactService {
    let clock = Arc::new(SystemClock::default());
    let containers = ContactContainers::prepare(store).await.unwrap();
    let ids = Arc::new(RandomIds::new(clock.clone()));
    ContactService::new(&containers.data, clock, ids).unwrap()
}

#[tokio::test]
async fn contacts_are_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let mut pages = Vec::new();
    for _ in 0..2 {
        let store = Store::open(directory.path()).unwrap();
        let service = open(&store).await;
        if pages.is_empty() {
            let clock = Arc::new(SystemClock::default());
            let options = GeneratorOptions::default();
            let mut generator = Generator::new(service.clone(), clock, options);
            for _ in 0..30 {
                generator.step().await.unwrap();
            }
        }
        pages.push(service.list(100, None).await.unwrap());
    }
    assert!(!pages[0].contacts.is_empty());
    assert_eq!(pages[0], pages[1]);
}

#[tokio::test]
async fn the_service_answers_over_http_until_it_is_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path()).unwrap();
    let router = contacts::router(open(&store).await);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let ask = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = "GET /api/contacts HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        shutdown.cancel();
        answer
    };
    let (served, answer) = tokio::join!(contacts::serve(listener, router, shutdown.clone()), ask);
    served.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with(r#"{"items":[],"hasMore":false,"continuation":null}"#), "{answer}");
}

#[tokio::test]
async fn what_a_webhook_posts_is_received_once_and_in_order() {
    let signer = Signer::new(SECRET).unwrap();
    let clock = Arc::new(SystemClock::default());
    let receiver = WebhookReceiver::new(Some(signer.clone()), clock);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let shutdown = CancellationToken::new();
    let messages: Vec<Message> = (1..=20)
        .map(|number| {
            let session = format!("contact-{}", number % 4);
            Message::new(format!("event-{number}"), r#"{"action":"ContactCreated"}"#)
                .property("cloudEvents:partitionkey", session.as_str())
                .property("cloudEvents:sequence", ((number + 3) / 4).to_string())
                .session(session)
        })
        .collect();
    let send = async {
        let webhook = Webhook::new(&address, WebhookOptions::default().signer(signer)).unwrap();
        for _ in 0..2 {
            webhook.publish(messages.clone()).await.unwrap();
        }
        drop(webhook);
        shutdown.cancel();
    };
    let router = receiver.router();
    let (served, ()) = tokio::join!(contacts::serve(listener, router, shutdown.clone()), send);
    served.unwrap();
    let found = receiver.statistics().get();
    assert_eq!((found.received, found.duplicates), (20, 20));
    assert_eq!((found.out_of_order, found.refused), (0, 0));
}

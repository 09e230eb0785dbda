//! The webhook against a small server on a free port of this machine.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream_core::{ErrorKind, Message, Publisher, Timestamp};
use millstream_webhook::{Signer, Webhook, WebhookOptions};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// What is answered with silence, and with more than anybody wants to read.
const NEVER: &str = "never";
const LONG: &str = "500 Long";

#[derive(Clone, Debug)]
struct Posted {
    head: String,
    body: String,
}

impl Posted {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|it| it.split_once(": "));
        lines.into_iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map_or("", |(_, it)| it)
    }
}

type Log = Arc<Mutex<Vec<Posted>>>;

/// Answers every request with what `answer` says about its body.
async fn serve<F>(answer: F) -> (String, Log)
where
    F: Fn(&str) -> &'static str + Copy + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/hook", listener.local_addr().unwrap());
    let log = Log::default();
    let shared = Arc::clone(&log);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let log = Arc::clone(&shared);
            tokio::spawn(async move {
                let mut read = Vec::new();
                let mut buffer = [0; 4096];
                loop {
                    let Ok(count) = stream.read(&mut buffer).await else { return };
                    if count == 0 {
                        return;
                    }
                    read.extend_from_slice(&buffer[..count]);
                    let text = String::from_utf8_lossy(&read).into_owned();
                    let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                    let head = head.to_owned();
                    let posted = Posted { head, body: body.to_owned() };
                    let length: usize = posted.header("content-length").parse().unwrap_or(0);
                    if body.len() < length {
                        continue;
                    }
                    let line = answer(body);
                    log.lock().unwrap().push(posted);
                    if line == NEVER {
                        return std::future::pending().await;
                    }
                    let text = if line == LONG { "x".repeat(5_000) } else { "ok".to_owned() };
                    let length = text.len();
                    let answer =
                        format!("HTTP/1.1 {line}\r\ncontent-length: {length}\r\n\r\n{text}");
                    if stream.write_all(answer.as_bytes()).await.is_err() {
                        return;
                    }
                    read.clear();
                }
            });
        }
    });
    (address, log)
}

fn message(session: &str, number: usize) -> Message {
    Message::new(format!("{session}-{number}"), format!("{session} {number}"))
        .session(session)
        .content_type("text/plain")
        .property("cloudEvents:type", "Changed")
        .property("traceparent", "00-1-2-01")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_of_a_session_are_posted_in_order_and_signed() {
    let (address, log) = serve(|_| "200 OK").await;
    let options = WebhookOptions::default().signer(Signer::new(SECRET).unwrap());
    let webhook = Webhook::new(&address, options).unwrap();
    let messages = (0..20).flat_map(|it| [message("a", it), message("b", it)]).collect();
    webhook.publish(messages).await.unwrap();
    let log = log.lock().unwrap().clone();
    assert_eq!(log.len(), 40);
    for session in ["a", "b"] {
        let bodies: Vec<_> = log.iter().filter(|it| it.body.starts_with(session)).collect();
        let expected: Vec<_> = (0..20).map(|it| format!("{session} {it}")).collect();
        assert_eq!(bodies.iter().map(|it| it.body.clone()).collect::<Vec<_>>(), expected);
    }
    let signer = Signer::new(SECRET).unwrap();
    for posted in &log {
        let seconds: u64 = posted.header("webhook-timestamp").parse().unwrap();
        let time = Timestamp::from_millis(seconds * 1000);
        let (signature, id) = (posted.header("webhook-signature"), posted.header("webhook-id"));
        assert!(signer.verify(signature, id, time, posted.body.as_bytes()), "{posted:?}");
        assert_eq!(posted.header("ce-type"), "Changed");
        assert_eq!(posted.header("traceparent"), "00-1-2-01");
    }
}

#[tokio::test]
async fn a_refusal_names_the_message_and_nothing_of_its_session_follows() {
    let (address, log) = serve(|it| if it == "a 1" { "422 No" } else { "200 OK" }).await;
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let error = webhook.publish((0..4).map(|it| message("a", it)).collect()).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Invalid, Some(1)));
    assert_eq!(log.lock().unwrap().len(), 2);
}

#[tokio::test]
async fn an_endpoint_that_fails_at_a_message_names_it() {
    let (address, log) = serve(|it| if it == "a 1" { "500 Oh" } else { "200 OK" }).await;
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let messages = (0..3).flat_map(|it| [message("a", it), message("b", it)]).collect();
    let error = webhook.publish(messages).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(2)));
    assert_eq!(log.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn an_endpoint_that_is_down_busy_or_elsewhere_is_an_outage_and_names_no_message() {
    for answer in ["503 Busy", "429 Slowly", "401 Who", "404 What", "302 There"] {
        let (address, _) = serve(move |it| if it == "b 0" { answer } else { "500 Oh" }).await;
        let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
        let messages = vec![message("a", 0), message("b", 0)];
        let error = webhook.publish(messages).await.unwrap_err();
        assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, None), "{answer}");
    }

    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let error = webhook.publish(vec![message("a", 0)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.report());
}

#[tokio::test]
async fn an_endpoint_that_does_not_answer_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}/", listener.local_addr().unwrap());
    let options = WebhookOptions::default().timeout(Duration::from_millis(50));
    let webhook = Webhook::new(&address, options).unwrap();
    let error = webhook.publish(vec![message("a", 0)]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.report().contains("no answer in time"), "{}", error.report());
}

#[tokio::test]
async fn an_endpoint_that_hangs_at_one_message_and_answers_others_names_it() {
    let (address, _) = serve(|it| if it == "a 0" { NEVER } else { "200 OK" }).await;
    let options = WebhookOptions::default().timeout(Duration::from_secs(2));
    let webhook = Webhook::new(&address, options).unwrap();
    let messages = vec![message("b", 0), message("a", 0), message("b", 1)];
    let error = webhook.publish(messages).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, Some(1)));
    let error = webhook.publish(vec![message("a", 0)]).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unavailable, None));
}

#[tokio::test]
async fn a_long_answer_is_shown_as_far_as_it_is_read() {
    let (address, _) = serve(|_| LONG).await;
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let error = webhook.publish(vec![message("a", 0)]).await.unwrap_err().report();
    assert!(error.ends_with(&"x".repeat(1024)) && error.len() < 1_200, "{error}");
}

#[tokio::test]
async fn attributes_are_spelled_as_the_binding_says() {
    let (address, log) = serve(|_| "200 OK").await;
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let message = message("a", 0).property("cloudEvents:subject", "Euro € 50% \"x\" 😀");
    webhook.publish(vec![message]).await.unwrap();
    let log = log.lock().unwrap().clone();
    assert_eq!(log[0].header("ce-subject"), "Euro%20%E2%82%AC%2050%25%20%22x%22%20%F0%9F%98%80");
}

#[tokio::test]
async fn what_is_not_due_is_refused_and_nothing_is_posted() {
    let (address, log) = serve(|_| "200 OK").await;
    let webhook = Webhook::new(&address, WebhookOptions::default()).unwrap();
    let mut early = message("a", 1);
    early.scheduled_at = Some(Timestamp::from_millis(u64::MAX / 2));
    let error = webhook.publish(vec![message("a", 0), early]).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Unsupported, Some(1)));
    assert!(log.lock().unwrap().is_empty());
}

#[test]
fn what_is_no_address_is_refused() {
    for address in ["", "ftp://host/", "/hook", "not a url"] {
        let error = Webhook::new(address, WebhookOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{address}");
    }
}

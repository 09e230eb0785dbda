//! Consumers of a subscription: diligent, slow, forgetful or dying, as the seed says.

use std::sync::Arc;
use std::time::Duration;

use millstream_broker::Received;
use millstream_core::{BoxFuture, Clock, IdSource, Operation, Settlement};
use millstream_outbox::{Error, ErrorKind, Flaw, Inbox, Incoming, Outcome};

use crate::delivery::crew::{Process, Work};
use crate::delivery::host::Host;
use crate::delivery::oracle::EFFECT;
use crate::delivery::remote::{Remote, RemoteSession};
use crate::delivery::site::Site;
use crate::log::log;
use crate::rng::Rng;

/// Attempts to commit an effect before the message is abandoned.
const ATTEMPTS_MAX: u32 = 3;
/// Receives of one session before it is given to somebody else.
const ROUNDS_MAX: u32 = 8;

/// What consumers do; role `n` belongs to subscription `n` modulo the number of subscriptions.
pub(crate) fn work(host: &Arc<Host>, flaw: Option<Flaw>) -> Work {
    let host = Arc::clone(host);
    Arc::new(move |process| -> BoxFuture<'static, bool> {
        let host = Arc::clone(&host);
        Box::pin(async move {
            let mut consumer = Consumer::new(&host, process, flaw);
            while !consumer.is_dead {
                consumer.round().await;
            }
            true
        })
    })
}

struct Consumer {
    site: Arc<Site>,
    remote: Remote,
    subscription: usize,
    inbox: Inbox,
    process: Process,
    rng: Rng,
    /// It ends where it is; another comes in its place.
    is_dead: bool,
}

/// What to do after a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// It had its effect and is to be completed.
    Complete,
    /// It is settled; go on with the one after it.
    GoOn,
    /// It and everything after it shall come again.
    Abandon,
    /// The session is lost, or nobody knows what it is like.
    Leave,
}

impl Consumer {
    fn new(host: &Arc<Host>, process: Process, flaw: Option<Flaw>) -> Self {
        let site = Arc::clone(&host.site);
        let role = usize::try_from(process.role).expect("a few");
        let subscription = role % site.shape.subscriptions;
        let inbox = Inbox::new(&site.effects(&process.parts, subscription), "consumer");
        let mut inbox = inbox.expect("the container is made for it");
        if let Some(flaw) = flaw {
            inbox = inbox.flaw(flaw);
        }
        let remote = Remote::new(host, &process.parts.broker_link);
        let rng = process.parts.rng.fork(1);
        Self { site, remote, subscription, inbox, process, rng, is_dead: false }
    }

    /// Takes one session and works on it.
    async fn round(&mut self) {
        let wait = self.site.shape.lock;
        let put_aside = self.site.oracle.sessions_with_deferred(self.subscription);
        let wants_it = !put_aside.is_empty() && self.rng.chance(300);
        let named = wants_it.then(|| self.rng.pick(&put_aside).clone());
        let session = match self.remote.accept(self.subscription, named, wait).await {
            Ok(Some(session)) => session,
            Ok(None) => return,
            Err(_) => return self.pause(Duration::from_millis(200)).await,
        };
        log(|| format!("got session {}", session.id()));
        if self.deferred(&session).await && self.messages(&session).await {
            let forgets = self.happens(self.site.shape.consumer.forgets);
            if !forgets {
                // Otherwise the lock ends by itself.
                let _ = session.close().await;
            }
        }
    }

    /// Works on what was put aside in this session; whether the session is still ours.
    async fn deferred(&mut self, session: &RemoteSession) -> bool {
        for number in self.site.oracle.deferred(self.subscription, session.id()) {
            if self.site.is_faulty() && self.rng.chance(500) {
                continue;
            }
            // It may not be there after all.
            let Ok(received) = session.receive_deferred(number).await else { continue };
            for one in &received {
                if self.effect(one).await.is_err() {
                    continue;
                }
                let settled = session.settle(&received, Settlement::Complete).await;
                if !settled.is_ok_and(|it| it) {
                    return false;
                }
            }
        }
        true
    }

    /// Works on the messages of a session; whether the session is still ours.
    async fn messages(&mut self, session: &RemoteSession) -> bool {
        for _ in 0..ROUNDS_MAX {
            let batch = self.rng.between(1, self.site.shape.consumer.batch_max);
            let batch = usize::try_from(batch).expect("a few");
            let wait = self.rng.duration(Duration::ZERO, self.site.shape.lock / 4);
            // Without an answer nobody knows what was given out: the session must be left.
            let Ok(received) = session.receive(batch, wait).await else { return false };
            if received.is_empty() {
                return true;
            }
            if !self.batch(session, &received).await {
                return false;
            }
            if self.happens(self.site.shape.consumer.renews) && session.renew().await.is_err() {
                return false;
            }
        }
        true
    }

    /// Works on messages that were received together; whether the session is still ours.
    async fn batch(&mut self, session: &RemoteSession, received: &[Received]) -> bool {
        let together = self.rng.chance(self.site.shape.consumer.together);
        let mut done: Vec<Received> = Vec::new();
        for (place, one) in received.iter().enumerate() {
            let next = match self.message(session, one).await {
                Next::Complete => {
                    done.push(one.clone());
                    let is_last = place + 1 == received.len();
                    match together && !is_last {
                        true => Next::GoOn,
                        false => self.complete(session, &mut done).await,
                    }
                }
                next @ (Next::GoOn | Next::Abandon | Next::Leave) => next,
            };
            match next {
                Next::Complete | Next::GoOn => (),
                Next::Leave => return false,
                Next::Abandon => {
                    if self.complete(session, &mut done).await == Next::Leave {
                        return false;
                    }
                    let rest = &received[place..];
                    let abandoned = session.settle(rest, Settlement::Abandon).await;
                    return abandoned.is_ok_and(|it| it);
                }
            }
        }
        self.complete(session, &mut done).await != Next::Leave
    }

    async fn complete(&mut self, session: &RemoteSession, done: &mut Vec<Received>) -> Next {
        let done = std::mem::take(done);
        if done.is_empty() {
            return Next::GoOn;
        }
        let completed = session.settle(&done, Settlement::Complete).await;
        if completed.is_ok_and(|it| it) { Next::GoOn } else { Next::Leave }
    }

    async fn message(&mut self, session: &RemoteSession, one: &Received) -> Next {
        let (shape, lock) = (self.site.shape.consumer.clone(), self.site.shape.lock);
        let mut work = self.rng.duration(Duration::ZERO, shape.work_max);
        if self.happens(shape.oversleeps) {
            work = self.rng.duration(lock / 2, lock * 2).min(self.site.faulty_time());
        }
        self.pause(work).await;
        let one = std::slice::from_ref(one);
        if self.happens(shape.defers) {
            return settled(session.settle(one, Settlement::Defer).await);
        }
        if self.happens(shape.dead_letters) {
            let (reason, description) = ("drawn".to_owned(), "the seed says so".to_owned());
            let dead = Settlement::DeadLetter { reason, description };
            return settled(session.settle(one, dead).await);
        }
        if self.happens(shape.abandons / 2) || self.effect(&one[0]).await.is_err() {
            return Next::Abandon;
        }
        if self.happens(shape.dies) {
            log(|| "dies after the effect".to_owned());
            self.is_dead = true;
            return Next::Leave;
        }
        if self.happens(shape.abandons / 2) { Next::Abandon } else { Next::Complete }
    }

    /// Gives the message its effect, unless it had it.
    async fn effect(&mut self, one: &Received) -> Result<(), Error> {
        let message = &one.delivery.message;
        let incoming = Incoming::try_from(message)?;
        let key = message.session_id.clone().unwrap_or_default();
        let mut last = Ok(());
        for _ in 0..ATTEMPTS_MAX {
            let id = self.process.parts.ids.next_id();
            let body = serde_json::json!({
                "id": format!("{EFFECT}-{id}"),
                "partitionKey": key,
                "type": EFFECT,
                "messageId": message.id,
            });
            let body = body.to_string();
            let effect = |batch: millstream_core::Batch| async move {
                Ok(batch.with(Operation::create(body)))
            };
            match self.inbox.handle(&incoming, effect).await {
                Ok(Outcome::Handled { .. }) => return Ok(()),
                Ok(Outcome::Duplicate { .. }) => {
                    self.site.oracle.count(|it| it.inbox_duplicates += 1);
                    return Ok(());
                }
                Err(error) => {
                    self.check(&error);
                    last = Err(error);
                }
            }
        }
        last
    }

    fn check(&self, error: &Error) {
        let kind = error.kind();
        let is_allowed =
            matches!(kind, ErrorKind::Unknown | ErrorKind::Store(_) | ErrorKind::Conflict(_));
        if !is_allowed {
            self.site.handle.fail(format!("an inbox failed with {kind:?}: {error}"));
        }
    }

    /// Whether something with this rate happens now; nothing does once the faults have ended.
    fn happens(&mut self, rate: u64) -> bool {
        self.site.is_faulty() && self.rng.chance(rate)
    }

    async fn pause(&self, pause: Duration) {
        self.process.parts.clock.sleep(pause).await;
    }
}

fn settled(outcome: millstream_core::Result<bool>) -> Next {
    if outcome.is_ok_and(|it| it) { Next::GoOn } else { Next::Leave }
}

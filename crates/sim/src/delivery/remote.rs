//! Requests to the broker over a faulty way: they run in its process and die with it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use millstream_broker::{BrokerSession, DeadLetters, ReceiveMode, Received};
use millstream_core::{
    BoxFuture, Clock, Error, Message, PublishLimits, Publisher, Result, SessionReceiver, Settlement,
};

use crate::delivery::host::{Host, Serving};
use crate::delivery::oracle::Grant;
use crate::delivery::site::{TOPIC, path};
use crate::faults::{Link, Outcome, lost, throttled};
use crate::rng::mixed;

/// Largest message of these worlds; far more than any has.
const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// The broker as one process sees it.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    host: Arc<Host>,
    link: Arc<Link>,
}

/// A session as its receiver sees it.
#[derive(Clone, Debug)]
pub(crate) struct RemoteSession {
    remote: Remote,
    serving: Arc<Serving>,
    session: Arc<BrokerSession>,
    grant: Grant,
}

impl Remote {
    pub(crate) fn new(host: &Arc<Host>, link: &Arc<Link>) -> Self {
        Self { host: Arc::clone(host), link: Arc::clone(link) }
    }

    /// Takes the session of this name, or the next one that has messages.
    pub(crate) async fn accept(
        &self,
        subscription: usize,
        session: Option<String>,
        wait: Duration,
    ) -> Result<Option<RemoteSession>> {
        let (serving, oracle) = (self.serving()?, Arc::clone(&self.host.site.oracle));
        let at = Arc::clone(&serving);
        let accepted = self.call(&serving, wait, async move {
            let name = session.as_deref();
            let accepted = at.broker.accept_session(&path(subscription), name, wait).await?;
            let Some(session) = accepted else { return Ok(None) };
            let granted = oracle.granted(subscription, at.number, session.session_id());
            let grant = granted.map_err(|violation| {
                oracle.judge(Err(violation));
                lost("accept a session")
            })?;
            Ok(Some((Arc::new(session), grant)))
        });
        let Some((session, grant)) = accepted.await? else { return Ok(None) };
        Ok(Some(RemoteSession { remote: self.clone(), serving, session, grant }))
    }

    /// Sends the dead letters of a subscription back, and returns how many there were.
    pub(crate) async fn revive(&self, subscription: usize) -> Result<usize> {
        let (serving, oracle) = (self.serving()?, Arc::clone(&self.host.site.oracle));
        let at = Arc::clone(&serving);
        self.call(&serving, Duration::ZERO, async move {
            let path = format!("{}/$DeadLetterQueue", path(subscription));
            let letters = at.broker.peek(&path, 0, 1000, None).await?;
            let numbers: Vec<u64> = letters.iter().map(|it| it.sequence_number).collect();
            if numbers.is_empty() {
                return Ok(0);
            }
            oracle.reviving(subscription, at.number, &numbers);
            let which = DeadLetters::Numbers(numbers.clone());
            let revived = at.broker.resubmit_dead_letters(&path, &which).await?;
            if revived == numbers.len() {
                oracle.revived(subscription, at.number, &numbers);
            }
            Ok(numbers.len())
        })
        .await
    }

    fn serving(&self) -> Result<Arc<Serving>> {
        self.host.serving().ok_or_else(|| lost("reach the broker"))
    }

    /// Makes a request that takes the broker up to `wait` even if all is well.
    async fn call<T: Send + 'static>(
        &self,
        serving: &Serving,
        wait: Duration,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let attempted = "reach the broker";
        let unknown = || Err(lost(attempted).with_unknown_effect());
        let fate = self.link.fate();
        match fate.outcome {
            Outcome::LostRequest => {
                self.link.hop(fate.there).await;
                Err(lost(attempted))
            }
            Outcome::LostUnknown | Outcome::Hang { takes_effect: false } => {
                self.link.hop(fate.there + fate.back).await;
                unknown()
            }
            Outcome::Throttled(wait) => {
                self.link.hop(fate.there).await;
                Err(throttled(attempted, wait))
            }
            Outcome::LateEffect => {
                let late = self.link.some_time(self.link.rates.hang_max);
                drop(self.send(serving, late, request));
                self.link.hop(fate.back).await;
                unknown()
            }
            Outcome::Fine | Outcome::LostReply | Outcome::Hang { takes_effect: true } => {
                let replied = self.send(serving, fate.there, request);
                // Nobody waits for ever: the process of the broker may stand still.
                let patience = fate.there + wait + self.host.site.shape.lock * 2;
                let timeout = self.link.handle.sleep(patience);
                let answer = match select(replied, pin!(timeout)).await {
                    Either::Left((Ok(answer), _)) => answer,
                    Either::Left((Err(_), _)) | Either::Right(_) => return unknown(),
                };
                self.link.hop(fate.back).await;
                if fate.outcome == Outcome::Fine { answer } else { unknown() }
            }
        }
    }

    /// Lets the request run in the process of the broker, whatever becomes of the sender.
    fn send<T: Send + 'static>(
        &self,
        serving: &Serving,
        there: Duration,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> oneshot::Receiver<Result<T>> {
        let (reply, replied) = oneshot::channel();
        let sleep = self.link.handle.sleep(there);
        let travel: BoxFuture<'static, ()> = Box::pin(async move {
            sleep.await;
            // The sender may be gone.
            let _ = reply.send(request.await);
        });
        self.link.handle.spawn(serving.node, travel);
        replied
    }
}

impl RemoteSession {
    pub(crate) fn id(&self) -> &str {
        &self.grant.session
    }

    /// Up to `messages_max` messages in order.
    pub(crate) async fn receive(
        &self,
        messages_max: usize,
        wait: Duration,
    ) -> Result<Vec<Received>> {
        let (session, grant) = (Arc::clone(&self.session), self.grant.clone());
        let oracle = Arc::clone(&self.remote.host.site.oracle);
        let clock = Arc::clone(&self.serving.clock);
        self.call(wait, async move {
            let begun = oracle.receiving(&grant);
            let received = session.receive_with(ReceiveMode::PeekLock, messages_max, wait).await?;
            oracle.judge(oracle.delivered(&grant, begun, &received, clock.now()));
            Ok(received)
        })
        .await
    }

    /// A message that was put aside.
    pub(crate) async fn receive_deferred(&self, number: u64) -> Result<Vec<Received>> {
        let (session, grant) = (Arc::clone(&self.session), self.grant.clone());
        let oracle = Arc::clone(&self.remote.host.site.oracle);
        let clock = Arc::clone(&self.serving.clock);
        self.call(Duration::ZERO, async move {
            let begun = oracle.receiving(&grant);
            let received = session.receive_deferred(ReceiveMode::PeekLock, &[number]).await?;
            oracle.judge(oracle.delivered(&grant, begun, &received, clock.now()));
            Ok(received)
        })
        .await
    }

    /// Settles messages; whether the lock was there for all.
    pub(crate) async fn settle(
        &self,
        received: &[Received],
        settlement: Settlement,
    ) -> Result<bool> {
        let (session, grant) = (Arc::clone(&self.session), self.grant.clone());
        let oracle = Arc::clone(&self.remote.host.site.oracle);
        let numbers: Vec<u64> = received.iter().map(|it| it.delivery.sequence_number).collect();
        let tokens: Vec<String> =
            received.iter().map(|it| it.delivery.lock_token.clone()).collect();
        self.call(Duration::ZERO, async move {
            let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
            let settling = oracle.settling(&grant, &numbers, &settlement);
            let outcomes = session.settle_each(&tokens, &settlement).await?;
            oracle.settled(&settling, &outcomes);
            let all = outcomes.iter().all(|it| *it);
            oracle.count(|it| it.lost_locks += u64::from(!all));
            Ok(all)
        })
        .await
    }

    /// Keeps the session for longer.
    pub(crate) async fn renew(&self) -> Result<()> {
        let (session, grant) = (Arc::clone(&self.session), self.grant.clone());
        let oracle = Arc::clone(&self.remote.host.site.oracle);
        self.call(Duration::ZERO, async move {
            session.renew_lock()?;
            oracle.renewed(&grant);
            Ok(())
        })
        .await
    }

    /// Gives the session up.
    pub(crate) async fn close(&self) -> Result<()> {
        let (session, grant) = (Arc::clone(&self.session), self.grant.clone());
        let oracle = Arc::clone(&self.remote.host.site.oracle);
        self.call(Duration::ZERO, async move {
            session.close().await?;
            oracle.closed(&grant);
            Ok(())
        })
        .await
    }

    async fn call<T: Send + 'static>(
        &self,
        wait: Duration,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        self.remote.call(&self.serving, wait, request).await
    }
}

#[async_trait]
impl Publisher for Remote {
    fn limits(&self) -> PublishLimits {
        PublishLimits {
            message_bytes_max: MESSAGE_BYTES_MAX,
            batch_bytes_max: MESSAGE_BYTES_MAX * 16,
            batch_messages_max: self.host.site.shape.publish_max,
        }
    }

    fn can_schedule(&self) -> bool {
        true
    }

    async fn publish(&self, messages: Vec<Message>) -> Result<()> {
        let (serving, host) = (self.serving()?, Arc::clone(&self.host));
        let at = Arc::clone(&serving);
        self.call(&serving, Duration::ZERO, async move {
            let oracle = &host.site.oracle;
            oracle.judge(oracle.sending(&messages));
            if let Some(refused) = messages.iter().position(|it| is_poison(&host, it)) {
                oracle.count(|it| it.refused += 1);
                let error = Error::invalid("send a message", "it is poison");
                return Err(error.at_operation(refused));
            }
            let ids: Vec<String> = messages.iter().map(|it| it.id.clone()).collect();
            let outcome = at.broker.send(TOPIC, messages).await?;
            oracle.sent(at.number, &ids, &outcome.sequence_numbers);
            Ok(())
        })
        .await
    }
}

/// Whether the broker refuses the message: it follows from its id, until the faults end.
fn is_poison(host: &Host, message: &Message) -> bool {
    let site = &host.site;
    let bytes = message.id.bytes().fold(site.seed, |all, it| mixed(all ^ u64::from(it)));
    site.is_faulty() && bytes % 1000 < site.shape.poison
}

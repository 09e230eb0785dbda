//! The way of one node to one container, with faults as a test tells them.

use std::future::pending;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use event_listener::Event;
use futures_channel::oneshot;
use futures_util::future::{Either, select};
use millstream_core::{
    Batch, BatchOutcome, BoxFuture, ChangeFeed, Container, Continuation, Documents, Envelope,
    Error, ErrorKind, FeedMode, FeedPage, Item, ItemId, KeyRange, Operation, OperationKind,
    PageSize, PartitionKey, RangeInfo, Result, ScanContinuation, ScanPage, ScanScope, StartFrom,
};
use millstream_sim::{Handle, NodeId};

/// How long a request is on its way.
const LATENCY: Duration = Duration::from_millis(1);
/// What a throttled caller is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The calls of a container that can be made to fail and are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Read,
    Commit,
    Scan,
    Ranges,
    Start,
    FeedRead,
    Wait,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Refused with 429 and a time to wait.
    Throttled,
    /// Refused with this error; nothing happened.
    Error(ErrorKind),
    /// It happens, but the caller is told that nobody knows.
    LostReply,
    /// Nothing happens and no answer comes, ever.
    Hang,
    /// It happens and no answer comes, ever.
    HangAfterEffect,
    /// It happens so much later.
    Delay(Duration),
    /// The node dies while it waits for the answer.
    Die { takes_effect: bool },
}

/// Which calls meet which fault.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    call: Option<Call>,
    touching: String,
    skipped: usize,
    times: usize,
    fault: Fault,
}

impl Rule {
    /// Every call of this kind meets the fault.
    pub(crate) fn new(call: Call, fault: Fault) -> Self {
        let call = Some(call);
        Self { call, touching: String::new(), skipped: 0, times: usize::MAX, fault }
    }

    /// Only calls whose text has this in it: see [`Logged::what`].
    pub(crate) fn touching(mut self, text: &str) -> Self {
        text.clone_into(&mut self.touching);
        self
    }

    /// The first so many pass.
    pub(crate) fn after(mut self, calls: usize) -> Self {
        self.skipped = calls;
        self
    }

    /// Only so many meet it.
    pub(crate) fn times(mut self, calls: usize) -> Self {
        self.times = calls;
        self
    }

    fn meets(&mut self, call: Call, what: &str) -> bool {
        if self.call.is_some_and(|it| it != call) || !what.contains(&self.touching) {
            return false;
        }
        if 0 < self.skipped {
            self.skipped -= 1;
            return false;
        }
        if self.times == 0 {
            return false;
        }
        self.times -= 1;
        true
    }
}

/// A call that was made.
#[derive(Clone, Debug)]
pub(crate) struct Logged {
    pub(crate) at: Duration,
    pub(crate) call: Call,
    /// For a commit the verb and id of each operation, for a read the id, for a scan its scope.
    pub(crate) what: String,
}

/// The way of one node to one container.
pub(crate) struct Port {
    handle: Handle,
    node: NodeId,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    log: Vec<Logged>,
}

impl Port {
    pub(super) fn new(handle: &Handle, node: NodeId) -> Arc<Self> {
        Arc::new(Self { handle: handle.clone(), node, state: Mutex::default() })
    }

    /// The next calls of this kind meet the fault.
    pub(crate) fn fail_next(&self, call: Call, times: usize, fault: Fault) {
        self.add(Rule::new(call, fault).times(times));
    }

    /// Every call meets the fault until [`Port::heal`].
    pub(crate) fn fail_all(&self, fault: Fault) {
        self.add(Rule { call: None, ..Rule::new(Call::Wait, fault) });
    }

    /// Adds a rule; the first rule that a call meets counts.
    pub(crate) fn add(&self, rule: Rule) {
        self.lock().rules.push(rule);
    }

    /// Forgets all rules.
    pub(crate) fn heal(&self) {
        self.lock().rules.clear();
    }

    /// All calls so far.
    pub(crate) fn log(&self) -> Vec<Logged> {
        self.lock().log.clone()
    }

    /// How many calls of this kind were made since a time.
    pub(crate) fn count(&self, call: Call, since: Duration) -> usize {
        self.lock().log.iter().filter(|it| it.call == call && since <= it.at).count()
    }

    /// The container as the node sees it.
    pub(super) fn container(self: &Arc<Self>, inner: &Container, nudge: &Arc<Event>) -> Container {
        let way = Arc::new(Way {
            port: Arc::clone(self),
            documents: Arc::clone(&inner.documents),
            feed: Arc::clone(&inner.feed),
            nudge: Arc::clone(nudge),
        });
        Container { documents: way.clone(), feed: way, guards: None, ..inner.clone() }
    }

    fn begin(&self, call: Call, what: String) -> Option<Fault> {
        let mut state = self.lock();
        let fault = state.rules.iter_mut().find_map(|it| it.meets(call, &what).then_some(it.fault));
        state.log.push(Logged { at: self.handle.now(), call, what });
        fault
    }

    async fn perform<T: Send + 'static>(
        &self,
        call: Call,
        what: String,
        inner: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let attempted = format!("{call:?} {what}");
        let Some(fault) = self.begin(call, what) else { return self.send(LATENCY, inner).await };
        match fault {
            Fault::Delay(time) => self.send(LATENCY + time, inner).await,
            Fault::LostReply => {
                let _ = self.send(LATENCY, inner).await;
                let error = Error::new(ErrorKind::Unavailable, attempted);
                Err(error.because("the reply was lost").with_unknown_effect())
            }
            Fault::Hang => pending().await,
            Fault::HangAfterEffect => {
                let _ = self.send(LATENCY, inner).await;
                pending().await
            }
            Fault::Die { takes_effect } => {
                if takes_effect {
                    let _ = self.send(LATENCY, inner).await;
                }
                self.handle.kill(self.node);
                pending().await
            }
            Fault::Throttled => self.refuse(throttled(attempted)).await,
            Fault::Error(kind) => self.refuse(failed(kind, attempted)).await,
        }
    }

    async fn refuse<T>(&self, error: Error) -> Result<T> {
        self.handle.sleep(LATENCY).await;
        Err(error)
    }

    /// The request travels on its own: it arrives even if the sender stalls, dies or gives up, and
    /// virtual time waits for the threads of a real store.
    async fn send<T: Send + 'static>(
        &self,
        time: Duration,
        inner: BoxFuture<'static, Result<T>>,
    ) -> Result<T> {
        let (reply, replied) = oneshot::channel();
        let handle = self.handle.clone();
        let travel = async move {
            handle.sleep(time).await;
            let call = handle.outside_call();
            let answer = inner.await;
            drop(call);
            // The sender may be gone.
            let _ = reply.send(answer);
        };
        self.handle.spawn(NodeId::WORLD, Box::pin(travel));
        replied.await.expect("the world does not die")
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

fn throttled(attempted: String) -> Error {
    let error = Error::new(ErrorKind::Overloaded, attempted);
    error.because("too many requests").with_retry_after(RETRY_AFTER)
}

fn failed(kind: ErrorKind, attempted: String) -> Error {
    Error::new(kind, attempted).because("the test says so")
}

/// Both ports of a container at the far end of a [`Port`].
struct Way {
    port: Arc<Port>,
    documents: Arc<dyn Documents>,
    feed: Arc<dyn ChangeFeed>,
    /// Notified after every commit.
    nudge: Arc<Event>,
}

#[async_trait]
impl Documents for Way {
    async fn read(&self, key: &PartitionKey, id: &ItemId) -> Result<Option<Item>> {
        let (inner, key, id) = (Arc::clone(&self.documents), key.clone(), id.clone());
        let what = id.to_string();
        let call = async move { inner.read(&key, &id).await };
        self.port.perform(Call::Read, what, Box::pin(call)).await
    }

    async fn commit(&self, batch: Batch) -> Result<BatchOutcome> {
        let (inner, nudge) = (Arc::clone(&self.documents), Arc::clone(&self.nudge));
        let what: Vec<String> = batch.operations.iter().map(described).collect();
        let call = async move {
            let outcome = inner.commit(batch).await;
            nudge.notify(usize::MAX);
            outcome
        };
        self.port.perform(Call::Commit, what.join(", "), Box::pin(call)).await
    }

    async fn scan(
        &self,
        scope: &ScanScope,
        after: Option<&ScanContinuation>,
        size: PageSize,
    ) -> Result<ScanPage> {
        let (inner, scope) = (Arc::clone(&self.documents), scope.clone());
        let (after, what) = (after.cloned(), format!("{scope:?}"));
        let call = async move { inner.scan(&scope, after.as_ref(), size).await };
        self.port.perform(Call::Scan, what, Box::pin(call)).await
    }
}

#[async_trait]
impl ChangeFeed for Way {
    async fn ranges(&self) -> Result<Vec<RangeInfo>> {
        let inner = Arc::clone(&self.feed);
        let call = async move { inner.ranges().await };
        self.port.perform(Call::Ranges, String::new(), Box::pin(call)).await
    }

    async fn start(
        &self,
        keys: &KeyRange,
        from: StartFrom,
        mode: FeedMode,
    ) -> Result<Continuation> {
        let (inner, keys) = (Arc::clone(&self.feed), keys.clone());
        let what = keys.to_string();
        let call = async move { inner.start(&keys, from, mode).await };
        self.port.perform(Call::Start, what, Box::pin(call)).await
    }

    async fn read(
        &self,
        keys: &KeyRange,
        after: &Continuation,
        size: PageSize,
    ) -> Result<FeedPage> {
        let (inner, keys, after) = (Arc::clone(&self.feed), keys.clone(), after.clone());
        let what = keys.to_string();
        let call = async move { inner.read(&keys, &after, size).await };
        self.port.perform(Call::FeedRead, what, Box::pin(call)).await
    }

    async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        match self.port.begin(Call::Wait, keys.to_string()) {
            None => (),
            Some(Fault::Throttled) => {
                return self.port.refuse(throttled("wait for changes".to_owned())).await;
            }
            Some(Fault::Error(kind)) => {
                return self.port.refuse(failed(kind, "wait for changes".to_owned())).await;
            }
            Some(_) => pending().await,
        }
        loop {
            let nudged = pin!(self.nudge.listen());
            // A store may answer a commit before it wakes who waits for it, and virtual time would
            // go on meanwhile: after each commit the question is asked anew.
            match select(self.feed.wait(keys, after), nudged).await {
                Either::Left((answer, _)) => return answer,
                Either::Right(_) => (),
            }
        }
    }
}

fn described(operation: &Operation) -> String {
    let of = |body: &[u8]| Envelope::scan(body).map(|it| it.id.to_string()).unwrap_or_default();
    match &operation.kind {
        OperationKind::Create(body) => format!("create {}", of(body)),
        OperationKind::Upsert(body) => format!("upsert {}", of(body)),
        OperationKind::Replace(id, _) => format!("replace {id}"),
        OperationKind::Patch(id, _) => format!("patch {id}"),
        OperationKind::Delete(id) => format!("delete {id}"),
        OperationKind::Read(id) => format!("read {id}"),
    }
}

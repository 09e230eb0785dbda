//! A handler that writes down what it gets and fails as a test tells it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use event_listener::Event;
use millstream_core::{BoxFuture, Change, ChangeKind, KeyRange};
use millstream_processor::{ChangeBatch, Context, Handler, HandlerError, HandlerResult};
use millstream_sim::{Handle, key_text, version_in};

/// One change that was given to a handler.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    /// The name of the instance.
    pub(crate) node: String,
    pub(crate) key: String,
    pub(crate) id: String,
    /// 0 after a delete.
    pub(crate) version: u64,
    pub(crate) kind: ChangeKind,
    pub(crate) lsn: u64,
    pub(crate) keys: Arc<KeyRange>,
    pub(crate) epoch: u64,
    pub(crate) attempt: u32,
    pub(crate) redriven: bool,
    pub(crate) at: Duration,
    /// Its place in [`Recorder::batches`].
    pub(crate) batch: usize,
}

/// One call of a handler.
#[derive(Clone, Debug)]
pub(crate) struct HandledBatch {
    pub(crate) node: String,
    pub(crate) epoch: u64,
    pub(crate) attempt: u32,
    /// The ids of the items.
    pub(crate) ids: Vec<String>,
    pub(crate) started: Duration,
    /// When the handler returned and whether it was content; none if it is at work, was dropped or
    /// panicked.
    pub(crate) ended: Option<(Duration, bool)>,
    /// Whether its future was dropped before it returned.
    pub(crate) dropped: bool,
    /// Whether the handler was told of the cancellation before it was dropped.
    pub(crate) cancelled: bool,
}

/// How a handler fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// It may work next time.
    Failed,
    /// The same, and it says which change it was.
    FailedAt,
    /// Something outside is down.
    Transient,
    /// It will never work; says which change it was.
    PermanentAt,
    Panic,
}

/// What all handlers of a world share.
pub(crate) struct Recorder {
    handle: Handle,
    state: Mutex<State>,
    opened: Event,
}

#[derive(Default)]
struct State {
    deliveries: Vec<Delivery>,
    batches: Vec<HandledBatch>,
    failing: BTreeMap<String, (usize, Failing)>,
    closed: BTreeSet<String>,
    takes: BTreeMap<String, Duration>,
}

impl Recorder {
    pub(super) fn new(handle: &Handle) -> Arc<Self> {
        let (handle, state) = (handle.clone(), Mutex::default());
        Arc::new(Self { handle, state, opened: Event::new() })
    }

    /// The handler of one instance.
    pub(super) fn handler(self: &Arc<Self>, node: &str) -> Recording {
        Recording { recorder: Arc::clone(self), node: node.to_owned() }
    }

    /// The next so many deliveries of the item fail.
    pub(crate) fn fail(&self, id: &str, times: usize, how: Failing) {
        self.lock().failing.insert(id.to_owned(), (times, how));
    }

    /// Handlers of this instance wait before they return, until [`Recorder::open`].
    pub(crate) fn close(&self, node: &str) {
        self.lock().closed.insert(node.to_owned());
    }

    /// Lets handlers of this instance return.
    pub(crate) fn open(&self, node: &str) {
        self.lock().closed.remove(node);
        self.opened.notify(usize::MAX);
    }

    /// Every batch of this instance takes so long.
    pub(crate) fn take(&self, node: &str, time: Duration) {
        self.lock().takes.insert(node.to_owned(), time);
    }

    /// Everything that was delivered, in the order of time.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.lock().deliveries.clone()
    }

    /// Every call of a handler, in the order of time.
    pub(crate) fn batches(&self) -> Vec<HandledBatch> {
        self.lock().batches.clone()
    }

    /// How many changes were delivered.
    pub(crate) fn count(&self) -> usize {
        self.lock().deliveries.len()
    }

    /// How many changes were delivered to this instance.
    pub(crate) fn count_on(&self, node: &str) -> usize {
        self.lock().deliveries.iter().filter(|it| it.node == node).count()
    }

    /// Calls of handlers of this instance that are at work now.
    pub(crate) fn at_work(&self, node: &str) -> usize {
        let state = self.lock();
        state.batches.iter().filter(|it| it.node == node && it.is_at_work()).count()
    }

    fn begin(&self, node: &str, batch: &ChangeBatch, context: &Context) -> usize {
        let at = self.handle.now();
        let mut state = self.lock();
        let number = state.batches.len();
        state.batches.push(HandledBatch {
            node: node.to_owned(),
            epoch: context.epoch,
            attempt: context.attempt,
            ids: batch.iter().map(|it| it.id.to_string()).collect(),
            started: at,
            ended: None,
            dropped: false,
            cancelled: false,
        });
        let delivery = |change: &Change| Delivery {
            node: node.to_owned(),
            key: key_text(&change.partition_key),
            id: change.id.to_string(),
            version: change.current.as_ref().and_then(|it| version_in(&it.body)).unwrap_or(0),
            kind: change.kind,
            lsn: change.lsn.as_u64(),
            keys: Arc::clone(&context.keys),
            epoch: context.epoch,
            attempt: context.attempt,
            redriven: context.redriven,
            at,
            batch: number,
        };
        state.deliveries.extend(batch.iter().map(delivery));
        number
    }

    /// How the batch fails, if it does, and at which change.
    fn verdict(&self, batch: &ChangeBatch) -> Option<(usize, Failing)> {
        let mut state = self.lock();
        for (index, change) in batch.iter().enumerate() {
            let Some((times, how)) = state.failing.get_mut(change.id.as_str()) else { continue };
            if 0 < *times {
                *times -= 1;
                return Some((index, *how));
            }
        }
        None
    }

    fn is_closed(&self, node: &str) -> bool {
        self.lock().closed.contains(node)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl HandledBatch {
    pub(crate) fn is_at_work(&self) -> bool {
        self.ended.is_none() && !self.dropped
    }
}

/// The handler of one instance.
pub(crate) struct Recording {
    recorder: Arc<Recorder>,
    node: String,
}

/// Notices that the future of a handler was dropped.
struct Open {
    recorder: Arc<Recorder>,
    batch: usize,
    context: Context,
}

impl Drop for Open {
    fn drop(&mut self) {
        let batch = &mut self.recorder.lock().batches[self.batch];
        batch.dropped = batch.ended.is_none();
        batch.cancelled = batch.dropped && self.context.cancellation.is_cancelled();
    }
}

impl Handler for Recording {
    fn handle(&self, batch: ChangeBatch, context: Context) -> BoxFuture<'_, HandlerResult> {
        Box::pin(async move {
            let recorder = &self.recorder;
            let number = recorder.begin(&self.node, &batch, &context);
            let recorder = Arc::clone(recorder);
            let open = Open { recorder: Arc::clone(&recorder), batch: number, context };
            let time = recorder.lock().takes.get(&self.node).copied();
            if let Some(time) = time {
                recorder.handle.sleep(time).await;
            }
            loop {
                let opened = recorder.opened.listen();
                if !recorder.is_closed(&self.node) {
                    break;
                }
                opened.await;
            }
            let outcome = match recorder.verdict(&batch) {
                None => Ok(()),
                Some((_, Failing::Panic)) => panic!("the test says so"),
                Some((_, Failing::Failed)) => Err(HandlerError::failed("told to fail")),
                Some((at, Failing::FailedAt)) => Err(HandlerError::failed("told to fail").at(at)),
                Some((_, Failing::Transient)) => Err(HandlerError::transient("it is down")),
                Some((at, Failing::PermanentAt)) => Err(HandlerError::permanent("never").at(at)),
            };
            recorder.lock().batches[number].ended = Some((recorder.handle.now(), outcome.is_ok()));
            drop(open);
            outcome
        })
    }
}

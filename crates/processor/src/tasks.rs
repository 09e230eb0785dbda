use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use millstream_core::BoxFuture;
use tokio::sync::mpsc;

/// Starts a task on a runtime.
pub(crate) type Spawner = Arc<dyn Fn(BoxFuture<'static, ()>) + Send + Sync>;

/// Where the workers of an instance run: on a runtime if there is one to spawn on, otherwise inside
/// the future that drives the set.
#[derive(Clone)]
pub(crate) struct TaskSet {
    spawner: Option<Spawner>,
    inline: mpsc::UnboundedSender<BoxFuture<'static, ()>>,
}

/// Runs the tasks of a set that has no spawner.
pub(crate) struct Driver {
    added: mpsc::UnboundedReceiver<BoxFuture<'static, ()>>,
}

impl TaskSet {
    pub(crate) fn new(spawner: Option<Spawner>) -> (Self, Driver) {
        // At most one task per lease is in it.
        let (inline, added) = mpsc::unbounded_channel();
        (Self { spawner, inline }, Driver { added })
    }

    pub(crate) fn spawn(&self, task: BoxFuture<'static, ()>) {
        match &self.spawner {
            Some(spawner) => spawner(task),
            // An error means that the driver is gone, and with it the instance.
            None => drop(self.inline.send(task)),
        }
    }
}

impl Driver {
    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        let mut tasks = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                added = self.added.recv() => match added {
                    Some(task) => tasks.push(task),
                    None => return,
                },
                Some(()) = tasks.next() => (),
            }
        }
    }
}

/// Lets other tasks go on. A backend that never waits would otherwise keep the thread for ever.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if yielded {
            return std::task::Poll::Ready(());
        }
        yielded = true;
        context.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

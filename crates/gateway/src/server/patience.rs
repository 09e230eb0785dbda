//! Ends a connection on which nothing is asked.
//!
//! One timer runs for as long as the connection does, and what has been asked is looked at when it
//! has run out. To set one for every request woke the thread that waits for the network for every
//! fifth of them, with a call of the system.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Version;
use tokio::time::{Instant, Sleep, sleep_until};

/// What a connection is doing, as far as it matters here.
#[derive(Debug)]
pub(crate) struct Activity {
    begun_at: Instant,
    /// Requests that have not been answered.
    under_way: AtomicUsize,
    /// When the last answer was ready or a piece of one was sent, in milliseconds since the
    /// connection began.
    answered_ms: AtomicU64,
    /// Whether it speaks HTTP/2, which has pings of its own.
    is_http2: AtomicBool,
}

/// A request that has not been answered; dropped when it has.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Activity>);

/// Waits until nothing has been asked for too long.
#[derive(Debug)]
pub(crate) struct Patience {
    activity: Arc<Activity>,
    timeout: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun_at: Instant::now(),
            under_way: AtomicUsize::new(0),
            answered_ms: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
        })
    }

    /// Notes that a request has come.
    pub(crate) fn begin(self: &Arc<Self>, version: Version) -> UnderWay {
        if version == Version::HTTP_2 {
            self.is_http2.store(true, Ordering::Relaxed);
        }
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Notes that something of an answer was ready or taken by the client.
    pub(crate) fn note_answer(&self) {
        let now = u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.answered_ms.store(now, Ordering::Relaxed);
    }

    /// Since when it waits for a request, if it does.
    fn idle_since(&self) -> Option<Instant> {
        let is_idle =
            self.under_way.load(Ordering::Relaxed) == 0 && !self.is_http2.load(Ordering::Relaxed);
        let answered = Duration::from_millis(self.answered_ms.load(Ordering::Relaxed));
        is_idle.then(|| self.begun_at + answered)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.note_answer();
        self.0.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Patience {
    pub(crate) fn new(activity: Arc<Activity>, timeout: Duration) -> Self {
        let timer = Box::pin(sleep_until(activity.begun_at + timeout));
        Self { activity, timeout, timer }
    }

    /// Ready when no request has come, or not whole, for as long as the timeout.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            let until = self.activity.idle_since().unwrap_or(now) + self.timeout;
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::sleep;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(10);

    /// How long the patience lasts while `work` is done.
    async fn lasts(work: impl AsyncFnOnce(&Arc<Activity>)) -> Option<Duration> {
        let activity = Activity::new();
        let mut patience = Patience::new(Arc::clone(&activity), TIMEOUT);
        let begun = Instant::now();
        let ended = async {
            poll_fn(|context| patience.poll_ended(context)).await;
            Instant::now() - begun
        };
        let working = async {
            work(&activity).await;
            sleep(TIMEOUT * 5).await;
        };
        tokio::select! {
            after = ended => Some(after),
            () = working => None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_when_nothing_is_asked() {
        assert_eq!(lasts(async |_| ()).await, Some(TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn it_counts_from_the_last_answer() {
        let work = async |activity: &Arc<Activity>| {
            for _ in 0..5 {
                sleep(Duration::from_secs(4)).await;
                let request = activity.begin(Version::HTTP_11);
                sleep(Duration::from_secs(3)).await;
                drop(request);
            }
        };
        assert_eq!(lasts(work).await, Some(Duration::from_secs(35) + TIMEOUT));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_may_take_longer() {
        let work = async |activity: &Arc<Activity>| {
            let request = activity.begin(Version::HTTP_11);
            sleep(TIMEOUT * 3).await;
            drop(request);
        };
        let lasted = lasts(work).await.unwrap();
        assert!(TIMEOUT * 4 <= lasted && lasted <= TIMEOUT * 5, "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_may_be_sent_for_longer() {
        let work = async |activity: &Arc<Activity>| {
            drop(activity.begin(Version::HTTP_11));
            for _ in 0..6 {
                sleep(TIMEOUT / 2).await;
                activity.note_answer();
            }
        };
        assert_eq!(lasts(work).await, Some(TIMEOUT * 4));
    }

    #[tokio::test(start_paused = true)]
    async fn http2_looks_after_itself() {
        let work = async |activity: &Arc<Activity>| drop(activity.begin(Version::HTTP_2));
        assert_eq!(lasts(work).await, None);
    }
}

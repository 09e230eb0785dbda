//! Ends a connection on which nothing is asked, or too slowly.
//!
//! One timer runs for as long as the connection does, and what has been asked is looked at when it
//! has run out. To set one for every request woke the thread that waits for the network for every
//! fifth of them, with a call of the system. Only a request whose headers do not arrive at once
//! gets a timer of its own.

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
    /// When the headers of a request began to arrive that are not whole yet, likewise, or never.
    head_begun_ms: AtomicU64,
    /// Whether it speaks HTTP/2, which has pings of its own.
    is_http2: AtomicBool,
}

/// No headers are arriving.
const NEVER_MS: u64 = u64::MAX;

/// A request that has not been answered; dropped when it has.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<Activity>);

/// Waits until nothing has been asked for too long, or headers take too long to arrive.
#[derive(Debug)]
pub(crate) struct Patience {
    activity: Arc<Activity>,
    idle_timeout: Duration,
    head_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// Runs while headers are arriving.
    head_timer: Option<Pin<Box<Sleep>>>,
}

impl Activity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            begun_at: Instant::now(),
            under_way: AtomicUsize::new(0),
            answered_ms: AtomicU64::new(0),
            head_begun_ms: AtomicU64::new(NEVER_MS),
            is_http2: AtomicBool::new(false),
        })
    }

    /// Notes that a request has come.
    pub(crate) fn begin(self: &Arc<Self>, version: Version) -> UnderWay {
        if version == Version::HTTP_2 {
            self.is_http2.store(true, Ordering::Relaxed);
        }
        self.end_head();
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(Arc::clone(self))
    }

    /// Notes that something of an answer was ready or taken by the client.
    pub(crate) fn note_answer(&self) {
        self.answered_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Notes that something has arrived. It belongs to the headers of the next request if none is
    /// under way.
    pub(crate) fn note_received(&self) {
        if self.under_way.load(Ordering::Relaxed) == 0
            && self.head_begun_ms.load(Ordering::Relaxed) == NEVER_MS
        {
            self.head_begun_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// Notes that headers are whole, or that what has arrived were none.
    pub(crate) fn end_head(&self) {
        self.head_begun_ms.store(NEVER_MS, Ordering::Relaxed);
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun_at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Since when headers are arriving, if they are.
    fn head_begun_at(&self) -> Option<Instant> {
        let begun = self.head_begun_ms.load(Ordering::Relaxed);
        (begun != NEVER_MS).then(|| self.begun_at + Duration::from_millis(begun))
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
    pub(crate) fn new(
        activity: Arc<Activity>,
        idle_timeout: Duration,
        head_timeout: Duration,
    ) -> Self {
        let timer = Box::pin(sleep_until(activity.begun_at + idle_timeout));
        Self { activity, idle_timeout, head_timeout, timer, head_timer: None }
    }

    /// What the connection is doing.
    pub(crate) fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Ready when no request has come for as long as one timeout, or its headers have been arriving
    /// for as long as the other.
    pub(crate) fn poll_ended(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.poll_head_late(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            ready!(self.timer.as_mut().poll(context));
            let now = Instant::now();
            let until = self.activity.idle_since().unwrap_or(now) + self.idle_timeout;
            if until <= now {
                return Poll::Ready(());
            }
            self.timer.as_mut().reset(until);
        }
    }

    fn poll_head_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(begun_at) = self.activity.head_begun_at() else {
            self.head_timer = None;
            return Poll::Pending;
        };
        let until = begun_at + self.head_timeout;
        let timer = self.head_timer.get_or_insert_with(|| Box::pin(sleep_until(until)));
        if timer.deadline() != until {
            timer.as_mut().reset(until);
        }
        timer.as_mut().poll(context)
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
        let mut patience = Patience::new(Arc::clone(&activity), TIMEOUT, TIMEOUT / 5);
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

    #[tokio::test(start_paused = true)]
    async fn headers_have_less_time() {
        let begun = Duration::from_secs(3);
        let dripping = async |activity: &Arc<Activity>| {
            sleep(begun).await;
            for _ in 0..20 {
                activity.note_received();
                sleep(Duration::from_millis(100)).await;
            }
        };
        // What polls a connection is what has been received; here only the timers do.
        let activity = Activity::new();
        dripping(&activity).await;
        let mut patience = Patience::new(Arc::clone(&activity), TIMEOUT * 5, TIMEOUT / 5);
        poll_fn(|context| patience.poll_ended(context)).await;
        assert_eq!(Instant::now() - activity.begun_at, begun + TIMEOUT / 5);
    }

    #[tokio::test(start_paused = true)]
    async fn headers_that_are_whole_are_not_waited_for() {
        let work = async |activity: &Arc<Activity>| {
            activity.note_received();
            let request = activity.begin(Version::HTTP_11);
            activity.note_received();
            drop(request);
        };
        assert_eq!(lasts(work).await, Some(TIMEOUT));
    }
}

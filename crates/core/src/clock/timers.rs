//! The timers of the process: one thread that sleeps until the next of them is due.
//!
//! Most timers are limits that are dropped long before they are due, so that is what has to cost
//! little: the thread is woken only for a timer that is due before all others, and never because
//! one is dropped.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

static TIMERS: LazyLock<Timers> = LazyLock::new(Timers::start);

/// Resolves at its time.
#[derive(Debug)]
pub(super) struct Timer {
    /// None if that is later than the clock of the machine can tell.
    due: Option<Instant>,
    /// Tells it apart from others of the same time; none until it waits.
    number: Option<u64>,
    was_polled: bool,
}

#[derive(Debug, Default)]
struct Timers {
    waiting: Mutex<Waiting>,
    sooner: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: BTreeMap<(Instant, u64), Waker>,
    numbers: u64,
    /// When the thread looks again by itself; none if it waits to be woken.
    looks_at: Option<Instant>,
}

impl Timer {
    pub(super) fn after(now: Instant, duration: Duration) -> Self {
        Self { due: now.checked_add(duration), number: None, was_polled: false }
    }
}

impl Future for Timer {
    type Output = ();

    #[expect(clippy::disallowed_methods, reason = "this is part of the Clock")]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        let is_first = !std::mem::replace(&mut self.was_polled, true);
        if due <= Instant::now() {
            if !is_first {
                return Poll::Ready(());
            }
            // A loop whose next look is due already would keep the thread from everybody else.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let mut waiting = TIMERS.waiting();
        let number = *self.number.get_or_insert_with(|| {
            waiting.numbers += 1;
            waiting.numbers
        });
        let waker = waiting.wakers.entry((due, number)).or_insert_with(|| context.waker().clone());
        waker.clone_from(context.waker());
        if waiting.looks_at.is_none_or(|it| due < it) {
            waiting.looks_at = Some(due);
            drop(waiting);
            TIMERS.sooner.notify_one();
        }
        Poll::Pending
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let (Some(due), Some(number)) = (self.due, self.number) {
            let waker = TIMERS.waiting().wakers.remove(&(due, number));
            // What a waker does when it is dropped may take its time; the lock is free by now.
            drop(waker);
        }
    }
}

impl Timers {
    fn start() -> Self {
        let run = || TIMERS.run();
        let thread = thread::Builder::new().name("mstream:timers".to_owned()).spawn(run);
        thread.expect("the system has room for one more thread");
        Self::default()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().expect("nothing panics while it holds the lock")
    }

    #[expect(clippy::disallowed_methods, reason = "this is part of the Clock")]
    fn run(&self) {
        let mut waiting = self.waiting();
        loop {
            let now = Instant::now();
            let later = waiting.wakers.split_off(&(now, u64::MAX));
            let due = std::mem::replace(&mut waiting.wakers, later);
            if !due.is_empty() {
                drop(waiting);
                due.into_values().for_each(Waker::wake);
                waiting = self.waiting();
                continue;
            }
            waiting.looks_at = waiting.wakers.first_key_value().map(|((due, _), _)| *due);
            let woken = match waiting.looks_at {
                None => self.sooner.wait(waiting),
                Some(due) => self
                    .sooner
                    .wait_timeout(waiting, due.saturating_duration_since(now))
                    .map(|(waiting, _)| waiting)
                    .map_err(|poisoned| std::sync::PoisonError::new(poisoned.into_inner().0)),
            };
            waiting = woken.expect("nothing panics while it holds the lock");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Counts how often it is woken, and wakes whoever waits for that.
    #[derive(Default)]
    struct Counter {
        count: AtomicUsize,
        woken: Mutex<()>,
        changed: Condvar,
    }

    impl Wake for Counter {
        fn wake(self: Arc<Self>) {
            let guard = self.woken.lock().unwrap();
            self.count.fetch_add(1, Ordering::SeqCst);
            drop(guard);
            self.changed.notify_all();
        }
    }

    impl Counter {
        fn wait(&self) {
            let mut guard = self.woken.lock().unwrap();
            while self.count.load(Ordering::SeqCst) == 0 {
                let (next, timeout) =
                    self.changed.wait_timeout(guard, Duration::from_secs(60)).unwrap();
                assert!(!timeout.timed_out(), "nobody was woken within a minute");
                guard = next;
            }
        }
    }

    #[expect(clippy::disallowed_methods, reason = "these are the timers of the real clock")]
    fn timer(milliseconds: u64) -> Timer {
        Timer::after(Instant::now(), Duration::from_millis(milliseconds))
    }

    fn poll(timer: &mut Timer, counter: &Arc<Counter>) -> Poll<()> {
        let waker = Waker::from(Arc::clone(counter));
        Pin::new(timer).poll(&mut Context::from_waker(&waker))
    }

    #[test]
    fn a_timer_that_is_due_lets_others_have_a_turn_first() {
        let (mut timer, counter) = (timer(0), Arc::<Counter>::default());
        assert_eq!(poll(&mut timer, &counter), Poll::Pending);
        assert_eq!(counter.count.load(Ordering::SeqCst), 1);
        assert_eq!(poll(&mut timer, &counter), Poll::Ready(()));
    }

    #[test]
    fn a_timer_wakes_when_it_is_due_though_a_later_one_waits() {
        let (later, sooner) = (Arc::<Counter>::default(), Arc::<Counter>::default());
        let (mut late, mut soon) = (timer(600_000), timer(20));
        assert_eq!(poll(&mut late, &later), Poll::Pending);
        assert_eq!(poll(&mut soon, &sooner), Poll::Pending);
        sooner.wait();
        assert_eq!(poll(&mut soon, &sooner), Poll::Ready(()));
        assert_eq!(later.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn only_the_last_one_who_asked_is_woken() {
        let (first, second) = (Arc::<Counter>::default(), Arc::<Counter>::default());
        let mut timer = timer(20);
        assert_eq!(poll(&mut timer, &first), Poll::Pending);
        assert_eq!(poll(&mut timer, &second), Poll::Pending);
        second.wait();
        assert_eq!(first.count.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_timer_that_is_dropped_wakes_nobody_and_leaves_nothing() {
        let (dropped, kept) = (Arc::<Counter>::default(), Arc::<Counter>::default());
        let (mut gone, mut stays) = (timer(20), timer(60));
        assert_eq!(poll(&mut gone, &dropped), Poll::Pending);
        assert_eq!(poll(&mut stays, &kept), Poll::Pending);
        drop(gone);
        kept.wait();
        assert_eq!(dropped.count.load(Ordering::SeqCst), 0);
        assert_eq!(Arc::strong_count(&dropped), 1);
    }

    #[test]
    fn a_time_beyond_all_clocks_never_comes() {
        #[expect(clippy::disallowed_methods, reason = "these are the timers of the real clock")]
        let mut timer = Timer::after(Instant::now(), Duration::MAX);
        assert_eq!(poll(&mut timer, &Arc::default()), Poll::Pending);
    }
}

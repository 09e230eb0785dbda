//! What can go wrong between a node and a container, within the contract of the ports.
//!
//! Read `Link` first (who decides what happens to a request), then `documents` and `feed`.

mod documents;
mod feed;
mod listings;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::{Container, Error, ErrorKind};

pub use crate::faults::listings::Listings;

use crate::executor::NodeId;
use crate::executor::handle::{Handle, YieldNow, nanos, wide};
use crate::faults::documents::FaultyDocuments;
use crate::faults::feed::FaultyFeed;
use crate::rng::Rng;

/// How often what goes wrong, in a thousand requests, and how long it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRates {
    /// The request is lost and its sender knows.
    pub lost_request: u64,
    /// The request is lost and its sender cannot know.
    pub lost_unknown: u64,
    /// The request takes effect and the reply is lost.
    pub lost_reply: u64,
    /// The sender is told that the effect is unknown, and only then it happens.
    pub late_effect: u64,
    /// The backend has too much to do and says so.
    pub throttled: u64,
    /// No answer for a very long time, then an error. The effect may happen anywhere on the way.
    pub hang: u64,
    /// Longest hang.
    pub hang_max: Duration,
    /// The request, the reply or both travel slowly. A slow request arrives even if its sender
    /// has died or given up meanwhile.
    pub delay: u64,
    /// Longest way of a request or a reply.
    pub delay_max: Duration,
    /// A listing shows an older state.
    pub stale_list: u64,
    /// How old it can be.
    pub stale_age_max: Duration,
    /// A wake-up comes without reason.
    pub spurious_wake: u64,
    /// A wake-up comes later than it could.
    pub late_wake: u64,
    /// How much later.
    pub late_wake_max: Duration,
}

impl FaultRates {
    /// Nothing goes wrong.
    pub const NONE: Self = Self {
        lost_request: 0,
        lost_unknown: 0,
        lost_reply: 0,
        late_effect: 0,
        throttled: 0,
        hang: 0,
        hang_max: Duration::ZERO,
        delay: 0,
        delay_max: Duration::ZERO,
        stale_list: 0,
        stale_age_max: Duration::ZERO,
        spurious_wake: 0,
        late_wake: 0,
        late_wake_max: Duration::ZERO,
    };

    /// Rates of one world: some faults never happen in it, others often. `scale` is the time that
    /// matters to the code under test, for instance a lease duration: delays stay below it, hangs
    /// go beyond it.
    #[must_use]
    pub fn draw(rng: &mut Rng, scale: Duration) -> Self {
        if rng.chance(100) {
            return Self::NONE;
        }
        let mut rate = |most: u64| if rng.chance(500) { rng.below(most) } else { 0 };
        Self {
            lost_request: rate(60),
            lost_unknown: rate(40),
            lost_reply: rate(60),
            late_effect: rate(20),
            throttled: rate(60),
            hang: rate(10),
            hang_max: scale * 3,
            delay: rate(500),
            delay_max: scale / 4,
            stale_list: rate(300),
            stale_age_max: scale * 2,
            spurious_wake: rate(100),
            late_wake: rate(200),
            late_wake_max: scale / 2,
        }
    }
}

/// The way between one node and one container.
#[derive(Debug)]
pub struct Link {
    pub(crate) handle: Handle,
    node: NodeId,
    pub(crate) rates: FaultRates,
    rng: Mutex<Rng>,
    /// Nothing goes wrong from this time on.
    faults_end: AtomicU64,
    /// Nothing passes until this time.
    cut_until: AtomicU64,
    faults: AtomicU64,
}

/// What happens to one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fate {
    pub(crate) outcome: Outcome,
    /// Time on the way there and back, where it matters.
    pub(crate) there: Duration,
    pub(crate) back: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Fine,
    LostRequest,
    LostUnknown,
    LostReply,
    LateEffect,
    Throttled(Duration),
    /// Takes `there`, takes effect or not, takes `back`, fails.
    Hang {
        takes_effect: bool,
    },
}

impl Link {
    /// A way on which things go wrong at these rates until `faults_end` since the start.
    #[must_use]
    pub fn new(
        handle: &Handle,
        node: NodeId,
        rates: FaultRates,
        faults_end: Duration,
        rng: Rng,
    ) -> Arc<Self> {
        Arc::new(Self {
            handle: handle.clone(),
            node,
            rates,
            rng: Mutex::new(rng),
            faults_end: AtomicU64::new(nanos(faults_end)),
            cut_until: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        })
    }

    /// The container as the node sees it. `listings` are shared by all nodes that use it; without
    /// them no listing is old.
    #[must_use]
    pub fn wrap(
        self: &Arc<Self>,
        inner: &Container,
        listings: Option<&Arc<Listings>>,
    ) -> Container {
        let documents = Arc::clone(&inner.documents);
        let (link, listings) = (Arc::clone(self), listings.cloned());
        Container {
            info: inner.info.clone(),
            documents: Arc::new(FaultyDocuments::new(documents, link, listings)),
            feed: Arc::new(FaultyFeed::new(Arc::clone(&inner.feed), Arc::clone(self))),
            guards: inner.guards.clone(),
        }
    }

    /// Lets nothing pass for a while.
    pub fn cut_off(&self, duration: Duration) {
        let until = nanos(self.handle.now().saturating_add(duration));
        self.cut_until.fetch_max(until, Ordering::Relaxed);
    }

    /// Lets nothing go wrong any more. What is on its way still arrives in its own time.
    pub fn heal(&self) {
        self.faults_end.store(0, Ordering::Relaxed);
        self.cut_until.store(0, Ordering::Relaxed);
    }

    /// Faults so far.
    #[must_use]
    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub(crate) fn is_cut(&self) -> bool {
        let now = nanos(self.handle.now());
        now < self.cut_until.load(Ordering::Relaxed).min(self.faults_end.load(Ordering::Relaxed))
    }

    /// Decides about a request. Even on a healthy way tasks of other nodes may run between the
    /// parts of a request, so callers await [`Link::hop`] where it travels.
    pub(crate) fn fate(&self) -> Fate {
        let (mut there, mut back) = (Duration::ZERO, Duration::ZERO);
        let remaining = self.remaining();
        if remaining.is_zero() {
            return Fate { outcome: Outcome::Fine, there, back };
        }
        let rates = &self.rates;
        let is_cut = self.is_cut();
        let mut rng = self.rng();
        if rng.chance(rates.delay) {
            let longest = rates.delay_max.min(remaining);
            there = rng.duration(Duration::ZERO, longest);
            back = rng.duration(Duration::ZERO, longest);
        }
        let outcome = if is_cut {
            if rng.chance(500) { Outcome::LostRequest } else { Outcome::LostUnknown }
        } else {
            self.outcome(&mut rng)
        };
        if let Outcome::Hang { .. } = outcome {
            let longest = rates.hang_max.min(remaining);
            let all = rng.duration(longest / 3, longest);
            there = rng.duration(Duration::ZERO, all);
            back = all.saturating_sub(there);
        }
        drop(rng);
        if outcome != Outcome::Fine {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        self.handle.trace_number(wide(self.node.number()) << 40 | nanos(there + back));
        Fate { outcome, there, back }
    }

    fn outcome(&self, rng: &mut Rng) -> Outcome {
        let rates = &self.rates;
        let mut drawn = rng.below(1000);
        let mut hits = |rate: u64| {
            let is_hit = drawn < rate;
            drawn = drawn.saturating_sub(rate);
            is_hit
        };
        if hits(rates.lost_request) {
            Outcome::LostRequest
        } else if hits(rates.lost_unknown) {
            Outcome::LostUnknown
        } else if hits(rates.lost_reply) {
            Outcome::LostReply
        } else if hits(rates.late_effect) {
            Outcome::LateEffect
        } else if hits(rates.throttled) {
            Outcome::Throttled(Duration::from_millis(rng.between(1, 2000)))
        } else if hits(rates.hang) {
            Outcome::Hang { takes_effect: rng.chance(500) }
        } else {
            Outcome::Fine
        }
    }

    /// Lets time pass on the way, or at least others run.
    pub(crate) async fn hop(&self, duration: Duration) {
        if !duration.is_zero() {
            self.handle.sleep(duration).await;
        } else if self.rng().chance(500) {
            YieldNow::default().await;
        }
    }

    /// Whether a fault with this rate happens now.
    pub(crate) fn happens(&self, rate: u64) -> bool {
        if self.remaining().is_zero() || !self.rng().chance(rate) {
            return false;
        }
        self.faults.fetch_add(1, Ordering::Relaxed);
        true
    }

    /// A time up to `longest` that ends no later than the faults do.
    pub(crate) fn some_time(&self, longest: Duration) -> Duration {
        let longest = longest.min(self.remaining());
        self.rng().duration(Duration::ZERO, longest)
    }

    pub(crate) fn rng(&self) -> MutexGuard<'_, Rng> {
        self.rng.lock().expect("nothing panics while it holds the lock")
    }

    /// Whether anything may still go wrong.
    pub(crate) fn is_faulty(&self) -> bool {
        !self.remaining().is_zero()
    }

    fn remaining(&self) -> Duration {
        let end = self.faults_end.load(Ordering::Relaxed);
        Duration::from_nanos(end.saturating_sub(nanos(self.handle.now())))
    }
}

/// The error of a request that did not reach the backend.
pub(crate) fn lost(attempted: &str) -> Error {
    Error::new(ErrorKind::Unavailable, attempted).because("the connection was lost")
}

/// The error of a backend that has too much to do.
pub(crate) fn throttled(attempted: &str, wait: Duration) -> Error {
    let error = Error::new(ErrorKind::Overloaded, attempted).with_retry_after(wait);
    error.because("there were too many requests")
}

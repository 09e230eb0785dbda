use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::{Clock, Container, IdSource};

use crate::agenda::Agenda;
use crate::breaker::Breaker;
use crate::dead_letters::DeadLetters;
use crate::fence::Fence;
use crate::flaw::Flaw;
use crate::handler::Handler;
use crate::lease_store::LeaseStore;
use crate::metrics::SafeMetrics;
use crate::notification::Notifier;
use crate::options::ProcessorOptions;
use crate::stored::Owner;

/// What all parts of an instance share.
pub(crate) struct Setup {
    pub(crate) feed: Container,
    pub(crate) store: LeaseStore,
    pub(crate) dead_letters: DeadLetters,
    pub(crate) options: ProcessorOptions,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ids: Arc<dyn IdSource>,
    pub(crate) notifier: Notifier,
    pub(crate) metrics: SafeMetrics,
    pub(crate) fence: Fence,
    pub(crate) breaker: Mutex<Breaker>,
    /// When to look for changes that were put off.
    pub(crate) agenda: Agenda,
    pub(crate) me: Owner,
    /// Whether events that were not passed must not expire.
    pub(crate) is_guarding: bool,
    /// Whether earlier lives of this instance are known to be over.
    pub(crate) predecessor_is_dead: bool,
    pub(crate) flaw: Option<Flaw>,
}

impl Setup {
    /// The number that tells this container from an earlier one of the same name.
    pub(crate) fn incarnation(&self) -> u64 {
        self.feed.info.resource_id.incarnation()
    }

    /// A number that nobody can foresee, and a simulation can repeat.
    pub(crate) fn random(&self) -> u64 {
        let (high, low) = self.ids.next_id().as_u64_pair();
        // Ids may be counted; neighbours must not look alike.
        let mixed = (high ^ low.rotate_left(32)).wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// The pause before attempt number `attempts + 1`.
    pub(crate) fn pause(&self, attempts: u32) -> Duration {
        self.options.pauses().delay(attempts, self.random())
    }

    pub(crate) fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().expect("nothing panics while it holds the lock")
    }

    /// Whether this is an earlier life of this instance that is known to be over.
    pub(crate) fn is_dead_predecessor(&self, owner: &Owner) -> bool {
        self.predecessor_is_dead && owner.instance == self.me.instance && *owner != self.me
    }

    pub(crate) fn has(&self, flaw: Flaw) -> bool {
        self.flaw == Some(flaw)
    }
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Setup").field("me", &self.me).finish_non_exhaustive()
    }
}

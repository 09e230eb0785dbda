use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use millstream_core::Timestamp;

/// When an instance looks for changes that were put off.
///
/// Whoever puts one off notes its time, and whoever gets a lease looks at once, because the owner
/// before may have put some off. Nothing needs to be read as long as nothing is due.
#[derive(Debug, Default)]
pub(crate) struct Agenda {
    next: Mutex<Option<Timestamp>>,
    /// The control document says that there may be such changes.
    is_in_use: AtomicBool,
}

impl Agenda {
    /// Looks at that time, or before.
    pub(crate) fn note(&self, time: Timestamp) {
        let mut next = self.lock();
        *next = Some(next.map_or(time, |it| it.min(time)));
    }

    /// Whether the control document says that changes may be put off.
    pub(crate) fn is_in_use(&self) -> bool {
        self.is_in_use.load(Ordering::Relaxed)
    }

    pub(crate) fn use_it(&self) {
        self.is_in_use.store(true, Ordering::Relaxed);
    }

    /// Whether it is time to look; what is found has to be noted again.
    pub(crate) fn take_due(&self, now: Timestamp) -> bool {
        let mut next = self.lock();
        let is_due = next.is_some_and(|it| it <= now);
        if is_due {
            *next = None;
        }
        is_due
    }

    fn lock(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.next.lock().expect("nothing panics while it holds the lock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_time_counts_and_counts_once() {
        let at = Timestamp::from_millis;
        let agenda = Agenda::default();
        assert!(!agenda.take_due(at(100)));
        agenda.note(at(20));
        agenda.note(at(10));
        agenda.note(at(30));
        assert!(!agenda.take_due(at(9)));
        assert!(agenda.take_due(at(10)));
        assert!(!agenda.take_due(at(100)));
    }
}

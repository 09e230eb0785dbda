use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Figures that one part counts and others look at. Clones share them.
pub struct Tally<T>(Arc<Mutex<T>>);

impl<T: Clone> Tally<T> {
    /// The figures now.
    #[must_use]
    pub fn get(&self) -> T {
        self.lock().clone()
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Clone for Tally<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T: Default> Default for Tally<T> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<T: Clone + fmt::Debug> fmt::Debug for Tally<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tally").field(&self.get()).finish()
    }
}

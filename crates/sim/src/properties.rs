//! What must hold, checked at every delivery and every checkpoint against the [`Truth`].

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use millstream_core::{Change, EffectiveKey, FeedMode, Item, KeyRange, Lsn};

use crate::truth::{Truth, TruthState, key_text, version_in};

/// What one processor has been given and has handled. Each check returns the violation it found.
#[derive(Debug)]
pub struct Deliveries {
    truth: Truth,
    mode: FeedMode,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Keys whose start is not known before the first instance has started.
    unpinned: Vec<KeyRange>,
    /// By commit, one bit per change.
    marks: Vec<Marks>,
    /// By key, how many commits from the first are passed.
    delivered: BTreeMap<Arc<str>, usize>,
    handled: BTreeMap<Arc<str>, usize>,
    /// By key, the commit of the newest first delivery.
    newest: BTreeMap<Arc<str>, usize>,
    deliveries: u64,
    firsts: u64,
    /// Documents with changes that were put aside.
    kept: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Marks {
    delivered: u64,
    handled: u64,
    /// Put aside, and there now.
    kept: u64,
    /// The processor started after it.
    is_excused: bool,
}

/// A change found in the truth.
struct Found {
    commit: usize,
    bit: u64,
}

impl Deliveries {
    /// Nothing delivered yet.
    #[must_use]
    pub fn new(truth: Truth, mode: FeedMode) -> Self {
        Self { truth, mode, state: Mutex::default() }
    }

    /// The processor begins after these positions; without one, where it will be when it has
    /// started.
    pub fn begin(&self, roots: &[(KeyRange, Option<Lsn>)]) {
        let mut state = self.lock();
        for (keys, position) in roots {
            self.excuse(&mut state, keys, position.unwrap_or(Lsn::new(u64::MAX)));
            if position.is_none() {
                state.unpinned.push(keys.clone());
            }
        }
    }

    /// An instance has started: everything from now on must be delivered.
    pub fn started(&self) {
        let mut state = self.lock();
        for keys in std::mem::take(&mut state.unpinned) {
            self.excuse(&mut state, &keys, Lsn::new(u64::MAX));
        }
    }

    fn excuse(&self, state: &mut State, keys: &KeyRange, up_to: Lsn) {
        for (number, commit) in self.truth.lock().commits().iter().enumerate() {
            if commit.lsn <= up_to && keys.contains(&commit.effective) {
                state.marks(number).is_excused = true;
            }
        }
    }

    /// Deliveries so far, and how many of them were the first of their change.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.deliveries, state.firsts)
    }

    /// A change was given to the handler: first deliveries of a key are in commit order, without
    /// gaps, and show what was written. Returns a number that stands for the change.
    pub fn delivered(&self, change: &Change) -> Result<u64, String> {
        let truth = self.truth.lock();
        let found = self.find(&truth, change)?;
        let mut state = self.lock();
        state.deliveries += 1;
        let marks = state.marks(found.commit);
        if marks.delivered & found.bit != 0 {
            return Ok(found.number());
        }
        marks.delivered |= found.bit;
        state.firsts += 1;
        let commit = &truth.commits()[found.commit];
        let newest = state.newest.entry(Arc::clone(&commit.key)).or_default();
        if found.commit < *newest {
            let later = &truth.commits()[*newest];
            return Err(format!(
                "first delivery out of order: item {:?} of key {:?} at commit {} came after \
                 commit {}",
                change.id.as_str(),
                &*commit.key,
                commit.lsn,
                later.lsn,
            ));
        }
        *newest = found.commit;
        let passed = self.advance(&truth, &mut state, &commit.key, false);
        let before = truth.of_key(&commit.key).partition_point(|it| *it < found.commit);
        if passed < before {
            let missed = &truth.commits()[truth.of_key(&commit.key)[passed]];
            return Err(format!(
                "gap: key {:?} got commit {} although commit {} was never delivered",
                &*commit.key, commit.lsn, missed.lsn,
            ));
        }
        Ok(found.number())
    }

    /// A change goes to the handler in its turn: nothing before it of the same key is put aside.
    pub fn not_behind_kept(&self, change: &Change) -> Result<(), String> {
        let truth = self.truth.lock();
        let found = self.find(&truth, change)?;
        let mut state = self.lock();
        if state.kept == 0 {
            return Ok(());
        }
        let key = &truth.commits()[found.commit].key;
        let before = truth.of_key(key).iter().take_while(|it| **it < found.commit);
        for commit in before {
            if state.marks(*commit).kept != 0 {
                let (kept, lsn) = (truth.commits()[*commit].lsn, change.lsn);
                return Err(format!(
                    "commit {lsn} of key {key:?} was delivered although commit {kept} is parked"
                ));
            }
        }
        Ok(())
    }

    /// A change was put aside.
    pub fn kept(&self, key: &str, lsn: Lsn, id: &str) -> Result<(), String> {
        let found = self.find_place(&self.truth.lock(), key, lsn, id)?;
        let mut state = self.lock();
        state.kept += 1;
        state.marks(found.commit).kept |= found.bit;
        Ok(())
    }

    /// A change is no longer put aside. Returns where it lies if it was not handled either.
    pub fn removed(&self, key: &str, lsn: Lsn, id: &str) -> Result<Option<EffectiveKey>, String> {
        let truth = self.truth.lock();
        let found = self.find_place(&truth, key, lsn, id)?;
        let mut state = self.lock();
        state.kept -= 1;
        let marks = state.marks(found.commit);
        marks.kept &= !found.bit;
        let is_lost = marks.handled & found.bit == 0;
        Ok(is_lost.then(|| truth.commits()[found.commit].effective.clone()))
    }

    /// Whether the feed shows nothing of these keys after `lsn`.
    pub fn is_last(&self, keys: &KeyRange, lsn: Lsn) -> bool {
        let truth = self.truth.lock();
        truth.passed(keys, lsn).all(|(key, passed)| {
            let mut later = truth.of_key(key)[passed..].iter();
            later.all(|it| self.is_passed(&truth, *it, 0))
        })
    }

    /// Whether everything was handled, and not only put aside.
    pub fn all_handled(&self) -> Result<(), String> {
        let truth = self.truth.lock();
        let mut state = self.lock();
        for (number, commit) in truth.commits().iter().enumerate() {
            let Marks { handled, is_excused, .. } = *state.marks(number);
            if !is_excused && !self.is_passed(&truth, number, handled) {
                return Err(format!("commit {} of key {:?} is lost", commit.lsn, commit.key));
            }
        }
        Ok(())
    }

    /// The handler is done with a change.
    pub fn handled(&self, change: &Change) -> Result<(), String> {
        let truth = self.truth.lock();
        let found = self.find(&truth, change)?;
        self.lock().marks(found.commit).handled |= found.bit;
        Ok(())
    }

    /// A checkpoint was written: everything up to `lsn` in `keys` is handled.
    pub fn checkpoint(&self, keys: &KeyRange, lsn: Lsn) -> Result<(), String> {
        let truth = self.truth.lock();
        let mut state = self.lock();
        for (key, count) in truth.passed(keys, lsn) {
            let handled = self.advance(&truth, &mut state, key, true);
            if handled < count {
                let missed = &truth.commits()[truth.of_key(key)[handled]];
                return Err(format!(
                    "checkpoint {lsn} of {keys} is ahead of what was handled: commit {} of key \
                     {key:?} was not",
                    missed.lsn,
                ));
            }
        }
        Ok(())
    }

    /// Whether everything that must be handled is.
    pub fn complete(&self) -> Result<(), String> {
        let truth = self.truth.lock();
        let mut state = self.lock();
        for key in truth.keys() {
            let handled = self.advance(&truth, &mut state, key, true);
            if let Some(missed) = truth.of_key(key).get(handled) {
                let missed = &truth.commits()[*missed];
                return Err(format!("commit {} of key {key:?} was never handled", missed.lsn));
            }
        }
        Ok(())
    }

    fn find(&self, truth: &TruthState, change: &Change) -> Result<Found, String> {
        let version = |item: &Item| version_in(&item.body).and_then(|it| truth.place(it));
        let commit = match (&change.current, &change.previous) {
            (Some(item), _) => version(item).map(|it| it.commit),
            (None, Some(item)) => version(item).and_then(|it| it.superseded_by),
            (None, None) => None,
        };
        let unknown = || {
            let (id, key) = (&change.id, key_text(&change.partition_key));
            format!("item {id:?} of key {key:?} was delivered as it never was: {change:?}")
        };
        let commit = commit.ok_or_else(unknown)?;
        let written = &truth.commits()[commit];
        let place = written.changes.iter().position(|it| *it.id == *change.id.as_str());
        if *written.key != key_text(&change.partition_key) || written.lsn != change.lsn {
            return Err(unknown());
        }
        Ok(Found { commit, bit: 1 << place.ok_or_else(unknown)? })
    }

    fn find_place(
        &self,
        truth: &TruthState,
        key: &str,
        lsn: Lsn,
        id: &str,
    ) -> Result<Found, String> {
        let unknown = || format!("commit {lsn} of key {key:?} never changed item {id:?}");
        let of_key = truth.of_key(key).iter().copied();
        let commit = of_key.rev().find(|it| truth.commits()[*it].lsn == lsn).ok_or_else(unknown)?;
        let changes = &truth.commits()[commit].changes;
        let place = changes.iter().position(|it| *it.id == *id).ok_or_else(unknown)?;
        Ok(Found { commit, bit: 1 << place })
    }

    /// Counts the passed commits of a key from its first one.
    fn advance(
        &self,
        truth: &TruthState,
        state: &mut State,
        key: &Arc<str>,
        must_be_handled: bool,
    ) -> usize {
        let counts = if must_be_handled { &state.handled } else { &state.delivered };
        let mut passed = counts.get(key).copied().unwrap_or_default();
        let of_key = truth.of_key(key);
        while let Some(commit) = of_key.get(passed) {
            let marks = *state.marks(*commit);
            let is_excused = marks.is_excused;
            let marks = if must_be_handled { marks.handled | marks.kept } else { marks.delivered };
            if !is_excused && !self.is_passed(truth, *commit, marks) {
                break;
            }
            passed += 1;
        }
        let counts = if must_be_handled { &mut state.handled } else { &mut state.delivered };
        counts.insert(Arc::clone(key), passed);
        passed
    }

    /// Whether each change of a commit is marked or will never be shown.
    fn is_passed(&self, truth: &TruthState, commit: usize, marks: u64) -> bool {
        let changes = truth.commits()[commit].changes.iter().enumerate();
        changes.into_iter().all(|(index, change)| {
            let is_gone = || match change.version {
                None => true,
                Some(it) => truth.place(it).is_none_or(|it| it.superseded_by.is_some()),
            };
            marks & 1 << index != 0 || (self.mode == FeedMode::LatestVersion && is_gone())
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl Found {
    fn number(&self) -> u64 {
        let commit = u64::try_from(self.commit).expect("lists are shorter than 2^64");
        commit << 6 | u64::from(self.bit.trailing_zeros())
    }
}

impl State {
    fn marks(&mut self, commit: usize) -> &mut Marks {
        if self.marks.len() <= commit {
            self.marks.resize(commit + 1, Marks::default());
        }
        &mut self.marks[commit]
    }
}

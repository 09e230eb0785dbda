//! Signatures that were found to hold, so that the next request with the same one is checked by
//! comparing.
//!
//! Clients sign a time in whole seconds and, for everything that is posted, the link of the
//! container. A client that writes much therefore sends one and the same signature many times a
//! second; decoding and computing it again took a tenth of a create.

use std::hint::black_box;
use std::sync::{Arc, PoisonError, RwLock};

use http::{Method, header};
use millstream_core::Timestamp;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::auth::date;
use crate::fields::Fields;
use crate::target::Path;

/// Signatures that are remembered. Each has its place, where the last one counts.
const PLACES: usize = 256;
/// Longest path, date and authorization together that are remembered.
const BYTES_MAX: usize = 1024;

/// Signatures that were found to hold.
#[derive(Debug)]
pub(crate) struct Verified {
    places: Box<[RwLock<Option<Arc<Entry>>>]>,
}

/// A signature that holds, with everything that was signed.
#[derive(Debug)]
pub(super) struct Entry {
    method: Method,
    raw_path: Box<str>,
    date: Box<str>,
    is_x_ms: bool,
    authorization: Box<[u8]>,
    /// The path, taken apart.
    pub(super) path: Arc<Path>,
    /// When it was signed.
    pub(super) signed: Timestamp,
    /// Whether the key may do everything, not only read.
    pub(super) is_full: bool,
}

/// What is signed in a request, and the header that proves it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim<'a> {
    method: &'a Method,
    raw_path: &'a str,
    date: &'a str,
    is_x_ms: bool,
    authorization: &'a [u8],
}

impl<'a> Claim<'a> {
    /// What a request claims; none if it lacks something, or is too long to be remembered.
    pub(super) fn of(method: &'a Method, raw_path: &'a str, headers: &'a Fields) -> Option<Self> {
        let authorization = headers.get(&header::AUTHORIZATION)?;
        let (date, is_x_ms) = date(headers).ok()?;
        let bytes = raw_path.len() + date.len() + authorization.len();
        let claim = Self { method, raw_path, date, is_x_ms, authorization };
        (bytes <= BYTES_MAX).then_some(claim)
    }

    fn place(&self) -> usize {
        let hash = xxh3_64_with_seed(self.raw_path.as_bytes(), u64::from(self.is_x_ms));
        let hash = xxh3_64_with_seed(self.date.as_bytes(), hash);
        let hash = xxh3_64_with_seed(self.method.as_str().as_bytes(), hash);
        let places = u64::try_from(PLACES).expect("it is small");
        usize::try_from(hash % places).expect("it is less than the number of places")
    }

    /// Whether this is what was signed then, whatever proves it now.
    fn says(&self, entry: &Entry) -> bool {
        *self.method == entry.method
            && self.is_x_ms == entry.is_x_ms
            && *self.date == *entry.date
            && *self.raw_path == *entry.raw_path
    }
}

impl Default for Verified {
    fn default() -> Self {
        Self { places: (0..PLACES).map(|_| RwLock::default()).collect() }
    }
}

impl Verified {
    /// What is known of a claim, if it has the very authorization that was found to hold.
    pub(super) fn find(&self, claim: &Claim<'_>) -> Option<Arc<Entry>> {
        let place = self.places[claim.place()].read().unwrap_or_else(PoisonError::into_inner);
        let entry = place.as_ref().filter(|it| claim.says(it))?;
        is_same(&entry.authorization, claim.authorization).then(|| Arc::clone(entry))
    }

    /// Remembers a claim that was found to hold.
    pub(super) fn remember(
        &self,
        claim: &Claim<'_>,
        path: &Arc<Path>,
        signed: Timestamp,
        is_full: bool,
    ) {
        // The link of an item is signed for that item alone; remembering it hardly ever pays.
        if path.segments.len().is_multiple_of(2) {
            return;
        }
        let entry = Entry {
            method: claim.method.clone(),
            raw_path: claim.raw_path.into(),
            date: claim.date.into(),
            is_x_ms: claim.is_x_ms,
            authorization: claim.authorization.into(),
            path: Arc::clone(path),
            signed,
            is_full,
        };
        let mut place = self.places[claim.place()].write().unwrap_or_else(PoisonError::into_inner);
        *place = Some(Arc::new(entry));
    }
}

/// Compares in constant time: how long it takes tells nothing about a signature that is guessed.
fn is_same(known: &[u8], given: &[u8]) -> bool {
    if known.len() != given.len() {
        return false;
    }
    let pairs = known.iter().zip(given);
    black_box(pairs.fold(0, |differences, (known, given)| black_box(differences | (known ^ given))))
        == 0
}

//! Who is alive, judged by what changes while this instance looks.
//!
//! Members count up in their documents. Somebody whose count stays the same for a lease duration
//! of this instance's own monotonic clock is gone. No clock of another machine and no time of day
//! is ever compared.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::stored::Owner;

/// When a listing was made, by the monotonic clock of the instance that made it.
///
/// Both ends matter where a listing takes long: a value may have been written until the answer
/// came, and is known to have stayed the same only until the question was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listing {
    /// Before the listing was asked for.
    pub asked: Duration,
    /// After it was answered whole.
    pub answered: Duration,
}

/// Tells the living from the dead by watching them.
#[derive(Debug)]
pub struct Observer {
    lease_duration: Duration,
    sightings: BTreeMap<Owner, Sighting>,
}

#[derive(Debug)]
struct Sighting {
    /// The highest count seen; none if there never was a member document.
    counter: Option<u64>,
    /// Whether it was ever seen to grow.
    has_grown: bool,
    /// When that was first seen.
    since: Duration,
    /// Until when it is known to have stayed the same.
    until: Duration,
    /// How many listings ago somebody spoke of this owner.
    quiet_rounds: u32,
}

impl Listing {
    /// A listing that took no time.
    #[must_use]
    pub fn at(now: Duration) -> Self {
        Self { asked: now, answered: now }
    }
}

impl Observer {
    /// An observer that has seen nobody, for leases of this duration.
    #[must_use]
    pub fn new(lease_duration: Duration) -> Self {
        Self { lease_duration, sightings: BTreeMap::new() }
    }

    /// Takes note of all member documents of one listing.
    ///
    /// A listing may be older than the one before it: a count that goes back is no sign of life,
    /// and neither does a member die at once because it is missing. A member that expired and
    /// that neither this nor [`Observer::absent`] spoke of for two rounds is forgotten.
    pub fn observe<'a>(
        &mut self,
        listing: Listing,
        seen: impl IntoIterator<Item = (&'a Owner, u64)>,
    ) {
        for sighting in self.sightings.values_mut() {
            sighting.until = sighting.until.max(listing.asked);
            sighting.quiet_rounds = sighting.quiet_rounds.saturating_add(1);
        }
        for (owner, counter) in seen {
            let Some(sighting) = self.sightings.get_mut(owner) else {
                self.sightings.insert(owner.clone(), Sighting::new(Some(counter), listing));
                continue;
            };
            sighting.quiet_rounds = 0;
            if sighting.counter < Some(counter) {
                *sighting = sighting.grown(counter, listing);
            }
        }
        let lease_duration = self.lease_duration;
        // One round of silence is not enough: `absent` comes after this.
        self.sightings.retain(|_, it| it.quiet_rounds <= 1 || !it.is_expired(lease_duration));
    }

    /// Takes note of one member document that was read by itself.
    pub fn observe_one(&mut self, read: Listing, owner: &Owner, counter: u64) {
        match self.sightings.get_mut(owner) {
            Some(sighting) if sighting.counter < Some(counter) => {
                *sighting = sighting.grown(counter, read);
            }
            Some(sighting) => sighting.until = sighting.until.max(read.asked),
            None => {
                self.sightings.insert(owner.clone(), Sighting::new(Some(counter), read));
            }
        }
    }

    /// Takes note of somebody whom a lease names as its owner and of whom the listing had no member
    /// document; after [`Observer::observe`], in every round.
    ///
    /// Who was never seen before may be new, so its time begins now.
    pub fn absent(&mut self, listing: Listing, owner: &Owner) {
        match self.sightings.get_mut(owner) {
            Some(sighting) => sighting.quiet_rounds = 0,
            None => {
                self.sightings.insert(owner.clone(), Sighting::new(None, listing));
            }
        }
    }

    /// Whether this owner was seen and has not expired.
    #[must_use]
    pub fn is_live(&self, owner: &Owner) -> bool {
        self.sightings.get(owner).is_some_and(|it| !it.is_expired(self.lease_duration))
    }

    /// Whether listings a lease duration apart, or further, saw this owner and no change.
    ///
    /// Time in which this instance did not look does not count: after a pause of its own it looks
    /// once more before it calls anybody dead.
    #[must_use]
    pub fn is_expired(&self, owner: &Owner) -> bool {
        self.sightings.get(owner).is_some_and(|it| it.is_expired(self.lease_duration))
    }

    /// Whether this owner gave a sign of life while this instance looked. What is only found may be
    /// the document of somebody who died long ago.
    #[must_use]
    pub fn has_given_sign(&self, owner: &Owner) -> bool {
        self.sightings.get(owner).is_some_and(|it| it.has_grown)
    }

    /// When the next owner but `me` expires, if nothing is heard of it.
    #[must_use]
    pub fn next_expiry(&self, me: &Owner) -> Option<Duration> {
        let others = self.sightings.iter().filter(|(owner, _)| *owner != me);
        let waiting = others.filter(|(_, it)| !it.is_expired(self.lease_duration));
        waiting.map(|(_, it)| it.since + self.lease_duration).min()
    }

    /// When the latest change of this owner was seen, or its first absence.
    #[must_use]
    pub fn unchanged_since(&self, owner: &Owner) -> Option<Duration> {
        self.sightings.get(owner).map(|it| it.since)
    }
}

impl Sighting {
    fn new(counter: Option<u64>, listing: Listing) -> Self {
        let (since, until) = (listing.answered, listing.answered);
        Self { counter, has_grown: false, since, until, quiet_rounds: 0 }
    }

    /// Somebody who was only absent before is new when its document appears.
    fn grown(&self, counter: u64, listing: Listing) -> Self {
        Self { has_grown: self.counter.is_some(), ..Self::new(Some(counter), listing) }
    }

    fn is_expired(&self, lease_duration: Duration) -> bool {
        lease_duration <= self.until.saturating_sub(self.since)
    }
}

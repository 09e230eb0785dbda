//! One round: look, plan, act.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures_util::StreamExt;
use futures_util::stream::iter;
use millstream_core::{KeyRange, Timestamp};

use crate::audit::{AuditedLease, audit};
use crate::bootstrap::container_recreated;
use crate::error::{Error, ErrorKind, Result};
use crate::fence::Tenure;
use crate::flaw::Flaw;
use crate::instance::Instance;
use crate::lease_store::{Listing, Stored};
use crate::leaves::root_lease;
use crate::metrics;
use crate::notification::Notification;
use crate::observe;
use crate::plan::{self, Action, Holder, PlannedLease, plan};
use crate::split::complete_split;
use crate::stored::schema::Document;
use crate::stored::{Control, Lease, LeaseState, Member, Owner};
use crate::worker::{Directive, Wishes};

/// Leases written at the same time.
const PARALLEL: usize = 16;
/// Lease durations after which the document of a dead member without leases is removed.
const BURIAL_LEASE_DURATIONS: u32 = 3;
/// A member that has just joined has counted up to here.
const COUNTER_NEW_MAX: u64 = 2;
/// How long it takes until changes that were put off are looked for although none is known.
const LOOK_AGAIN: std::time::Duration = std::time::Duration::from_secs(60);
/// Listings in a row without a lease after which its worker stops.
const MISSING_MAX: u32 = 3;

impl Instance {
    pub(super) async fn round(&mut self) -> Result<()> {
        let asked = self.setup.clock.monotonic();
        let listing = self.setup.store.list().await?;
        let seen = observe::Listing { asked, answered: self.setup.clock.monotonic() };
        self.unsettled = false;
        let control = self.heed_control(&listing)?;
        self.observe(seen, &listing);
        let incarnation = self.setup.incarnation();
        let leases: BTreeMap<String, &Stored<Lease>> = listing
            .leases
            .iter()
            .filter(|it| it.document.container == incarnation)
            .map(|it| (it.document.local_id(), it))
            .collect();
        self.reconcile(&leases);
        self.complete_splits(&leases).await;
        self.audit(&control, &leases, &listing.strays).await;
        self.bury(&listing).await;
        let Some(tenure) = self.setup.fence.tenure(self.setup.clock.monotonic()) else {
            self.unsettled = true;
            return Ok(());
        };
        self.balance(tenure, &listing, &leases).await;
        self.wake().await;
        self.report();
        Ok(())
    }

    /// Has changes delivered whose time has come.
    async fn wake(&mut self) {
        let (agenda, now) = (&self.setup.agenda, self.setup.clock.now());
        if self.wishes.paused || !agenda.is_in_use() || !agenda.take_due(now) {
            return;
        }
        // However sure it is that nothing was missed, it costs little to look again.
        agenda.note(now.plus(LOOK_AGAIN));
        match self.wake_due(now).await {
            Ok(next) => next.into_iter().for_each(|it| self.setup.agenda.note(it)),
            Err(error) => {
                self.setup.agenda.note(now);
                self.tell_failed(&error);
            }
        }
    }

    /// Moves what is due to the sequences of its keys, and says when to look again.
    async fn wake_due(&mut self, now: Timestamp) -> Result<Option<Timestamp>> {
        let staying = self.held.values().filter(|it| it.going_to.is_none());
        let keys: Vec<_> = staying.map(|it| Arc::clone(&it.keys)).collect();
        if keys.is_empty() {
            return Ok(None);
        }
        let (letters, store) = (&self.setup.dead_letters, &self.setup.store);
        let woken = letters.wake(now, &keys).await?;
        if !woken.is_empty() {
            // A lease may have gone to another instance meanwhile, which hears of it this way.
            store.bump_redrives_by_instance().await?;
            letters.forget(&woken).await?;
            self.unsettled = true;
        }
        match woken.failed {
            Some(error) => Err(error),
            None => Ok(woken.next),
        }
    }

    /// Follows what an operator wants.
    fn heed_control(&mut self, listing: &Listing) -> Result<Control> {
        let Some(control) = &listing.control else {
            return Err(Error::new(ErrorKind::NotFound, "find the control document").because(
                "somebody deleted it; restart every instance so that the leases are made anew",
            ));
        };
        let control = &control.document;
        control.check_exact_for(self.setup.incarnation())?;
        if control.container != self.setup.incarnation() {
            self.setup.notifier.tell(Notification::ContainerRecreated);
            return Err(container_recreated(self.setup.store.name()));
        }
        let wishes = Wishes { paused: control.paused, redrives: control.redrives };
        if control.postpones {
            self.setup.agenda.use_it();
        }
        let before = std::mem::replace(&mut self.wishes, wishes);
        if before != wishes {
            for held in self.held.values() {
                held.wishes.send_replace(wishes);
            }
        }
        if before.paused != wishes.paused {
            self.setup.notifier.tell(Notification::Paused(wishes.paused));
        }
        // A pause is acted upon when the workers have heard of it and no handler is at work.
        let is_heard = before == wishes;
        let is_idle = !self.lock_statuses().values().any(|it| it.is_busy());
        if !wishes.paused || is_heard && is_idle {
            self.condition.acted_upon(control.epoch);
        }
        Ok(control.clone())
    }

    fn observe(&mut self, seen: observe::Listing, listing: &Listing) {
        let members: Vec<(Owner, u64)> =
            listing.members.iter().map(|it| (it.document.owner(), it.document.counter)).collect();
        if self.setup.has(Flaw::ExpiryByWallClock) {
            let written = listing.members.iter().map(|it| &it.document);
            self.written_at =
                written.map(|it| (it.owner(), Timestamp::from_millis(it.written_at))).collect();
        }
        self.observer.observe(seen, members.iter().map(|(owner, counter)| (owner, *counter)));
        let known: BTreeSet<&Owner> = members.iter().map(|(owner, _)| owner).collect();
        for owner in listing.leases.iter().filter_map(|it| it.document.owner.as_ref()) {
            if !known.contains(owner) {
                self.observer.absent(seen, owner);
            }
        }
    }

    /// Stops workers whose lease went to somebody else.
    ///
    /// The listing may be older than what this instance did since: only a larger epoch counts.
    fn reconcile(&mut self, leases: &BTreeMap<String, &Stored<Lease>>) {
        for (id, held) in &mut self.held {
            let Some(lease) = leases.get(id) else {
                held.missing += 1;
                if MISSING_MAX <= held.missing {
                    let reason = "the lease was deleted".to_owned();
                    held.directive.send_replace(Directive::Abandon { reason });
                }
                continue;
            };
            held.missing = 0;
            let lease = &lease.document;
            // A worker that is giving its lease up has written a larger epoch itself.
            let is_giving_up = held.going_to.is_some();
            if held.epoch < lease.epoch && !(is_giving_up && lease.epoch == held.epoch + 1) {
                let by = lease.owner.as_ref().map_or("nobody", |it| &it.instance);
                let reason = format!("it belongs to {by} since epoch {}", lease.epoch);
                held.directive.send_replace(Directive::Abandon { reason });
            }
        }
    }

    /// Completes splits that their owner did not: it may have died in the middle.
    async fn complete_splits(&mut self, leases: &BTreeMap<String, &Stored<Lease>>) {
        let unfinished = leases.iter().filter(|(id, it)| {
            let owner = it.document.owner.as_ref();
            let is_alive = owner.is_some_and(|it| *it != self.setup.me && !self.is_dead(it));
            it.document.state == LeaseState::Splitting && !self.held.contains_key(*id) && !is_alive
        });
        let unfinished: Vec<_> = unfinished.map(|(_, lease)| *lease).collect();
        for lease in unfinished {
            self.unsettled = true;
            if let Err(error) = complete_split(&self.setup.store, lease).await {
                self.tell_failed(&error);
            }
        }
    }

    /// Compares the leases with the key space; holes that stay are filled, overlaps are reported.
    async fn audit(
        &mut self,
        control: &Control,
        leases: &BTreeMap<String, &Stored<Lease>>,
        strays: &[(String, Lease)],
    ) {
        let mut audited: Vec<AuditedLease> =
            leases.iter().map(|(id, lease)| AuditedLease::of(id, &lease.document)).collect();
        let coverage = audit(&[KeyRange::all()], &audited);
        // Nobody processes a stray, so it fills no hole.
        let strays = strays.iter().filter(|(_, it)| it.container == control.container);
        audited.extend(strays.map(|(id, lease)| AuditedLease::of(id, lease)));
        let overlaps = audit(&[KeyRange::all()], &audited).overlaps;
        if overlaps.len() != self.told_overlaps {
            self.told_overlaps = overlaps.len();
            for (left, right, keys) in &overlaps {
                tracing::error!(left, right, %keys, "two leases cover the same keys");
                let leases = [left.clone(), right.clone()];
                self.setup.notifier.tell(Notification::Overlap { keys: keys.clone(), leases });
            }
        }
        if !control.complete {
            return;
        }
        for hole in self.holes.confirm(&coverage) {
            self.fill(control, &hole).await;
        }
    }

    /// Makes leases for keys that have none, from the position of the first start: nobody knows
    /// better, and repeating is allowed where losing is not.
    async fn fill(&mut self, control: &Control, hole: &KeyRange) {
        for root in &control.roots {
            let Some(keys) = root.keys.intersect(hole) else { continue };
            tracing::error!(%keys, "no lease covered these keys; making one");
            let lease = Lease { keys: keys.clone(), ..root_lease(control, root) };
            match self.setup.store.create(lease).await {
                Ok(_) => self.setup.notifier.tell(Notification::HoleRepaired { keys }),
                Err(error) if *error.kind() == ErrorKind::Conflict => (),
                Err(error) => self.tell_failed(&error),
            }
            self.unsettled = true;
        }
    }

    /// Removes the documents of members that are long dead and have no lease.
    async fn bury(&mut self, listing: &Listing) {
        let patience = self.setup.options.lease_duration * BURIAL_LEASE_DURATIONS;
        let now = self.setup.clock.monotonic();
        for member in &listing.members {
            let owner = member.document.owner();
            let since = self.observer.unchanged_since(&owner);
            let is_long_dead = since.is_some_and(|it| patience <= now.saturating_sub(it));
            let has_lease =
                || listing.leases.iter().any(|it| it.document.owner.as_ref() == Some(&owner));
            if owner != self.setup.me && is_long_dead && self.is_dead(&owner) && !has_lease() {
                // Somebody else may have been faster, or it lives again; both are fine.
                let _ = self.setup.store.delete(member).await;
            }
        }
    }

    async fn balance(
        &mut self,
        tenure: Tenure,
        listing: &Listing,
        leases: &BTreeMap<String, &Stored<Lease>>,
    ) {
        let members = self.planned_members(listing);
        let planned = self.planned_leases(leases);
        let strategy = self.setup.options.strategy;
        let mut plan = plan(&self.setup.me, &members, &planned, strategy, self.setup.random());
        if self.setup.has(Flaw::StealWithoutHandover) {
            plan = self.stolen(&members, planned, plan);
        }
        self.unsettled |= !plan.balanced;
        if plan.unassigned != self.told_unassigned {
            self.told_unassigned = plan.unassigned;
            self.setup.notifier.tell(Notification::Unassigned { leases: plan.unassigned });
        }
        let mut wanted = Vec::new();
        let mut given = BTreeSet::new();
        let deadline = self.setup.clock.monotonic() + self.setup.options.handover_deadline;
        for action in plan.actions {
            match action {
                Action::Take(id) => wanted.push(id),
                Action::HandOver { lease, to } => {
                    let going_to = Some(Holder::Member(to.clone()));
                    self.give(&lease, Some(to), going_to, deadline, leases).await;
                    given.insert(lease);
                }
                Action::Release(lease) => {
                    self.give(&lease, None, Some(Holder::Free), deadline, leases).await;
                    given.insert(lease);
                }
            }
        }
        // Leases that are ours by the document, but have no worker: handed to us by another
        // instance, or acquired with an answer that was lost.
        let handed = leases.iter().filter(|(id, it)| {
            self.is_me(it.document.owner.as_ref())
                && it.document.state == LeaseState::Active
                && !self.held.contains_key(*id)
                && !given.contains(*id)
        });
        wanted.extend(handed.map(|(id, _)| id.clone()));
        self.take(tenure, wanted, leases).await;
    }

    /// Who gets leases, in the eyes of this instance.
    ///
    /// Nothing is handed to somebody who may have died long before this instance began to look: a
    /// document that is not new, or that did not change when it should have, without any lease.
    fn planned_members(&self, listing: &Listing) -> Vec<plan::Member> {
        let owners: BTreeSet<&Owner> =
            listing.leases.iter().filter_map(|it| it.document.owner.as_ref()).collect();
        let now = self.setup.clock.monotonic();
        let patience = self.setup.options.round_interval * 3 / 2;
        let is_left_over = |member: &Member| {
            let owner = member.owner();
            let since = self.observer.unchanged_since(&owner);
            let is_new = member.counter <= COUNTER_NEW_MAX
                && since.is_none_or(|it| now.saturating_sub(it) < patience);
            !is_new
                && owner != self.setup.me
                && !self.observer.has_given_sign(&owner)
                && !owners.contains(&owner)
        };
        let live = listing.members.iter().filter(|it| {
            let owner = it.document.owner();
            owner == self.setup.me || !self.is_dead(&owner)
        });
        live.map(|it| plan::Member {
            owner: it.document.owner(),
            leases_min: it.document.leases_min,
            leases_max: it.document.leases_max,
            accepting: it.document.accepting && !is_left_over(&it.document),
        })
        .collect()
    }

    fn planned_leases(&self, leases: &BTreeMap<String, &Stored<Lease>>) -> Vec<PlannedLease> {
        let active = leases.iter().filter(|(_, it)| it.document.state == LeaseState::Active);
        active
            .map(|(id, lease)| PlannedLease {
                id: id.clone(),
                holder: self.holder(id, &lease.document),
                load: lease.document.load,
                handing_over: self.held.get(id).and_then(|it| it.going_to.clone()),
            })
            .collect()
    }

    /// Who has the lease. What this instance works on is its own, whatever an older listing says.
    fn holder(&self, id: &str, lease: &Lease) -> Holder {
        if self.held.contains_key(id) {
            return Holder::Member(self.setup.me.clone());
        }
        match &lease.owner {
            Some(owner) if *owner == self.setup.me || !self.is_dead(owner) => {
                Holder::Member(owner.clone())
            }
            Some(_) | None => Holder::Free,
        }
    }

    async fn give(
        &mut self,
        id: &str,
        to: Option<Owner>,
        going_to: Option<Holder>,
        deadline: std::time::Duration,
        leases: &BTreeMap<String, &Stored<Lease>>,
    ) {
        if let Some(held) = self.held.get_mut(id) {
            held.going_to = going_to;
            held.directive.send_replace(Directive::GiveUp { to, deadline });
            return;
        }
        // Ours by the document, but nobody works on it: it can go as it is.
        let Some(lease) = leases.get(id).filter(|it| self.is_me(it.document.owner.as_ref())) else {
            return;
        };
        let document =
            Lease { owner: to, epoch: lease.document.epoch + 1, ..lease.document.clone() };
        if let Err(error) = self.setup.store.replace(document, &lease.etag).await
            && *error.kind() != ErrorKind::Conflict
        {
            self.tell_failed(&error);
        }
    }

    /// Acquires leases, several at a time. Losing a race is normal.
    async fn take(
        &mut self,
        tenure: Tenure,
        wanted: Vec<String>,
        leases: &BTreeMap<String, &Stored<Lease>>,
    ) {
        let dead = self.confirmed_dead(&wanted, leases).await;
        let free = wanted.iter().filter_map(|it| leases.get(it)).filter(|it| {
            let owner = it.document.owner.as_ref();
            owner.is_none_or(|it| *it == self.setup.me || dead.contains(it))
        });
        let setup = std::sync::Arc::clone(&self.setup);
        let attempts: Vec<_> = free
            .map(|lease| {
                let setup = &setup;
                let document = Lease {
                    owner: Some(setup.me.clone()),
                    epoch: lease.document.epoch + 1,
                    owners_since_checkpoint: lease.document.owners_since_checkpoint + 1,
                    ..lease.document.clone()
                };
                async move { setup.store.replace(document, &lease.etag).await }
            })
            .collect();
        self.unsettled |= !attempts.is_empty();
        let mut acquired = iter(attempts).buffer_unordered(PARALLEL);
        while let Some(outcome) = acquired.next().await {
            match outcome {
                Ok(lease) => self.begin(lease, tenure),
                Err(error) if *error.kind() == ErrorKind::Conflict => (),
                Err(error) => self.tell_failed(&error),
            }
        }
    }

    /// The dead owners of wanted leases, after a look at their documents: the listing may have been
    /// old all the time.
    async fn confirmed_dead(
        &mut self,
        wanted: &[String],
        leases: &BTreeMap<String, &Stored<Lease>>,
    ) -> BTreeSet<Owner> {
        let owners = wanted.iter().filter_map(|it| leases.get(it)?.document.owner.clone());
        let owners: BTreeSet<Owner> = owners.filter(|it| *it != self.setup.me).collect();
        let mut dead = BTreeSet::new();
        for owner in owners {
            let asked = self.setup.clock.monotonic();
            let Ok(found) = self.setup.store.read_member(&owner.instance).await else { continue };
            let seen = observe::Listing { asked, answered: self.setup.clock.monotonic() };
            let member = found.filter(|it| it.document.owner() == owner);
            if self.setup.has(Flaw::StealWithoutHandover) || self.setup.has(Flaw::ExpiryByWallClock)
            {
                dead.insert(owner);
                continue;
            }
            if let Some(member) = member {
                self.observer.observe_one(seen, &owner, member.document.counter);
            }
            if self.is_dead(&owner) {
                dead.insert(owner);
            }
        }
        dead
    }

    fn is_dead(&self, owner: &Owner) -> bool {
        if self.setup.is_dead_predecessor(owner) {
            return true;
        }
        if self.setup.has(Flaw::ExpiryByWallClock)
            && let Some(written_at) = self.written_at.get(owner)
        {
            return self.setup.options.lease_duration < self.setup.clock.now().since(*written_at);
        }
        self.observer.is_expired(owner)
    }

    /// The plan of a newcomer that takes its share without asking.
    fn stolen(
        &self,
        members: &[plan::Member],
        mut planned: Vec<PlannedLease>,
        plan: plan::Plan,
    ) -> plan::Plan {
        let me = Holder::Member(self.setup.me.clone());
        for lease in planned.iter_mut().filter(|it| it.holder != me) {
            lease.holder = Holder::Free;
        }
        let strategy = self.setup.options.strategy;
        let greedy = crate::plan::plan(&self.setup.me, members, &planned, strategy, 0);
        if greedy.actions.is_empty() { plan } else { greedy }
    }

    /// Publishes what the next sign of life says.
    fn report(&self) {
        let statuses = self.lock_statuses();
        let load = statuses.values().map(|it| it.load_per_mille()).sum();
        let lag: u64 = statuses
            .values()
            .filter_map(|it| it.lag(self.setup.clock.now()))
            .map(|it| it.commits)
            .sum();
        drop(statuses);
        self.condition.set(self.held.len(), load);
        let owned = u32::try_from(self.held.len()).unwrap_or(u32::MAX);
        self.setup.metrics.gauge(metrics::LEASES_OWNED, f64::from(owned));
        let lag = u32::try_from(lag).unwrap_or(u32::MAX);
        self.setup.metrics.gauge(metrics::LAG_COMMITS, f64::from(lag));
    }

    fn tell_failed(&self, error: &Error) {
        let error = error.report();
        tracing::warn!(error, "could not write a lease");
        self.setup.metrics.count(metrics::STORE_ERRORS, 1);
        self.setup.notifier.tell(Notification::StoreFailed { keys: None, error });
    }
}

//! Giving a lease up: to another instance, to nobody, or to the leases that replace it.

use std::sync::Arc;

use futures_util::StreamExt;
use millstream_core::{KeyRange, PageSize};
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::flaw::Flaw;
use crate::lease_store::{timed_out, within};
use crate::shared::Setup;
use crate::split::{complete_split, create_if_missing};
use crate::stored::{Handled, LeaseState, Owner};
use crate::worker::events::Event;
use crate::worker::write::{NotOurs, write_lease};
use crate::worker::{Directive, Ended, StopReason, Work};

impl Work {
    /// Brings the work to its end. Handlers that are still busy are dropped.
    pub(super) async fn finish(&mut self, directive: &mut watch::Receiver<Directive>) -> Ended {
        self.cancellation.cancel();
        let Some(stopping) = self.stopping.take() else { unreachable!("nobody asked to stop") };
        if let Err(ended) = self.await_write().await {
            return *ended;
        }
        if !self.setup.has(Flaw::HandoverBeforeDrained) {
            self.events.clear();
        }
        self.busy = 0;
        self.advance();
        self.include_done_prefix().await;
        match stopping.because {
            StopReason::GiveUp(to) => self.give_to(to).await,
            StopReason::Split => self.split(directive).await,
        }
    }

    /// Waits for a write of the lease that is on its way. Batches that end meanwhile count.
    async fn await_write(&mut self) -> Result<(), Box<Ended>> {
        while self.lease.is_none() {
            let Some(event) = self.events.next().await else { break };
            if !matches!(event, Event::Fetched(_)) {
                self.on_event(event).await?;
            }
        }
        Ok(())
    }

    /// Moves the watermark into a page of which only the first changes are done.
    ///
    /// A page has one continuation, at its end. Reading so many changes from its beginning as are
    /// done gives the continuation in the middle, if they are still the same changes.
    async fn include_done_prefix(&mut self) {
        let Some((page, done)) = self.progress.partly_done() else { return };
        let setup = &self.setup;
        let read = setup.feed.feed.read(&self.keys, &page.start, PageSize::items(done));
        // Without an answer the changes are delivered again, which is better than to wait for it.
        let prefix = within(&*setup.clock, setup.options.read_timeout, read).await;
        let Some(Ok(prefix)) = prefix else { return };
        let is_done = |it: &millstream_core::Change| {
            // After a merge of ranges two commits of different keys may have the same number.
            let is_same = |done: &millstream_core::Change| {
                let one = (done.lsn, &done.partition_key, &done.id);
                one == (it.lsn, &it.partition_key, &it.id)
            };
            page.changes[..done].iter().any(is_same)
        };
        if !prefix.changes.is_empty() && prefix.changes.iter().all(is_done) {
            self.handled = prefix.changes.last().map(Handled::of).or(self.handled);
            self.watermark = prefix.continuation;
        }
    }

    async fn give_to(&mut self, to: Option<Owner>) -> Ended {
        let Some(lease) = self.lease.take() else { unreachable!("the write was awaited") };
        let mut wanted = self.checkpointed(&lease.document, self.setup.clock.monotonic());
        wanted.owner.clone_from(&to);
        wanted.epoch += 1;
        match write_lease(&self.setup, lease, wanted).await {
            Ok(_) => {
                // Handlers are at work only if a bug is planted.
                while self.events.next().await.is_some() {}
                Ended::Released { to: to.map(|it| it.instance) }
            }
            Err(NotOurs { reason }) => Ended::Lost { reason },
        }
    }

    /// Replaces the lease by one for each range its keys lie in now.
    async fn split(&mut self, directive: &mut watch::Receiver<Directive>) -> Ended {
        let setup = Arc::clone(&self.setup);
        let children = loop {
            let error = match children(&setup, &self.keys).await {
                Ok(children) => break children,
                Err(error) => error,
            };
            self.fetch_failures += 1;
            self.tell_store_failed(error.report());
            let asked = directive.borrow_and_update().clone();
            if let Directive::GiveUp { to, .. } = asked {
                // Whoever has it next finds the split too; a stop must not wait for the feed.
                return self.give_to(to).await;
            }
            tokio::select! {
                biased;
                _ = directive.changed() => (),
                () = setup.clock.sleep(setup.pause(self.fetch_failures)) => (),
            }
        };
        if children.len() < 2 {
            // The ranges were joined again in the meantime: whoever takes the lease goes on.
            return self.give_to(Some(self.setup.me.clone())).await;
        }
        let Some(lease) = self.lease.take() else { unreachable!("the write was awaited") };
        let mut wanted = self.checkpointed(&lease.document, self.setup.clock.monotonic());
        if self.setup.has(Flaw::ChildInheritsRead) {
            wanted.position = self.position_read().as_str().to_owned();
        }
        wanted.state = LeaseState::Splitting;
        if self.setup.has(Flaw::ParentRetiredEarly) {
            wanted.state = LeaseState::Retired;
        }
        wanted.children.clone_from(&children);
        let frozen = match write_lease(&self.setup, lease, wanted).await {
            Ok(frozen) => frozen,
            Err(NotOurs { reason }) => return Ended::Lost { reason },
        };
        if self.setup.has(Flaw::ParentRetiredEarly) {
            for keys in children.clone() {
                let child = frozen.document.child(keys);
                let _ = create_if_missing(&self.setup.store, child).await;
            }
        }
        if let Err(error) = complete_split(&self.setup.store, &frozen).await {
            // The lease says what is to be done; the next round of any instance does it.
            self.tell_store_failed(error.report());
        }
        Ended::Split { children }
    }
}

/// The parts of the keys that lie in different ranges.
async fn children(setup: &Setup, keys: &KeyRange) -> Result<Vec<KeyRange>> {
    let limit = setup.options.read_timeout;
    let ranges = within(&*setup.clock, limit, setup.feed.feed.ranges()).await;
    let ranges = ranges.unwrap_or_else(|| Err(timed_out("list the ranges")));
    let ranges = ranges.map_err(|error| Error::store("find the ranges", error))?;
    Ok(ranges.iter().filter_map(|it| keys.intersect(&it.keys)).collect())
}

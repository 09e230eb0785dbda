use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use millstream_core::{
    Documents, Error, Item, PageSize, Result, ScanContinuation, ScanPage, ScanScope,
};

/// Listings remembered per scope.
const REMEMBERED_MAX: usize = 8;
/// Begins a continuation of an old listing.
const PREFIX: &str = "old.";

/// The last complete listings of a container by scope: what a node sees that reads from a replica
/// which is behind.
#[derive(Debug, Default)]
pub struct Listings {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    scopes: Vec<(ScanScope, VecDeque<Listing>)>,
    /// Old listings that somebody is in the middle of.
    open: Vec<(u64, Listing)>,
    opened: u64,
}

#[derive(Clone, Debug)]
struct Listing {
    /// Time since the start of the simulation.
    at: Duration,
    items: Arc<[Item]>,
}

impl Listings {
    /// Remembers the state of now.
    ///
    /// `inner` answers at once, so that no commit falls between two pages.
    pub(super) async fn remember(
        &self,
        inner: &dyn Documents,
        scope: &ScanScope,
        now: Duration,
    ) -> Result<()> {
        let mut items: Vec<Item> = Vec::new();
        let mut after = None;
        loop {
            let size = PageSize { items_max: PageSize::ITEMS_MAX, ..PageSize::default() };
            let page = inner.scan(scope, after.as_ref(), size).await?;
            items.extend(page.items);
            after = page.continuation;
            if after.is_none() {
                break;
            }
        }
        let mut state = self.lock();
        let known = state.scopes.iter().position(|(it, _)| it == scope);
        let place = known.unwrap_or_else(|| {
            state.scopes.push((scope.clone(), VecDeque::new()));
            state.scopes.len() - 1
        });
        let listings = &mut state.scopes[place].1;
        let is_same = listings.back().is_some_and(|it| *it.items == *items);
        if is_same {
            // The state has lasted until now.
            listings.back_mut().expect("there is one").at = now;
            return Ok(());
        }
        if listings.len() == REMEMBERED_MAX {
            listings.pop_front();
        }
        listings.push_back(Listing { at: now, items: items.into() });
        Ok(())
    }

    /// The first page of a listing that is not older than `oldest`, if one is remembered. `choose`
    /// picks one of that many.
    pub(super) fn old_page(
        &self,
        scope: &ScanScope,
        oldest: Duration,
        size: PageSize,
        choose: impl FnOnce(usize) -> usize,
    ) -> Option<ScanPage> {
        let mut state = self.lock();
        let (_, listings) = state.scopes.iter().find(|(it, _)| it == scope)?;
        let usable: Vec<&Listing> = listings.iter().filter(|it| oldest <= it.at).collect();
        if usable.is_empty() {
            return None;
        }
        let listing = usable[choose(usable.len())].clone();
        state.opened += 1;
        let number = state.opened;
        Some(state.page(number, listing, 0, size.clamped()))
    }

    /// The next page, if the continuation is one of an old listing.
    pub(super) fn next_page(
        &self,
        after: &ScanContinuation,
        size: PageSize,
    ) -> Option<Result<ScanPage>> {
        let (number, from) = after.as_str().strip_prefix(PREFIX)?.split_once('.')?;
        let (number, from) = (number.parse().ok()?, from.parse().ok()?);
        let mut state = self.lock();
        let Some((_, listing)) = state.open.iter().find(|(it, _)| *it == number) else {
            let reason = "the continuation belongs to another scan";
            return Some(Err(Error::invalid("continue the scan", reason)));
        };
        let listing = listing.clone();
        Some(Ok(state.page(number, listing, from, size.clamped())))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it holds the lock")
    }
}

impl State {
    fn page(&mut self, number: u64, listing: Listing, from: usize, size: PageSize) -> ScanPage {
        let until = listing.items.len().min(from.saturating_add(size.items_max));
        let items = listing.items[from.min(until)..until].to_vec();
        if until == listing.items.len() {
            self.open.retain(|(it, _)| *it != number);
            return ScanPage { items, continuation: None };
        }
        if !self.open.iter().any(|(it, _)| *it == number) {
            self.open.push((number, listing));
        }
        let continuation = ScanContinuation::new(format!("{PREFIX}{number}.{until}"));
        ScanPage { items, continuation: Some(continuation) }
    }
}

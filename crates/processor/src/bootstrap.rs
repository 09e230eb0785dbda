//! The first start: what makes leases out of ranges.
//!
//! One document decides: the control document lists the ranges with their pinned positions, and
//! creating it either succeeds or shows that another instance was first. Leases are made from that
//! list, by whoever gets there; making one twice changes nothing. So there is no lock to be left
//! behind, and a half-made set is completed by the next start.

use futures_util::StreamExt;
use futures_util::stream::iter;
use millstream_core::{
    Continuation, ErrorKind as CoreErrorKind, FeedMode, KeyRange, PageSize, StartFrom,
};

use crate::error::{Error, ErrorKind, Result};
use crate::flaw::Flaw;
use crate::lease_store::{Stored, timed_out, within};
use crate::leaves::root_lease;
use crate::notification::Notification;
use crate::options::{RecreatedPolicy, StartPosition};
use crate::shared::Setup;
use crate::split::create_if_missing;
use crate::stored::schema::Schema;
use crate::stored::{Control, Mode, Root};

/// Leases created at the same time.
const PARALLEL: usize = 16;
/// Tries of a step before the start is given up.
const TRIES_MAX: u32 = 8;
/// Bounds of the whole space for each part of a range: fine enough for ranges of a percent.
const BOUNDS_PER_PART: u32 = 128;

/// Makes sure that every range has a lease, and returns the control document.
pub(crate) async fn bootstrap(setup: &Setup) -> Result<Stored<Control>> {
    let mut tries = 0;
    loop {
        let error = match attempt(setup).await {
            Ok(Some(control)) => return Ok(control),
            // Somebody else was faster; look again.
            Ok(None) => Error::new(ErrorKind::Conflict, "create the leases"),
            Err(error) if is_worth_repeating(&error) => error,
            Err(error) => return Err(error),
        };
        tries += 1;
        if tries == TRIES_MAX {
            return Err(error);
        }
        tracing::warn!(error = error.report(), tries, "could not create the leases yet");
        setup.clock.sleep(setup.pause(tries)).await;
    }
}

async fn attempt(setup: &Setup) -> Result<Option<Stored<Control>>> {
    let Some(control) = setup.store.read_control().await? else {
        let control = new_control(setup).await?;
        return match setup.store.create(control).await {
            Ok(control) => complete(setup, control).await,
            Err(error) if *error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        };
    };
    check_mode(setup, &control.document)?;
    control.document.check_exact_for(setup.incarnation())?;
    if control.document.container != setup.incarnation() {
        return recreated(setup, control).await;
    }
    if let Some(start) = &setup.options.start
        && start.to_string() != control.document.start
    {
        let stored = control.document.start.clone();
        tracing::warn!(stored, "the leases exist: the start position of the options is not used");
        setup.notifier.tell(Notification::StartIgnored { stored });
    }
    complete(setup, control).await
}

/// Creates what is missing of the leases and says so in the control document.
async fn complete(setup: &Setup, control: Stored<Control>) -> Result<Option<Stored<Control>>> {
    if control.document.complete {
        return Ok(Some(control));
    }
    let roots = control.document.roots.iter();
    let leases = roots.map(|it| create_if_missing(&setup.store, root_lease(&control.document, it)));
    // Collected first: a stream that makes them as it goes could not be spawned on a runtime.
    let leases: Vec<_> = leases.collect();
    let mut created = iter(leases).buffer_unordered(PARALLEL);
    while let Some(outcome) = created.next().await {
        outcome?;
    }
    let done = Control { complete: true, ..control.document.clone() };
    match setup.store.replace(done, &control.etag).await {
        Ok(control) => Ok(Some(control)),
        Err(error) if *error.kind() == ErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

async fn new_control(setup: &Setup) -> Result<Control> {
    let start = setup.options.start.clone().unwrap_or(StartPosition::Now);
    Ok(Control {
        schema: Schema::default(),
        epoch: 1,
        container: setup.incarnation(),
        mode: Mode::from(setup.options.mode),
        start: start.to_string(),
        roots: pin_roots(setup, &start).await?,
        complete: false,
        paused: false,
        redrives: 0,
        resets: 0,
        postpones: false,
        unknown: serde_json::Map::new(),
    })
}

/// The ranges, divided as the options say, with a position that will not move.
async fn pin_roots(setup: &Setup, start: &StartPosition) -> Result<Vec<Root>> {
    let failed = |error| Error::store("find the ranges of the container", error);
    let ranges = bounded(setup, setup.feed.feed.ranges()).await.map_err(failed)?;
    let mut roots = Vec::new();
    for range in ranges {
        for keys in divide(setup, &range.keys)? {
            let position = pin(setup, &keys, start).await?;
            let position =
                if setup.has(Flaw::StartNotPinned) { String::new() } else { position.to_string() };
            roots.push(Root { keys, position, resets: 0 });
        }
    }
    Ok(roots)
}

pub(crate) async fn pin(
    setup: &Setup,
    keys: &KeyRange,
    start: &StartPosition,
) -> Result<Continuation> {
    let from = match start {
        StartPosition::Now => StartFrom::Now,
        StartPosition::Beginning => StartFrom::Beginning,
        StartPosition::Time(time) => StartFrom::Time(*time),
        StartPosition::Continuation(continuation) => {
            let read = setup.feed.feed.read(keys, continuation, PageSize::items(1));
            let page = bounded(setup, read).await;
            page.map_err(|error| Error::store("start at the continuation", error))?;
            return Ok(continuation.clone());
        }
    };
    let mode = setup.options.mode;
    let started = bounded(setup, setup.feed.feed.start(keys, from, mode)).await;
    started.map_err(|error| {
        if error.kind() == CoreErrorKind::Unsupported {
            return Error::invalid(format!("process the feed in mode {mode:?}"), error);
        }
        Error::store(format!("pin the start of {keys}"), error)
    })
}

/// A call to the feed that ends in time.
pub(crate) async fn bounded<T>(
    setup: &Setup,
    call: impl Future<Output = millstream_core::Result<T>>,
) -> millstream_core::Result<T> {
    let outcome = within(&*setup.clock, setup.options.read_timeout, call).await;
    outcome.unwrap_or_else(|| Err(timed_out("use the feed")))
}

/// Parts of about the same size, at most as many as the options say.
fn divide(setup: &Setup, keys: &KeyRange) -> Result<Vec<KeyRange>> {
    let parts = usize::try_from(setup.options.leases_per_range).unwrap_or(1);
    if parts == 1 {
        return Ok(vec![keys.clone()]);
    }
    let failed = |error| Error::store(format!("divide the range {keys}"), error);
    let bounds = setup.options.leases_per_range * BOUNDS_PER_PART;
    let grid = setup.feed.info.settings.partition_key.divide(bounds).map_err(failed)?;
    let bounds: Vec<_> = grid
        .iter()
        .map(KeyRange::min)
        .filter(|it| keys.contains(it) && it.trimmed() != keys.min().trimmed())
        .collect();
    let mut rest = keys.clone();
    let mut divided = Vec::new();
    for part in 1..parts {
        let Some(bound) = bounds.get(bounds.len() * part / parts) else { break };
        // Two parts may want the same bound where there are few.
        if let Ok((low, high)) = rest.split_at(bound) {
            divided.push(low);
            rest = high;
        }
    }
    divided.push(rest);
    Ok(divided)
}

fn check_mode(setup: &Setup, control: &Control) -> Result<()> {
    let (stored, wanted) = (FeedMode::from(control.mode), setup.options.mode);
    if stored == wanted {
        return Ok(());
    }
    let attempted = format!("start the processor \"{}\" in mode {wanted:?}", setup.store.name());
    let reason = format!("its leases are of mode {stored:?}; choose another processor name");
    Err(Error::new(ErrorKind::ModeMismatch, attempted).because(reason))
}

/// The leases are of an earlier container of this name: their positions mean nothing here.
async fn recreated(setup: &Setup, control: Stored<Control>) -> Result<Option<Stored<Control>>> {
    setup.notifier.tell(Notification::ContainerRecreated);
    if setup.options.recreated == RecreatedPolicy::Stop {
        return Err(container_recreated(setup.store.name()));
    }
    let fresh = Control {
        epoch: control.document.epoch + 1,
        redrives: control.document.redrives,
        resets: control.document.resets,
        postpones: control.document.postpones,
        ..new_control(setup).await?
    };
    match setup.store.replace(fresh, &control.etag).await {
        Ok(control) => complete(setup, control).await,
        Err(error) if *error.kind() == ErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

pub(crate) fn container_recreated(processor: &str) -> Error {
    let attempted = format!("go on with the leases of the processor \"{processor}\"");
    Error::new(ErrorKind::ContainerRecreated, attempted).because(
        "they belong to a container that was deleted; choose another processor name, or the policy \
         to restart",
    )
}

fn is_worth_repeating(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Conflict
            | ErrorKind::NotFound
            | ErrorKind::Store(
                CoreErrorKind::Unavailable | CoreErrorKind::Overloaded | CoreErrorKind::RangeMoved
            )
    )
}

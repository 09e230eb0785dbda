//! Tells what happens in a run, for whoever looks for the cause of a violation.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Write as _};
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

thread_local! {
    static IS_ON: Cell<bool> = const { Cell::new(false) };
    static PLACE: RefCell<(Duration, String)> =
        const { RefCell::new((Duration::ZERO, String::new())) };
}

/// Runs `work` and writes to standard error what happens in it on this thread.
pub fn logged<T>(work: impl FnOnce() -> T) -> T {
    IS_ON.set(true);
    let done = tracing::subscriber::with_default(Lines, work);
    IS_ON.set(false);
    done
}

/// Says where what follows happens.
pub(crate) fn at(now: Duration, node: impl FnOnce() -> String) {
    if IS_ON.get() {
        let node = node();
        PLACE.with_borrow_mut(|it| *it = (now, node));
    }
}

/// Says that something happened.
pub(crate) fn log(text: impl FnOnce() -> String) {
    if IS_ON.get() {
        let text = text();
        PLACE.with_borrow(|(now, node)| eprintln!("{:10.4} {node:12} {text}", now.as_secs_f64()));
    }
}

/// Writes each event of the code under test as a line.
struct Lines;

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("millstream")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        log(|| format!("{}{}", event.metadata().level(), line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

//! Kills a store under load and cuts its power, and checks what is left.
//!
//! Two ways to die. [`kill`] ends a real process with SIGKILL at a random moment, over and over in
//! the same directory. [`unplug`] records every file operation of a run, then replays it to each of
//! its moments with the writes that were not synced dropped or torn. Either way the store is opened
//! again and [`check`] compares it with what was acknowledged. A store is plugged in as a
//! [`Subject`].
//!
//! Not here: the store itself, and random operations against a model (the store's own tests).
//!
//! Read `subject` and `check` first, then `kill`; for loss of power `recorder` with
//! `shim/record.c`, `trace`, `disk`, `images`, `power`.

mod check;
mod content;
mod disk;
mod error;
mod image;
mod images;
mod kill;
mod naive;
mod ports;
mod power;
mod random;
mod recorder;
mod subject;
mod target;
mod trace;

pub use crate::check::{Rule, Violation, check};
pub use crate::content::Content;
pub use crate::disk::{Disk, Effect, Rules, Variant};
pub use crate::error::{Attempt, Error, Result};
pub use crate::image::Image;
pub use crate::images::{Case, Images, images, moments};
pub use crate::kill::{KillOptions, KillReport, kill};
pub use crate::naive::{Mutant, Naive};
pub use crate::ports::Ports;
pub use crate::power::{
    Moment, PowerOptions, PowerReport, Recorded, lives, read, record, unplug, verify,
};
pub use crate::random::Random;
pub use crate::recorder::{Recorder, Recording};
pub use crate::subject::{
    Ack, Acks, EXIT_CODE_DEAD, FeedItem, ItemName, Load, Observed, Page, Partition, Subject,
    Version,
};
pub use crate::target::{Target, reopen};
pub use crate::trace::{FileId, Record, SyncId, decode};

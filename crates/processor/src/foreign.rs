//! The lease documents of Cosmos DB's own processors: reading them, importing their positions, and
//! exporting ours back.
//!
//! [`Import`] reads the leases that the .NET or Java processor kept and makes ours from them;
//! [`Export`] writes our positions into documents that those processors go on from. Both say first
//! what they would do ([`Import::dry_run`], [`Export::dry_run`]) and never delete a document.
//! Whatever cannot be understood is refused with a sentence and never guessed: a wrong position
//! loses changes without a trace.
//!
//! Read `document` first (what a lease says), then `layout` (which keys it stands for), then
//! `import` and `export`.

mod document;
mod export;
mod feed_state;
mod foreign_store;
mod form;
mod import;
mod layout;
mod position;
mod report;

#[cfg(test)]
mod tests;

pub use crate::foreign::document::{ForeignDocument, ForeignLease, ForeignPosition, ForeignScope};
pub use crate::foreign::export::{Export, ExportReport, ExportedLease, TargetWrite};
pub use crate::foreign::form::ForeignForm;
pub use crate::foreign::import::{Import, ImportReport, ImportState, ImportedLease};
pub use crate::foreign::position::{NumberedPositions, PositionTranslator};
pub use crate::foreign::report::Problem;

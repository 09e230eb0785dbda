#[cfg(test)]
mod tests;

use std::error::Error as StdError;

use async_trait::async_trait;
use millstream_core::BoxFuture;

use crate::{Changes, RaisedEvent};

/// Why a handler refuses a commit.
pub type HandlerError = Box<dyn StdError + Send + Sync>;

/// Hears of every event before it is committed, and may object.
///
/// 1. It is awaited: the commit goes on when it is done.
/// 2. An error refuses the commit; nothing is written. The unit stays as it is.
/// 3. Events it raises are committed with the others, after their handlers heard of them too.
/// 4. It hears of an event once it did not refuse it, however often the commit is repeated. An
///    effect outside of `changes` happens even if the commit then fails: subscribers of the
///    committed event are the place for those.
#[async_trait]
pub trait EventHandler: Send + Sync {
    /// Looks at an event, and at what is going to be committed with it.
    ///
    /// # Errors
    ///
    /// Any error refuses the commit.
    ///
    /// # Cancel safety
    ///
    /// The future is dropped when that of the commit is; the handler is then called again.
    async fn handle(&self, event: &RaisedEvent, changes: &mut Changes) -> Result<(), HandlerError>;
}

/// A closure as handler.
pub(crate) struct Closure<F>(pub(crate) F);

#[async_trait]
impl<F> EventHandler for Closure<F>
where
    F: for<'a> Fn(&'a RaisedEvent, &'a mut Changes) -> BoxFuture<'a, Result<(), HandlerError>>
        + Send
        + Sync,
{
    async fn handle(&self, event: &RaisedEvent, changes: &mut Changes) -> Result<(), HandlerError> {
        (self.0)(event, changes).await
    }
}

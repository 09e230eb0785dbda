//! Doing something again: a store that cannot be reached for a moment has done nothing wrong.

use std::time::Duration;

use millstream_core::ErrorKind;

const ATTEMPTS_MAX: u32 = 300;
const PAUSE: Duration = Duration::from_millis(100);

/// A failure that may be over in a moment.
pub(crate) trait MayPass {
    fn may_pass(&self) -> bool;
}

/// Does something again until it succeeds: servers that have just started have to find together.
pub(crate) async fn patiently<T, E>(
    work: impl AsyncFnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    again(work, |_| true).await
}

/// Does something again while the store cannot be reached. Every other failure counts at once.
///
/// On a machine that stands still for some seconds all calls to a server run out of time.
pub(crate) async fn reaching<T, E: MayPass>(
    work: impl AsyncFnMut() -> std::result::Result<T, E>,
) -> std::result::Result<T, E> {
    again(work, MayPass::may_pass).await
}

async fn again<T, E>(
    mut work: impl AsyncFnMut() -> std::result::Result<T, E>,
    is_worth_it: impl Fn(&E) -> bool,
) -> std::result::Result<T, E> {
    for _ in 1..ATTEMPTS_MAX {
        match work().await {
            Err(error) if is_worth_it(&error) => tokio::time::sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
    work().await
}

impl MayPass for millstream_core::Error {
    fn may_pass(&self) -> bool {
        may_pass(self.kind())
    }
}

impl MayPass for millstream_outbox::Error {
    fn may_pass(&self) -> bool {
        matches!(self.kind(), millstream_outbox::ErrorKind::Store(kind) if may_pass(*kind))
    }
}

impl MayPass for millstream_processor::Error {
    fn may_pass(&self) -> bool {
        matches!(self.kind(), millstream_processor::ErrorKind::Store(kind) if may_pass(*kind))
    }
}

fn may_pass(kind: ErrorKind) -> bool {
    [ErrorKind::Unavailable, ErrorKind::Overloaded].contains(&kind)
}

#[cfg(test)]
mod tests {
    use millstream_core::Error;

    use super::*;

    /// How often work is done that fails twice, and whether it succeeds.
    #[track_caller]
    fn check(kind: ErrorKind, expected: (u32, bool)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut calls = 0;
        let outcome = runtime.block_on(reaching(async || {
            calls += 1;
            if calls < 3 { Err(Error::new(kind, "read")) } else { Ok(()) }
        }));
        assert_eq!((calls, outcome.is_ok()), expected);
    }

    #[test]
    fn only_a_store_that_cannot_be_reached_is_asked_again() {
        check(ErrorKind::Unavailable, (3, true));
        check(ErrorKind::Overloaded, (3, true));
        check(ErrorKind::Corrupt, (1, false));
        check(ErrorKind::NotFound, (1, false));
    }
}

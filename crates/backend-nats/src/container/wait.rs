//! Waiting for a commit.
//!
//! Whoever commits announces it on a subject of the range. The announcement carries nothing but the
//! number of the commit and may be lost, so a waiting reader also looks by itself now and then.

use std::time::Duration;

use futures_util::StreamExt;
use millstream_core::{Continuation, Error, ErrorKind, KeyRange, Result};

use crate::container::Shared;

/// The first look without an announcement: in a cluster it takes a moment until other servers know
/// that somebody listens.
const LOOK_AFTER_MIN: Duration = Duration::from_millis(25);
/// A lost announcement costs at most this.
const LOOK_AFTER_MAX: Duration = Duration::from_secs(1);

impl Shared {
    pub(super) async fn wait(&self, keys: &KeyRange, after: &Continuation) -> Result<()> {
        let cursor = self.cursor(after)?;
        let range = self.range_of(keys)?;
        let settings = self.settings().await?;
        self.check_mode(cursor.mode, &settings)?;
        let client = self.connection.client();
        let failed = |reason: String| {
            let attempted = format!("wait for changes of {keys}");
            Error::new(ErrorKind::Unavailable, attempted).because(reason)
        };
        // Listening begins before looking, so that no commit falls in between.
        let listen = client.subscribe(range.names.wake.clone()).await;
        let mut wakes = listen.map_err(|it| failed(it.to_string()))?;
        // A server handles the requests of a connection in order: it listens before it looks.
        let mut look_after = LOOK_AFTER_MIN;
        loop {
            if cursor.after.as_u64() < range.newest().await? {
                return Ok(());
            }
            loop {
                match tokio::time::timeout(look_after, wakes.next()).await {
                    Ok(None) => return Err(failed("the connection was closed".to_owned())),
                    Ok(Some(wake)) => match announced(&wake.payload) {
                        Some(lsn) if cursor.after.as_u64() < lsn => return Ok(()),
                        // The reader has it already.
                        Some(_) => {}
                        // Something else happened to the range.
                        None => break,
                    },
                    Err(_) => break,
                }
            }
            look_after = (2 * look_after).min(LOOK_AFTER_MAX);
        }
    }
}

/// The number of the commit that is announced.
fn announced(payload: &[u8]) -> Option<u64> {
    std::str::from_utf8(payload).ok()?.parse().ok()
}

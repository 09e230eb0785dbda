//! What goes wrong inside a node that lives.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millstream_crash::{Random, Result};

use crate::current::Current;
use crate::publisher::Weather;
use crate::say::say;

/// Runs a part of a node again and again, dropping its future at random moments.
pub(crate) async fn kill_now_and_then<F>(name: &str, seed: u64, mut part: impl FnMut(u64) -> F)
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut random = Random::new(seed);
    loop {
        let task = tokio::spawn(part(random.next()));
        pause(&mut random, 50, 600).await;
        task.abort();
        // It ends by being aborted, which is what was asked for.
        let _ = task.await;
        say(format!("killed {name}"));
    }
}

/// Makes the broker fail for a while, and restarts it.
pub(crate) async fn trouble(current: Arc<Current>, weather: Arc<Weather>, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    loop {
        pause(&mut random, 50, 500).await;
        if random.one_in(3) {
            current.restart().await?;
            say("killed broker".to_owned());
            continue;
        }
        weather.outage.store(true, Ordering::Relaxed);
        say("outage".to_owned());
        pause(&mut random, 20, 300).await;
        weather.outage.store(false, Ordering::Relaxed);
    }
}

async fn pause(random: &mut Random, millis_min: u64, millis_max: u64) {
    let millis = millis_min + random.below(millis_max - millis_min);
    tokio::time::sleep(Duration::from_millis(millis)).await;
}

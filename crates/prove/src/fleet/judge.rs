//! The end: everything is counted, and compared with what was acknowledged.

use std::time::Duration;

use millstream_core::{Clock, SystemClock};
use millstream_crash::Result;

use crate::fleet::FleetReport;
use crate::fleet::scene::Scene;
use crate::fleet::writers::Ledger;

const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Waits until everything that was acknowledged is counted, or nothing comes any more.
pub(crate) async fn drain(scene: &Scene, ledger: &Ledger, patience: Duration) {
    let clock = SystemClock::default();
    let (mut before, mut since) = (None, clock.monotonic());
    loop {
        let missing = missing(scene, ledger).await;
        if missing == Ok(0) {
            return;
        }
        if before.as_ref() != Some(&missing) {
            (before, since) = (Some(missing), clock.monotonic());
        }
        if since + patience < clock.monotonic() {
            // The comparison tells what is missing.
            return;
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Compares what was acknowledged with what is stored and what was counted.
pub(crate) async fn judge(scene: &Scene, ledger: &Ledger, report: &mut FleetReport) -> Result<()> {
    let Ledger { refused, doubtful, happened, .. } = *ledger;
    (report.refused, report.doubtful, report.happened) = (refused, doubtful, happened);
    report.findings.extend(ledger.findings.iter().cloned());
    for (key, acknowledged) in &ledger.acknowledged {
        let stored = scene.entity(key).await?;
        let count = scene.count(key).await?;
        report.commits += acknowledged;
        report.delivered += count.last;
        report.lost += acknowledged.saturating_sub(count.last);
        report.reordered += count.gaps;
        if count.last < *acknowledged || 0 < count.gaps {
            let (last, gaps) = (count.last, count.gaps);
            report.findings.push(format!(
                "{key}: {acknowledged} commits were acknowledged, the last one that was counted \
                 is {last}, and {gaps} came too early"
            ));
        }
        if stored != *acknowledged {
            let finding = format!("{key} has {stored} commits, {acknowledged} were acknowledged");
            report.findings.push(finding);
        }
        if stored < count.last {
            let finding = format!("{key} has {stored} commits, {} were counted", count.last);
            report.findings.push(finding);
        }
    }
    Ok(())
}

/// How many commits are not counted yet; the reason if nobody can say.
async fn missing(scene: &Scene, ledger: &Ledger) -> std::result::Result<u64, String> {
    let mut missing = 0;
    for (key, acknowledged) in &ledger.acknowledged {
        let count = scene.count(key).await.map_err(|error| error.report())?;
        missing += acknowledged.saturating_sub(count.last);
    }
    Ok(missing)
}

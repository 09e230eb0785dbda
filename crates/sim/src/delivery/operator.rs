//! Somebody who has parked events published and dead letters delivered again.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::host::Host;
use crate::delivery::remote::Remote;
use crate::log::log;
use crate::operator::Operator;
use crate::rng::Rng;

/// Looks after everything that was put aside, for ever.
pub(crate) fn start(host: &Arc<Host>) {
    let site = &host.site;
    let parts = site.add_node("operator");
    let (data, leases, letters) = (site.data(&parts), site.leases(&parts), site.letters(&parts));
    let operator = Operator::new(&data, &leases, &letters, parts.clock.clone());
    let operator = operator.expect("what the relays use is valid");
    let remote = Remote::new(host, &parts.broker_link);
    let (handle, node) = (site.handle.clone(), parts.id);
    let (site, mut rng) = (Arc::clone(site), Rng::stream(site.seed, "operator"));
    let work = async move {
        loop {
            let lease = site.shape.lease;
            let longest = if site.is_faulty() { lease * 3 } else { lease };
            let pause = rng.duration(Duration::from_millis(100), longest);
            site.handle.sleep(pause).await;
            // Whatever fails: the next time comes.
            let redriven = operator.redrive_all().await;
            log(|| format!("redriven: {redriven:?}"));
            for subscription in 0..site.shape.subscriptions {
                let revived = remote.revive(subscription).await;
                log(|| format!("revived: {revived:?}"));
            }
        }
    };
    handle.spawn(node, Box::pin(work));
}

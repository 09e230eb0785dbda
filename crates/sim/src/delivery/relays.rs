//! Instances of the relay.

use std::sync::Arc;

use async_trait::async_trait;
use millstream_core::{BoxFuture, Clock, Message, PublishLimits, Publisher, Result as CoreResult};
use millstream_processor::ErrorKind;
use millstream_relay::{Flaw, Relay, RelayOptions};

use crate::delivery::crew::{Process, Work};
use crate::delivery::host::Host;
use crate::delivery::remote::Remote;
use crate::fleet::PROCESSOR;

/// What relays do.
pub(crate) fn work(host: &Arc<Host>, flaw: Option<Flaw>) -> Work {
    let host = Arc::clone(host);
    Arc::new(move |process| -> BoxFuture<'static, bool> {
        let host = Arc::clone(&host);
        Box::pin(async move {
            let outcome = run(&host, &process, flaw).await;
            let is_allowed = match &outcome {
                Ok(()) => process.shutdown.is_cancelled(),
                Err(ErrorKind::Store(_) | ErrorKind::Conflict | ErrorKind::NotFound) => true,
                Err(ErrorKind::InstanceNameTaken | ErrorKind::Fenced) => true,
                Err(_) => false,
            };
            if !is_allowed {
                host.site.handle.fail(format!("{} ended with {outcome:?}", process.name));
            }
            true
        })
    })
}

async fn run(host: &Arc<Host>, process: &Process, flaw: Option<Flaw>) -> Result<(), ErrorKind> {
    let (site, parts) = (&host.site, &process.parts);
    let options =
        RelayOptions::default().processor(site.shape.processor_options()).form(site.shape.form);
    let mut relay = Relay::new(&site.data(parts), &site.leases(parts), PROCESSOR)
        .instance(&process.name)
        .options(options)
        .dead_letters(&site.letters(parts))
        .clock(parts.clock.clone())
        .ids(parts.ids.clone());
    if site.shape.spawns {
        let spawner = site.handle.spawner(parts.id);
        relay = relay.spawn_with(move |task| spawner(task));
    }
    if let Some(flaw) = flaw {
        relay = relay.flaw(flaw);
    }
    let remote = Remote::new(host, &parts.broker_link);
    let publisher: Arc<dyn Publisher> = match site.shape.broker_schedules {
        true => Arc::new(remote),
        false => {
            Arc::new(Unscheduled { remote, host: Arc::clone(host), clock: parts.clock.clone() })
        }
    };
    let started = relay.start(publisher).await.map_err(|it| it.kind().clone())?;
    started.run(process.shutdown.clone()).await.map_err(|it| it.kind().clone())
}

/// The broker as one that knows no times.
struct Unscheduled {
    remote: Remote,
    host: Arc<Host>,
    /// That of the relay.
    clock: Arc<dyn Clock>,
}

#[async_trait]
impl Publisher for Unscheduled {
    fn limits(&self) -> PublishLimits {
        self.remote.limits()
    }

    fn can_schedule(&self) -> bool {
        false
    }

    async fn publish(&self, messages: Vec<Message>) -> CoreResult<()> {
        self.host.site.oracle.sending_when_due(&messages, self.clock.now());
        self.remote.publish(messages).await
    }
}

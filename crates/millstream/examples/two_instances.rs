//! Two instances of a processor share the leases of a container; one is killed and comes back.
//!
//! ```text
//! cargo run --release --example two_instances
//! ```
//!
//! The embedded store belongs to one process, so both instances live in this one. They know each
//! other only through documents in the container of the leases, as instances on two machines would.
//! To kill one is to drop its future: it says nothing more and gives nothing back, as after
//! `kill -9`.

#![expect(clippy::print_stdout, reason = "an example talks to the person who runs it")]

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use millstream::processor::{
    CancellationToken, ChangeBatch, Context, Notification, Operations, Processor, ProcessorOptions,
    Result,
};
use millstream::{
    Batch, Clock, Container, ContainerName, ContainerSettings, Containers, Operation,
    PartitionKeyDefinition, Store, SystemClock,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

const PROCESSOR: &str = "mailer";
const INSTANCES: [&str; 2] = ["ann", "bob"];
const RANGES: u32 = 8;
const CUSTOMERS: u64 = 50;
/// How long an instance may be silent before the other takes its leases.
const LEASE_DURATION: Duration = Duration::from_secs(2);
const ROUND_INTERVAL: Duration = Duration::from_millis(500);
const COMMIT_INTERVAL: Duration = Duration::from_millis(5);
const LINE_INTERVAL: Duration = Duration::from_millis(500);
/// After this the rest will not come.
const DRAIN_MAX: Duration = Duration::from_secs(3);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    match Show::run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

struct Show {
    orders: Container,
    leases: Container,
    operations: Operations,
    seen: Arc<Mutex<Seen>>,
    clock: SystemClock,
}

/// An instance at work.
struct Instance {
    task: JoinHandle<Result<()>>,
    shutdown: CancellationToken,
}

impl Show {
    /// Shows everything, and says whether all of it was delivered in order.
    async fn run() -> std::result::Result<bool, Failure> {
        let directory = tempfile::tempdir()?;
        let store = Store::open(directory.path())?;
        let show = Self::begin(&store).await?;
        println!("One process, one store, two instances: {}.", INSTANCES.join(" and "));
        println!("Each column is a lease and shows who owns it; . is nobody.\n");
        let ann = show.start("ann").await?;
        let bob = show.start("bob").await?;
        let stop_writing = CancellationToken::new();
        let writer = tokio::spawn(write(show.orders.clone(), stop_writing.clone()));

        show.watch("both begin", Duration::from_secs(3)).await?;
        bob.task.abort();
        show.watch("bob is killed", LEASE_DURATION + Duration::from_secs(2)).await?;
        let bob = show.start("bob").await?;
        show.watch("bob is back", Duration::from_secs(5)).await?;

        stop_writing.cancel();
        let committed = writer.await??;
        show.drain(committed).await;
        for instance in [ann, bob] {
            instance.shutdown.cancel();
            instance.task.await??;
        }
        show.line("all stopped").await?;
        Ok(show.report(committed))
    }

    async fn begin(store: &Store) -> std::result::Result<Self, Failure> {
        store.create_database("shop").await?;
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/customer")?);
        let name = ContainerName::new("shop", "orders")?;
        store.create(&name, settings.ranges(RANGES)).await?;
        let orders = store.open(&name).await?;
        let name = ContainerName::new("shop", "leases")?;
        let settings = ContainerSettings::new(PartitionKeyDefinition::hash("/processor")?);
        store.create(&name, settings).await?;
        let leases = store.open(&name).await?;
        let operations = Operations::new(&orders, &leases, PROCESSOR)?;
        let (seen, clock) = (Arc::default(), SystemClock::default());
        Ok(Self { orders, leases, operations, seen, clock })
    }

    async fn start(&self, name: &'static str) -> Result<Instance> {
        let options = ProcessorOptions::default()
            .lease_duration(LEASE_DURATION)
            .round_interval(ROUND_INTERVAL);
        let seen = Arc::clone(&self.seen);
        let mut started = Processor::new(&self.orders, &self.leases, PROCESSOR)
            .instance(name)
            .options(options)
            .start(move |batch: ChangeBatch, _: Context| {
                let seen = Arc::clone(&seen);
                async move {
                    lock(&seen).note(name, &batch);
                    Ok(())
                }
            })
            .await?;
        let mut notifications = started.notifications();
        tokio::spawn(async move {
            while let Some(notification) = notifications.next().await {
                if let Notification::Released { to: Some(to), .. } = notification {
                    println!("           {name} finished its batch and gave a lease to {to}");
                }
            }
        });
        let shutdown = CancellationToken::new();
        Ok(Instance { task: tokio::spawn(started.run(shutdown.clone())), shutdown })
    }

    /// Prints a line now and then for this long.
    async fn watch(&self, what: &str, duration: Duration) -> Result<()> {
        let end = self.clock.monotonic() + duration;
        let mut what = what;
        while self.clock.monotonic() < end {
            self.line(what).await?;
            what = "";
            sleep(LINE_INTERVAL).await;
        }
        Ok(())
    }

    async fn line(&self, what: &str) -> Result<()> {
        let status = self.operations.status().await?;
        let owner = |it: &Option<String>| it.as_deref().and_then(|it| it.chars().next());
        let owners: Vec<String> =
            status.leases.iter().map(|it| owner(&it.owner).unwrap_or('.').to_string()).collect();
        let seen = lock(&self.seen);
        let delivered: Vec<String> = INSTANCES
            .iter()
            .map(|it| format!("{it} {:>5}", seen.deliveries.get(it).copied().unwrap_or(0)))
            .collect();
        let seconds = self.clock.monotonic().as_secs_f64();
        println!("{seconds:>5.1} s  {}  {}  {what}", owners.join(" "), delivered.join("  "));
        Ok(())
    }

    /// Waits until everything was delivered, but not for ever.
    async fn drain(&self, committed: u64) {
        let end = self.clock.monotonic() + DRAIN_MAX;
        while lock(&self.seen).delivered() < committed && self.clock.monotonic() < end {
            sleep(Duration::from_millis(20)).await;
        }
    }

    fn report(&self, committed: u64) -> bool {
        let seen = lock(&self.seen);
        println!(
            "\ncommitted {committed}, delivered {}, duplicates {}, out of order {}",
            seen.delivered(),
            seen.duplicates,
            seen.out_of_order,
        );
        println!("A duplicate is a change that was handled and not yet checkpointed at the kill.");
        seen.delivered() == committed && seen.out_of_order == 0
    }
}

/// Commits orders of all customers in turn until it is told to stop; returns how many.
async fn write(orders: Container, stop: CancellationToken) -> millstream::Result<u64> {
    let mut number = 0;
    while !stop.is_cancelled() {
        let (customer, order) = (number % CUSTOMERS, number / CUSTOMERS);
        let key = format!("customer-{customer}");
        let body = format!(r#"{{"id":"{order}","customer":"{key}"}}"#);
        orders.documents.commit(Batch::new(key.as_str()).with(Operation::create(body))).await?;
        number += 1;
        sleep(COMMIT_INTERVAL).await;
    }
    Ok(number)
}

/// What the handlers of both instances were given.
#[derive(Default)]
struct Seen {
    deliveries: BTreeMap<&'static str, u64>,
    /// For each customer the order that comes next; those before it were delivered.
    next: BTreeMap<String, u64>,
    duplicates: u64,
    out_of_order: u64,
}

impl Seen {
    fn note(&mut self, instance: &'static str, batch: &ChangeBatch) {
        for change in batch.iter() {
            *self.deliveries.entry(instance).or_default() += 1;
            let order: u64 = change.id.as_str().parse().unwrap_or(u64::MAX);
            let next = self.next.entry(change.partition_key.to_string()).or_default();
            if order < *next {
                self.duplicates += 1;
            } else if order == *next {
                *next += 1;
            } else {
                self.out_of_order += 1;
            }
        }
    }

    /// Different changes, each in its place.
    fn delivered(&self) -> u64 {
        self.next.values().sum()
    }
}

fn lock(seen: &Mutex<Seen>) -> std::sync::MutexGuard<'_, Seen> {
    seen.lock().expect("nothing panics while it holds the lock")
}

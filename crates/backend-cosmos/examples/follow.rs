//! Prints the changes of a container, sharing the work with every other instance of the same name.
//!
//! Run it twice, with a Millstream or an account of Azure Cosmos DB behind the address:
//!
//! ```text
//! cargo run --example follow -- cosmos+http://localhost:8081 shop data leases printer one
//! cargo run --example follow -- cosmos+http://localhost:8081 shop data leases printer two
//! ```
//!
//! The key of the account comes from the address or from `MILLSTREAM_COSMOS_KEY`. It ends when its
//! input does. Kill one, and the other takes over where it was.

use std::error::Error;
use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use millstream_backend_cosmos::{Address, Cosmos, CosmosOptions};
use millstream_core::{ContainerName, Containers, SystemClock};
use millstream_processor::{
    ChangeBatch, Context, HandlerError, HandlerResult, Processor, ProcessorOptions, StartPosition,
};
use tokio_util::sync::CancellationToken;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, database, container, leases, name, instance] = arguments.as_slice() else {
        return Err("usage: follow ADDRESS DATABASE CONTAINER LEASES NAME INSTANCE".into());
    };
    let key = std::env::var("MILLSTREAM_COSMOS_KEY").ok();
    let address = Address::parse(address, key.as_deref())?;
    let clock = Arc::new(SystemClock::default());
    let options = CosmosOptions::default().poll_interval(Duration::from_millis(200));
    let store = Cosmos::connect(&address, clock, options).await?;
    let feed = store.open(&ContainerName::new(database, container)?).await?;
    let leases = store.open(&ContainerName::new(database, leases)?).await?;

    let options = ProcessorOptions::default()
        .start(StartPosition::Beginning)
        .lease_duration(Duration::from_secs(3))
        .round_interval(Duration::from_millis(500))
        .poll_interval(Duration::from_millis(500));
    let processor = Processor::new(&feed, &leases, name).instance(instance).options(options);
    let started = processor.start(print).await?;

    let shutdown = CancellationToken::new();
    let input_ends = tokio::task::spawn_blocking({
        let shutdown = shutdown.clone();
        move || {
            // Whether it ends or fails, nobody is there any more.
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            shutdown.cancel();
        }
    });
    started.run(shutdown).await?;
    input_ends.await?;
    Ok(())
}

async fn print(batch: ChangeBatch, context: Context) -> HandlerResult {
    let mut text = String::new();
    for change in batch.iter() {
        text += &format!("{} {} {}\n", context.keys, change.partition_key, change.id);
    }
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(HandlerError::failed)
}

//! Creating and removing streams.

use async_nats::jetstream::context::CreateStreamErrorKind;
use async_nats::jetstream::stream::{Config, StorageType};
use bytes::Bytes;
use millstream_core::{Error, ErrorKind, Result};

use crate::Connection;
use crate::catalog::ContainerRecord;
use crate::subject::RangeNames;
use crate::wire::{Wire, pause};

/// How often something is tried that the cluster cannot do yet, such as creating a stream right
/// after its start.
const ATTEMPTS_MAX: u32 = 12;

pub(crate) fn stream_config(replicas: usize) -> Config {
    Config {
        max_messages_per_subject: 1,
        storage: StorageType::File,
        num_replicas: replicas,
        allow_direct: true,
        allow_atomic_publish: true,
        ..Config::default()
    }
}

pub(crate) fn range_config(names: &RangeNames, record: &ContainerRecord) -> Config {
    Config {
        name: names.stream.clone(),
        subjects: vec![names.all()],
        description: Some("a range of a container of Millstream".to_owned()),
        ..stream_config(record.replicas)
    }
}

/// Creates a stream, or finds that it is there. A cluster that has just started needs some time.
pub(crate) async fn create_stream(connection: &Connection, config: Config) -> Result<()> {
    let attempted = format!("create stream {:?}", config.name);
    let mut attempt = 0;
    loop {
        let Err(error) = connection.jetstream().create_stream(config.clone()).await else {
            return Ok(());
        };
        attempt += 1;
        if let CreateStreamErrorKind::JetStream(ref answer) = error.kind()
            && answer.code() < 500
        {
            return Err(Error::invalid(attempted, error));
        }
        if ATTEMPTS_MAX <= attempt {
            return Err(Error::new(ErrorKind::Unavailable, attempted).because(error));
        }
        pause(attempt).await;
    }
}

pub(crate) async fn remove_range(connection: &Connection, names: RangeNames) -> Result<()> {
    delete_stream(connection, &names.stream).await?;
    // Whoever waits there looks again, and finds nothing.
    let _ = connection.client().publish(names.wake, Bytes::new()).await;
    Ok(())
}

async fn delete_stream(connection: &Connection, name: &str) -> Result<()> {
    let wire = Wire::new(connection, name, 1);
    let mut attempt = 0;
    loop {
        let Err(error) = connection.jetstream().delete_stream(name).await else {
            return Ok(());
        };
        // Somebody else may have been quicker.
        if wire.is_gone().await {
            return Ok(());
        }
        attempt += 1;
        if ATTEMPTS_MAX <= attempt {
            let attempted = format!("delete stream {name:?}");
            return Err(Error::new(ErrorKind::Unavailable, attempted).because(error));
        }
        pause(attempt).await;
    }
}

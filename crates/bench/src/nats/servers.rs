//! Three NATS servers that replicate.

use std::{path::Path, time::Duration};

use async_nats::jetstream;
use futures_util::TryStreamExt;
use millstream_nats_servers::{NatsServers, is_installed};

use crate::Result;

/// How often a stream is asked to move before that counts as impossible.
const MOVES_MAX: u32 = 40;
const MOVE_INTERVAL: Duration = Duration::from_millis(250);

/// Running servers; dropping them stops them.
#[derive(Debug)]
pub(super) struct Servers {
    servers: NatsServers,
    /// The first server. Everyone is connected to it, and to no other.
    pub(super) url: String,
}

impl Servers {
    /// How many there are, and how many copies of each stream.
    pub(super) const COUNT: usize = 3;

    /// Starts servers with their data in `directory`; none if they are not installed.
    pub(super) fn start(directory: &Path) -> Result<Option<Self>> {
        if !is_installed() {
            return Ok(None);
        }
        let servers = NatsServers::start(directory, Self::COUNT)?;
        let url = servers.url_of(0);
        Ok(Some(Self { servers, url }))
    }

    /// Makes the first server the leader of every stream.
    ///
    /// A request to a stream whose leader is elsewhere takes one hop more. Where leaders stand is
    /// chance, so without this the one who is luckier would look quicker.
    pub(super) async fn lead_with_first(&self) -> Result<()> {
        let client = async_nats::connect(&self.url).await?;
        let context = jetstream::new(client.clone());
        let streams: Vec<String> = context.stream_names().try_collect().await?;
        let first = self.servers.name(0).to_owned();
        let request = format!(r#"{{"placement":{{"preferred":"{first}"}}}}"#);
        for stream in streams {
            let mut moves = 0;
            loop {
                let info = context.get_stream(&stream).await?;
                let cluster = info.cached_info().cluster.as_ref();
                if cluster.and_then(|it| it.leader.as_ref()) == Some(&first) {
                    break;
                }
                moves += 1;
                if MOVES_MAX < moves {
                    return Err(format!("stream {stream:?} does not move to {first}").into());
                }
                let address = format!("$JS.API.STREAM.LEADER.STEPDOWN.{stream}");
                client.request(address, request.clone().into()).await?;
                tokio::time::sleep(MOVE_INTERVAL).await;
            }
        }
        Ok(())
    }
}

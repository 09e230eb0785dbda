//! What can be written on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::config::Overrides;

/// A document store whose every commit becomes an ordered change feed, with relay and broker.
///
/// Settings come from a file (millstream.toml, or the one --config names), then from the
/// environment (MILLSTREAM_STORE, MILLSTREAM_BROKER, MILLSTREAM_LISTEN, MILLSTREAM_LOG,
/// MILLSTREAM_CONFIG), then from the command line; later ones win. The keys of the account come
/// from MILLSTREAM_ACCOUNT_KEY and MILLSTREAM_READ_ONLY_KEY.
#[derive(Debug, Parser)]
#[command(name = "millstream", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) settings: Settings,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Settings that every command takes.
#[derive(Debug, Args)]
pub(crate) struct Settings {
    /// The file with the settings
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where everything is kept, such as file:./data, nats://localhost:4222?replicas=3 or
    /// cosmos+https:// and the host of an account, whose key is in MILLSTREAM_COSMOS_KEY
    #[arg(long, global = true, value_name = "PLACE")]
    store: Option<String>,
    /// Where messages are, such as nats://localhost:4222; in the store if nothing is said
    #[arg(long, global = true, value_name = "PLACE")]
    broker: Option<String>,
    /// Where to serve the Cosmos DB protocol, health, metrics and the demonstration, such as
    /// 127.0.0.1:8081; port 0 takes a free one
    #[arg(long, global = true, value_name = "ADDRESS")]
    listen: Option<SocketAddr>,
    /// What to log, such as info or warn,millstream_processor=debug
    #[arg(long, global = true, value_name = "FILTER")]
    log: Option<String>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Starts store, broker and relays, and shows what goes on until Ctrl-C
    Up {
        /// Also runs a contacts service with a stream of changes and two consumers
        #[arg(long)]
        demo: bool,
        /// Changes a second in the demonstration
        #[arg(long, value_name = "NUMBER", default_value_t = 5.0, requires = "demo")]
        rate: f64,
    },
    /// Looks at the settings
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Lists queues, topics and subscriptions with their message counts
    Topics {
        #[command(flatten)]
        form: Form,
    },
    /// Tells how far each relay is behind
    Lag {
        #[command(flatten)]
        form: Form,
    },
    /// Lists the leases of the relays
    Leases {
        #[command(flatten)]
        form: Form,
    },
    /// Deals with events that could not be sent
    Parked {
        #[command(subcommand)]
        command: ParkedCommand,
    },
    /// Looks at events that relays keep until they are due
    ///
    /// The broker in the store holds scheduled messages itself; webhooks and topics on NATS cannot.
    Scheduled {
        #[command(subcommand)]
        command: ScheduledCommand,
    },
    /// Lets go of a relay that is no longer in the settings
    ///
    /// Events that it has not sent are held for it for ever, until this is done. Its position, what
    /// it has parked and what it keeps until it is due are removed. Nobody must run it any more.
    Forget {
        /// The relay, as `lag` shows it
        relay: String,
        /// Does it; without this it is only said what would be done
        #[arg(long)]
        yes: bool,
    },
    /// Looks at messages without taking them
    Peek {
        /// A queue, topic/Subscriptions/name, or one of these with /$DeadLetterQueue behind it
        path: String,
        /// The first sequence number to look at
        #[arg(long, default_value_t = 0, value_name = "NUMBER")]
        from: u64,
        /// Most messages to show
        #[arg(long, default_value_t = 20, value_name = "NUMBER")]
        max: usize,
        /// Only messages of this session
        #[arg(long, value_name = "ID")]
        session: Option<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Throws waiting messages away
    ///
    /// What a receiver has, what is deferred or scheduled, and what is sent meanwhile stays.
    Purge {
        /// A queue, topic/Subscriptions/name, or one of these with /$DeadLetterQueue behind it
        path: String,
        /// Without it the command only says how many messages there are
        #[arg(long)]
        yes: bool,
    },
    /// Sends dead letters back to the queue or subscription they come from
    ///
    /// Each takes the place it had, as if it had never been delivered.
    Resubmit {
        /// A queue or topic/Subscriptions/name, with /$DeadLetterQueue behind it or without
        path: String,
        /// Most messages to send back, the oldest first; all if nothing is said
        #[arg(long, value_name = "NUMBER")]
        max: Option<u64>,
    },
    /// Shows the change feed of a container
    Feed {
        #[command(subcommand)]
        command: FeedCommand,
    },
    /// Sends events again that were sent before, with the ids they had
    ///
    /// Up to the newest commit at the moment of the start.
    Replay(ReplayArguments),
    /// Writes the items of a container as lines of JSON
    Export {
        /// The container, such as app/data
        container: String,
        /// The file to write; standard output if there is none
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Writes lines of JSON into a container; items that are there are replaced
    Import {
        /// The container, such as app/data
        container: String,
        /// The file to read; standard input if there is none
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Copies containers to another place while they are in use
    ///
    /// Without --once or --switch it follows until Ctrl-C. What was interrupted goes on where it
    /// was with the same command.
    Migrate(MigrateArguments),
    /// Reads everything in a data directory and checks that it fits together
    Verify {
        #[command(flatten)]
        form: Form,
    },
}

/// Which events to send again, and to whom.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Where to begin: beginning, a time such as 2026-02-09T11:07:37Z, or lsn: and the number of
    /// a commit, such as lsn:17
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: String,
    /// Only events of these keys, as `leases` shows them; with lsn: those of one range
    #[arg(long, value_name = "KEYS")]
    pub(crate) keys: Option<String>,
    /// The topic or queue to send them to
    #[arg(long, value_name = "TOPIC")]
    pub(crate) to: String,
    /// Only this subscription of the topic gets them, also those it has had already
    #[arg(long, value_name = "NAME")]
    pub(crate) subscription: Option<String>,
    /// The container with the events
    #[arg(long, default_value = "app/data", value_name = "CONTAINER")]
    pub(crate) container: String,
    /// Most events to send
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max: Option<u64>,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// What to migrate.
#[derive(Debug, Args)]
pub(crate) struct MigrateArguments {
    /// The place the containers are in, such as file:./data
    #[arg(long, value_name = "PLACE")]
    pub(crate) from: String,
    /// The place they go to, such as nats://localhost:4222?replicas=3
    #[arg(long, value_name = "PLACE")]
    pub(crate) to: String,
    /// A container, such as app/data; all but those for leases if none is named
    #[arg(long = "container", value_name = "CONTAINER")]
    pub(crate) containers: Vec<String>,
    /// Ends when everything that was committed is copied
    #[arg(long)]
    pub(crate) once: bool,
    /// The writers have stopped: compares both sides, removes what was deleted, and ends
    #[arg(long, conflicts_with = "once")]
    pub(crate) switch: bool,
}

/// How to show things.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Form {
    /// Writes JSON instead of a table
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Checks the settings and shows what they come to
    Check,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FeedCommand {
    /// Shows the changes up to now
    Read {
        #[command(flatten)]
        feed: FeedArguments,
        /// Where to begin: beginning, now or a time such as 2026-02-09T11:07:37Z
        #[arg(long, default_value = "beginning", value_name = "PLACE")]
        from: String,
    },
    /// Shows changes as they are committed, until Ctrl-C
    Tail {
        #[command(flatten)]
        feed: FeedArguments,
        /// Where to begin: beginning, now or a time such as 2026-02-09T11:07:37Z
        #[arg(long, default_value = "now", value_name = "PLACE")]
        from: String,
    },
}

/// What to show of a feed.
#[derive(Debug, Args)]
pub(crate) struct FeedArguments {
    /// The container, such as app/data
    pub(crate) container: String,
    /// Most changes to show
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max: Option<usize>,
    /// Every version and deletes, where the container keeps them
    #[arg(long)]
    pub(crate) all_versions: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ScheduledCommand {
    /// Lists them, the next ones first; at most 10,000 of each relay
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Throws one away: it is not sent, unless that has begun already
    Discard {
        /// The relay, as `scheduled list` shows it
        relay: String,
        /// The id, as `scheduled list` shows it
        id: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ParkedCommand {
    /// Lists the parked keys of all relays
    List {
        #[command(flatten)]
        form: Form,
    },
    /// Shows the events of a parked key in their order
    Show {
        /// The relay, as `parked list` shows it
        relay: String,
        /// The partition key: its text, or JSON such as ["a",1]
        key: String,
        #[command(flatten)]
        form: Form,
    },
    /// Has a parked key sent again in order, before later events of that key
    Redrive {
        /// The relay, as `parked list` shows it
        relay: String,
        /// The partition key: its text, or JSON such as ["a",1]
        #[arg(required_unless_present = "all")]
        key: Option<String>,
        /// All keys that the relay has parked
        #[arg(long, conflicts_with = "key")]
        all: bool,
    },
    /// Throws the events of a parked key away; later ones are sent
    Discard {
        /// The relay, as `parked list` shows it
        relay: String,
        /// The partition key: its text, or JSON such as ["a",1]
        key: String,
    },
}

impl Settings {
    pub(crate) fn overrides(self) -> Overrides {
        let Self { config, store, broker, listen, log } = self;
        Overrides { file: config, store, broker, listen, log }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_fits_together() {
        Arguments::command().debug_assert();
    }
}

//! The program `millstream`: store, broker and relays in one process, and the tools to look into
//! them.
//!
//! Read `arguments` first (what it can do), then `up` and `demo` (the running program), then
//! `admin` and `client` (the tools).

mod admin;
mod arguments;
mod clearing;
mod client;
mod config;
mod demo;
mod entrance;
mod failure;
mod figures;
mod http;
mod live;
mod messages;
mod migrate;
mod output;
mod places;
mod progress;
mod relaying;
mod replaying;
mod retention;
mod show;
#[cfg(test)]
mod sparse_feed;
mod system;
mod tail;
mod traces;
mod transfer;
mod up;
mod verify;

use std::io::{IsTerminal, stderr};
use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use tracing_subscriber::EnvFilter;

use crate::admin::{Answer, ParkedChanges, Request};
use crate::arguments::{
    Arguments, Command, ConfigCommand, FeedArguments, FeedCommand, Form, ParkedCommand,
    ScheduledCommand,
};
use crate::clearing::{purge, resubmit};
use crate::client::{Client, misunderstood};
use crate::config::{Config, LogFormat};
use crate::entrance::Entrance;
use crate::failure::{Failure, Result};
use crate::migrate::migrate;
use crate::output::say;
use crate::replaying::replay;
use crate::show::show;
use crate::tail::{TailOptions, tail};
use crate::transfer::{export, import};
use crate::up::{UpOptions, up, webhook_publisher};
use crate::verify::verify;

/// A commit makes many small allocations in one thread and drops them in another, which costs the
/// usual allocator of Linux a quarter of the processor time of a relay.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // A mistake on the command line ends here, with a sentence and code 2.
    let arguments = Arguments::parse();
    let outcome = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::from)
        .and_then(|runtime| runtime.block_on(run(arguments)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("millstream: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

async fn run(arguments: Arguments) -> Result<()> {
    let variable = |name: &str| std::env::var(name).ok().filter(|it| !it.is_empty());
    let config = Config::load(&arguments.settings.overrides(), variable)?;
    start_log(&config)?;
    match arguments.command {
        Command::Up { demo, rate } => up(&config, UpOptions { demo, per_second: rate }).await,
        Command::Config { command: ConfigCommand::Check } => {
            Entrance::check(&config, |name| std::env::var(name).ok())?;
            config.webhooks.iter().try_for_each(|it| webhook_publisher(it).map(drop))?;
            let text = toml::to_string(&config.filled()?)
                .map_err(|error| Failure::other(format!("could not show the settings: {error}")))?;
            say(&format!("{text}# these settings can be used\n"));
            Ok(())
        }
        Command::Topics { form } => ask(&config, Request::Topics, form).await,
        Command::Lag { form } => ask(&config, Request::Lag, form).await,
        Command::Leases { form } => ask(&config, Request::Leases, form).await,
        Command::Parked { command } => parked(&config, command).await,
        Command::Scheduled { command: ScheduledCommand::List { form } } => {
            ask(&config, Request::Scheduled, form).await
        }
        Command::Scheduled { command: ScheduledCommand::Discard { relay, id } } => {
            ask(&config, Request::ScheduledDiscard { relay, id }, Form { json: false }).await
        }
        Command::Forget { relay, yes } => forget(&config, relay, yes).await,
        Command::Peek { path, from, max, session, form } => {
            ask(&config, Request::Peek { path, from, max, session }, form).await
        }
        Command::Purge { path, yes } => purge(&config, &path, yes).await,
        Command::Resubmit { path, max } => resubmit(&config, &path, max).await,
        Command::Feed { command } => feed(&config, command).await,
        Command::Replay(arguments) => replay(&config, arguments).await,
        Command::Export { container, file } => export(&config, &container, file).await,
        Command::Import { container, file } => import(&config, &container, file).await,
        Command::Migrate(arguments) => migrate(arguments).await,
        Command::Verify { form } => verify(&config, form.json).await,
    }
}

async fn forget(config: &Config, relay: String, yes: bool) -> Result<()> {
    if !yes {
        return Err(Failure::usage(format!(
            "the position of {relay:?}, what it has parked and what is not due yet would be \
             removed, and unsent events would expire: add --yes to do so"
        )));
    }
    ask(config, Request::Forget { relay }, Form { json: false }).await
}

async fn feed(config: &Config, command: FeedCommand) -> Result<()> {
    let (FeedArguments { container, max, all_versions, form }, from, follow) = match command {
        FeedCommand::Read { feed, from } => (feed, from, false),
        FeedCommand::Tail { feed, from } => (feed, from, true),
    };
    let json = form.json;
    tail(config, TailOptions { container, from, all_versions, max, follow, json }).await
}

async fn parked(config: &Config, command: ParkedCommand) -> Result<()> {
    let plain = Form { json: false };
    match command {
        ParkedCommand::List { form } => ask(config, Request::ParkedList, form).await,
        ParkedCommand::Show { relay, key, form } => show_parked(config, &relay, &key, form).await,
        ParkedCommand::Redrive { relay, key, all: _ } => {
            ask(config, Request::ParkedRedrive { relay, key }, plain).await
        }
        ParkedCommand::Discard { relay, key } => {
            ask(config, Request::ParkedDiscard { relay, key }, plain).await
        }
    }
}

/// Shows all changes of a parked key.
async fn show_parked(config: &Config, relay: &str, key: &str, form: Form) -> Result<()> {
    let client = Client::connect(config).await?;
    let changes = parked_changes(&client, relay, key).await;
    client.close().await;
    show(&Answer::ParkedShow(changes?), form.json)
}

async fn parked_changes(client: &Client, relay: &str, key: &str) -> Result<ParkedChanges> {
    let mut all = ParkedChanges { changes: Vec::new(), after: None };
    loop {
        let (relay, key, after) = (relay.to_owned(), key.to_owned(), all.after);
        let answer = client.ask(Request::ParkedShow { relay, key, after }).await?;
        let Answer::ParkedShow(page) = answer else { return Err(misunderstood()) };
        all.changes.extend(page.changes);
        all.after = page.after;
        if all.after.is_none() {
            return Ok(all);
        }
    }
}

/// Asks one thing and shows the answer.
async fn ask(config: &Config, request: Request, form: Form) -> Result<()> {
    let client = Client::connect(config).await?;
    let answer = client.ask(request).await;
    client.close().await;
    show(&answer?, form.json)
}

fn start_log(config: &Config) -> Result<()> {
    let filter = EnvFilter::try_new(&config.log).map_err(|_| {
        Failure::usage(format!(
            "log is {:?}: write a level such as info, or several such as \
             warn,millstream_relay=debug",
            config.log
        ))
    })?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(stderr().is_terminal())
        .with_writer(stderr);
    match config.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

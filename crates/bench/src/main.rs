//! Benchmarks of Millstream: `cargo xtask bench NAME [options]`.
//!
//! Every benchmark compares: with the disk, with a peer, with itself at another size. It runs the
//! things it compares in the same run and in turns, prints a table, and ends with lines
//! `figure NAME VALUE` that a program can read. None of them fails because something was slow.
//!
//! Read `rounds` first, then `commit`.
#![expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]

mod commit;
mod documents;
mod feed;
mod floor;
mod gateway;
mod measure;
mod nats;
mod npm;
mod options;
mod postgres;
mod postgres_server;
mod processor;
mod relay;
mod report;
mod rounds;
mod start;
mod store;
mod ttl;
mod workload;

use std::{error::Error, process::ExitCode};

use mimalloc::MiMalloc;
use tokio::runtime::Runtime;

use crate::{options::Options, report::Figures};

/// The one of the program, so that figures are those that its users get.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

/// As many as a small machine has cores; the same for everyone who is measured.
const WORKER_THREADS: usize = 2;

const USAGE: &str = "\
usage: bench NAME [options]

  commit     commits against the raw disk and a PostgreSQL outbox
  feed       reading changes in order, and their cost as the container grows
  ttl        commits before and while many items expire
  start      opening a store with many items, and its memory
  processor  changes through a processor against the raw feed, and when a commit gets there
  relay      from a commit to a subscriber of the broker, and a backlog through the relay
  nats       commits, the feed and a waiting reader on JetStream against plain use of it
  gateway    the Cosmos DB protocol over a store against @vercel/cosmosdb-server

  --seconds N        length of one round (5)
  --rounds N         rounds of each subject (3)
  --directory PATH   where to put the data; not a memory file system (target/bench)
  --writers N,N      commit: numbers of writers (1,8,64)
  --long-seconds N   commit: length of the long run at 64 writers, 0 for none (120)
  --no-postgres      commit, relay: leave PostgreSQL out
  --overwrite-floor  commit: measure a floor that writes into existing blocks, too
  --items N          processor: changes that are processed in a round (300000); relay: events of
                     the backlog (1000000)
  --percent N        feed, ttl, start: this part of the items only, for a quick look (100)
";

fn main() -> ExitCode {
    match run() {
        Ok(figures) => {
            print!("{figures}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<Figures> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().ok_or(USAGE)?;
    if name == start::OPEN {
        return open_again(&mut arguments);
    }
    let options = Options::parse(arguments).map_err(|error| format!("{error}\n\n{USAGE}"))?;
    let runtime = runtime()?;
    match name.as_str() {
        "commit" => runtime.block_on(commit::run(&options)),
        "feed" => runtime.block_on(feed::run(&options)),
        "ttl" => runtime.block_on(ttl::run(&options)),
        "start" => runtime.block_on(start::run(&options)),
        "gateway" => runtime.block_on(gateway::run(&options)),
        "nats" => runtime.block_on(nats::run(&options)),
        "relay" => runtime.block_on(relay::run(&options)),
        "processor" => runtime.block_on(processor::run(&options)),
        other => Err(format!("there is no benchmark {other:?}\n\n{USAGE}").into()),
    }
}

fn runtime() -> Result<Runtime> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(WORKER_THREADS).enable_all().build()?)
}

/// The part of `bench start` that runs in a process of its own.
fn open_again(arguments: &mut impl Iterator<Item = String>) -> Result<Figures> {
    let (Some(directory), Some(items)) = (arguments.next(), arguments.next()) else {
        return Err(USAGE.into());
    };
    runtime()?.block_on(start::run_open(&directory, &items))?;
    Ok(Figures::default())
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}

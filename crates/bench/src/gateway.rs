//! `bench gateway`: the Cosmos DB protocol over a store, and @vercel/cosmosdb-server beside it.
//!
//! Ours is the program as users start it, with every commit on disk before it is answered. The peer
//! keeps everything in memory. It runs as it is started from a shell, when it closes the connection
//! after each answer, and once more told to keep connections, which is the best it can do. All are
//! processes of their own; the requests come from one thread of this one, over plain HTTP, and its
//! processor time is told, because it is taken from the servers. What sockets and clients alone
//! allow is measured too: no server can answer more creates on the same machine.
//!
//! Read `load` first, then `clients`, `requests` and `process`.

mod clients;
mod http;
mod load;
mod own_read;
mod peer;
mod process;
mod raw;
mod requests;

use std::path::Path;

use crate::{
    Options, Result,
    gateway::{
        load::{Kind, Rates},
        peer::Peer,
        process::{ServerProcess, Start},
        raw::RawServer,
    },
    measure::Usage,
    report::{Figures, optional},
    rounds::median,
};

/// Starts of which the median is told.
const STARTS: usize = 5;

/// What was seen of one of those that are measured.
struct Measured {
    name: &'static str,
    starts: Vec<Start>,
    rates: Rates,
}

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let program = process::build()?;
    let own = |place: &Path| process::millstream(&program, place);
    let mut measured = vec![Measured::new("millstream")];
    measured[0].start_often(directory.path(), own).await?;
    let mut servers = vec![measured[0].start(directory.path(), own).await?];
    let peer = peer::fetch(directory.path()).await?;
    for (name, keeps) in [("cosmosdb-server", false), ("cosmosdb-server, keep-alive", true)] {
        let Some(peer) = &peer else { continue };
        let mut one = Measured::new(name);
        let start = |place: &Path| Peer::command(peer, place, keeps);
        one.start_often(directory.path(), start).await?;
        servers.push(one.start(directory.path(), start).await?);
        measured.push(one);
    }
    for server in &servers {
        load::prepare(server).await?;
    }
    let raw = RawServer::start(&servers[0]).await?;
    let mut raw_rates = Rates::default();
    for round in 1..=options.rounds {
        for kind in Kind::ALL {
            // One after the other, so that all meet the same minute of the machine.
            for (server, one) in servers.iter().zip(&mut measured) {
                let (address, usage) = (server.address(), || server.usage());
                let rate = load::run_round(address, usage, kind, options.duration()).await;
                let rate = rate.map_err(|error| format!("{}: {error}", one.name))?;
                eprintln!("round {round}: {} {} {:.0}/s", one.name, kind.name(), rate.per_second);
                one.rates.add(kind, rate);
            }
        }
        let own = || Ok(Usage::of_self()?);
        let rate = load::run_round(raw.address(), own, Kind::Create, options.duration()).await;
        let rate = rate.map_err(|error| format!("sockets alone: {error}"))?;
        eprintln!("round {round}: sockets alone {:.0}/s", rate.per_second);
        raw_rates.add(Kind::Create, rate);
    }
    let memory_after = servers[0].resident_mib()?;
    drop(servers);
    let own_read_us = own_read::measure(options).await?;
    print(&measured, memory_after, own_read_us);
    let raw = raw_rates.per_second(Kind::Create);
    println!("sockets and clients alone, with creates: {} a second", optional(raw, 0));
    Ok(figures(&measured, raw, own_read_us))
}

impl Measured {
    fn new(name: &'static str) -> Self {
        Self { name, starts: Vec::new(), rates: Rates::default() }
    }

    /// Starts it in a place that is new, and notes how long that took.
    async fn start(
        &mut self,
        directory: &Path,
        command: impl Fn(&Path) -> Result<process::Prepared>,
    ) -> Result<ServerProcess> {
        let place = tempfile::tempdir_in(directory)?;
        let (server, start) = ServerProcess::start(command(place.path())?, place).await?;
        self.starts.push(start);
        Ok(server)
    }

    async fn start_often(
        &mut self,
        directory: &Path,
        command: impl Fn(&Path) -> Result<process::Prepared>,
    ) -> Result<()> {
        for _ in 1..STARTS {
            drop(self.start(directory, &command).await?);
        }
        Ok(())
    }

    fn start_ms(&self) -> Option<f64> {
        median(self.starts.iter().map(|it| it.milliseconds))
    }

    fn resident_mib(&self) -> Option<f64> {
        median(self.starts.iter().map(|it| it.resident_mib))
    }
}

fn print(measured: &[Measured], memory_after: f64, own_read_us: f64) {
    println!("{} connections, requests a second:", load::CONNECTIONS);
    let names = Kind::ALL.map(Kind::name).map(|it| format!("{it:>10}")).concat();
    println!("{:<29}{names}   start ms   idle MiB", "");
    for one in measured {
        let rates = Kind::ALL.map(|it| format!("{:>10}", optional(one.rates.per_second(it), 0)));
        let (start, memory) = (optional(one.start_ms(), 1), optional(one.resident_mib(), 1));
        println!("{:<29}{} {start:>10} {memory:>10}", one.name, rates.concat());
    }
    println!("millstream after all of it: {memory_after:.1} MiB resident");
    let reads = measured.first().and_then(|it| it.rates.processor_us(Kind::Read));
    println!(
        "processor time of a read: {} µs, of which the store's own {own_read_us:.1} µs",
        optional(reads, 1)
    );
    for one in measured {
        let (server, client) =
            (one.rates.processor_us(Kind::Create), one.rates.client_us(Kind::Create));
        println!(
            "processor time of a create: {}: {} µs, and of its client {} µs",
            one.name,
            optional(server, 1),
            optional(client, 1)
        );
    }
}

fn figures(measured: &[Measured], raw: Option<f64>, own_read_us: f64) -> Figures {
    let mut figures = Figures::default();
    let ours = &measured[0];
    let ratio = |kind: Kind, peer: usize| {
        let peer = measured.get(peer)?;
        Some(ours.rates.per_second(kind)? / peer.rates.per_second(kind)?)
    };
    for kind in Kind::ALL {
        let name = kind.name();
        figures.add(format!("gateway.{name}_per_s"), ours.rates.per_second(kind));
        figures.add(format!("gateway.{name}_ratio"), ratio(kind, 1));
        figures.add(format!("gateway.{name}_keep_alive_ratio"), ratio(kind, 2));
    }
    let creates = ours.rates.per_second(Kind::Create);
    figures.add("gateway.raw_per_s", raw);
    figures.add("gateway.create_raw_ratio", creates.zip(raw).map(|(ours, raw)| ours / raw));
    figures.add("gateway.start_ms", ours.start_ms());
    figures.add("gateway.peer_start_ms", measured.get(1).and_then(Measured::start_ms));
    figures.add("gateway.rss_mib", ours.resident_mib());
    figures.add("gateway.peer_rss_mib", measured.get(1).and_then(Measured::resident_mib));
    let reads = ours.rates.processor_us(Kind::Read);
    figures.add("gateway.create_cpu_us", ours.rates.processor_us(Kind::Create));
    figures.add("gateway.create_client_cpu_us", ours.rates.client_us(Kind::Create));
    figures.add("gateway.read_cpu_us", reads.map(|it| it - own_read_us));
    figures
}

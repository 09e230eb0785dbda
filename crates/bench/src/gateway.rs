//! `bench gateway`: the Cosmos DB protocol over a store, and @vercel/cosmosdb-server beside it.
//!
//! Ours is the program as users start it, with every commit on disk before it is answered. The peer
//! keeps everything in memory. Its command listens for TLS alone unless told otherwise, and closes
//! the connection after each answer; told to keep connections it does the best it can do. So both
//! are measured over TLS and over plain HTTP, and the peer closing and keeping connections. All are
//! processes of their own; the requests come from one thread of this one, and its processor time is
//! told, because it is taken from the servers. What sockets and clients alone allow is measured
//! too: no server can answer more creates over plain HTTP on the same machine.
//!
//! Read `load` first, then `clients`, `requests`, `wire` and `process`.

mod clients;
mod http;
mod load;
mod own_read;
mod peer;
mod process;
mod raw;
mod requests;
mod wire;

use std::path::Path;

use crate::{
    Options, Result,
    gateway::{
        load::{Kind, Rates},
        peer::Manner,
        process::{ServerProcess, Start},
        raw::RawServer,
    },
    measure::Usage,
    report::{Figures, optional},
    rounds::median,
};

/// Starts of which the median is told.
const STARTS: usize = 5;

/// How the peer is started, with what figures about it are called; first as its command does it.
/// Those without a word about TLS are of plain HTTP.
const PEERS: [(&str, &str, Manner); 4] = [
    ("cosmosdb-server", "tls_ratio", Manner { is_tls: true, keeps: false }),
    ("cosmosdb-server, keep-alive", "tls_keep_alive_ratio", Manner { is_tls: true, keeps: true }),
    ("cosmosdb-server, plain", "ratio", Manner { is_tls: false, keeps: false }),
    (
        "cosmosdb-server, plain, keep-alive",
        "keep_alive_ratio",
        Manner { is_tls: false, keeps: true },
    ),
];
/// Places among what is measured; the peers come behind, in their order.
const OWN_TLS: usize = 0;
const OWN_PLAIN: usize = 1;
const PEERS_START: usize = 2;
/// The peer that is compared with [`OWN_PLAIN`] where there is one figure only.
const PEER_PLAIN: usize = PEERS_START + 2;

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
    let mut measured = vec![Measured::new("millstream"), Measured::new("millstream, plain")];
    measured[OWN_PLAIN].start_often(directory.path(), own).await?;
    let mut servers = vec![measured[OWN_PLAIN].start(directory.path(), own).await?];
    // Where each of those that are measured is, and which server that is.
    let mut places = vec![(servers[0].tls_endpoint()?, 0), (servers[0].endpoint().clone(), 0)];
    let peer = peer::fetch(directory.path()).await?;
    for (name, _, manner) in PEERS {
        let Some(peer) = &peer else { continue };
        let mut one = Measured::new(name);
        let start = |_: &Path| peer.command(manner);
        one.start_often(directory.path(), start).await?;
        let server = one.start(directory.path(), start).await?;
        places.push((server.endpoint().clone(), servers.len()));
        servers.push(server);
        measured.push(one);
    }
    for server in &servers {
        load::prepare(server)?;
    }
    let raw = RawServer::start(&servers[0]).await?;
    let mut raw_rates = Rates::default();
    for round in 1..=options.rounds {
        for kind in Kind::ALL {
            // One after the other, so that all meet the same minute of the machine.
            for ((endpoint, server), one) in places.iter().zip(&mut measured) {
                let usage = || servers[*server].usage();
                let rate = load::run_round(endpoint, usage, kind, options.duration()).await;
                let rate = rate.map_err(|error| format!("{}: {error}", one.name))?;
                eprintln!("round {round}: {} {} {:.0}/s", one.name, kind.name(), rate.per_second);
                one.rates.add(kind, rate);
            }
        }
        let own = || Ok(Usage::of_self()?);
        let rate = load::run_round(raw.endpoint(), own, Kind::Create, options.duration()).await;
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
    println!("{:<34}{names}   start ms   idle MiB", "");
    for one in measured {
        let rates = Kind::ALL.map(|it| format!("{:>10}", optional(one.rates.per_second(it), 0)));
        let (start, memory) = (optional(one.start_ms(), 1), optional(one.resident_mib(), 1));
        println!("{:<34}{} {start:>10} {memory:>10}", one.name, rates.concat());
    }
    println!("millstream after all of it: {memory_after:.1} MiB resident");
    let reads = measured[OWN_PLAIN].rates.processor_us(Kind::Read);
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
    let ours = &measured[OWN_PLAIN];
    let ratio = |kind: Kind, peer: usize| {
        let own = if PEERS[peer].2.is_tls { OWN_TLS } else { OWN_PLAIN };
        let peer = measured.get(PEERS_START + peer)?;
        Some(measured[own].rates.per_second(kind)? / peer.rates.per_second(kind)?)
    };
    for kind in Kind::ALL {
        let name = kind.name();
        figures.add(format!("gateway.{name}_per_s"), ours.rates.per_second(kind));
        figures.add(format!("gateway.{name}_tls_per_s"), measured[OWN_TLS].rates.per_second(kind));
        for (peer, (_, figure, _)) in PEERS.iter().enumerate() {
            figures.add(format!("gateway.{name}_{figure}"), ratio(kind, peer));
        }
    }
    let creates = ours.rates.per_second(Kind::Create);
    let peer = measured.get(PEER_PLAIN);
    figures.add("gateway.raw_per_s", raw);
    figures.add("gateway.create_raw_ratio", creates.zip(raw).map(|(ours, raw)| ours / raw));
    figures.add("gateway.start_ms", ours.start_ms());
    figures.add("gateway.peer_start_ms", peer.and_then(Measured::start_ms));
    figures.add("gateway.rss_mib", ours.resident_mib());
    figures.add("gateway.peer_rss_mib", peer.and_then(Measured::resident_mib));
    let reads = ours.rates.processor_us(Kind::Read);
    figures.add("gateway.create_cpu_us", ours.rates.processor_us(Kind::Create));
    figures.add("gateway.create_client_cpu_us", ours.rates.client_us(Kind::Create));
    figures.add("gateway.read_cpu_us", reads.map(|it| it - own_read_us));
    figures
}

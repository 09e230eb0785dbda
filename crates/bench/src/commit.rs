//! `bench commit`: batches per second and latency of a commit, against the disk and PostgreSQL.

use std::{path::Path, sync::Arc, time::Duration};

use crate::{
    Options, Result, chain,
    documents::{ContainerSubject, create, fill},
    floor::{Floor, Style},
    measure::Device,
    postgres::Postgres,
    postgres_server::Server,
    report::{Figures, optional},
    rounds::{Load, Round, Subject, interleave, median, median_ratio, run_round},
    store,
    workload::Shape,
};

/// The number of items every subject holds before the first round.
const ITEMS: u64 = 10_000;
/// How many writers the long run has.
const LONG_WRITERS: usize = 64;

/// All rounds of one number of writers; a subject that is not there has no rounds.
struct Results {
    writers: usize,
    floor: Vec<Round>,
    overwrite: Vec<Round>,
    store: Vec<Round>,
    postgres: Vec<Round>,
}

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let device = Some(Device::of(directory.path())?);
    let floor = Floor::new(Style::Append, directory.path());
    let overwrite = Floor::new(Style::Overwrite, directory.path());
    let opened = store::open(&directory.path().join("store"))?;
    let container = create(&opened, "items").await?;
    fill(&container.documents, 0, ITEMS, Shape::CONTACT).await?;
    let store = ContainerSubject {
        documents: Arc::clone(&container.documents),
        fdatasyncs: || opened.statistics().syncs,
    };
    let postgres = start_postgres(options, directory.path()).await;

    let mut subjects: Vec<&dyn Subject> = vec![&floor, &store];
    if options.overwrite_floor {
        subjects.push(&overwrite);
    }
    if let Some(postgres) = &postgres {
        subjects.push(postgres);
    }
    let mut results = Vec::new();
    for &writers in &options.writers {
        let load = Load { writers, items: ITEMS, duration: options.duration(), device };
        let rounds = interleave(&subjects, load, options.rounds, |name, round, result| {
            progress(writers, name, round, result);
        });
        let rounds = rounds.await?;
        let of = |name| subjects.iter().position(|it| it.name() == name);
        let of = |name| of(name).map(|it| rounds[it].clone()).unwrap_or_default();
        results.push(Results {
            writers,
            floor: of("floor"),
            overwrite: of("overwrite"),
            store: of("store"),
            postgres: of("postgres"),
        });
    }

    // What the peer still has to write back is not the store's to wait for.
    drop(postgres);
    let mut long = None;
    if 0 < options.long_seconds {
        let duration = Duration::from_secs(options.long_seconds);
        let load = Load { writers: LONG_WRITERS, items: ITEMS, duration, device };
        let round = run_round(&store, load).await?;
        progress(LONG_WRITERS, "store, long", 1, &round);
        long = Some(round);
    }
    print_table(&results);
    Ok(figures(&results, long))
}

/// A peer that does not start is left out, and the reason told.
async fn start_postgres(options: &Options, directory: &Path) -> Option<Postgres> {
    if !options.postgres {
        return None;
    }
    match Server::start(directory) {
        Ok(None) => eprintln!("PostgreSQL is not installed; left out"),
        Ok(Some(server)) => match Postgres::fill(server, ITEMS).await {
            Ok(postgres) => return Some(postgres),
            Err(error) => eprintln!("could not prepare PostgreSQL; left out: {}", chain(&*error)),
        },
        Err(error) => eprintln!("could not start PostgreSQL; left out: {}", chain(&*error)),
    }
    None
}

fn progress(writers: usize, name: &str, round: usize, result: &Round) {
    eprintln!(
        "{writers:>3} writers, round {round}, {name}: {:.0} batches/s, p99 {:.2} ms",
        result.batches_per_second, result.p99_ms,
    );
}

fn print_table(results: &[Results]) {
    println!(
        "writers subject   batches/s   p50 ms   p99 ms  p999 ms worst ms syncs/s cpu us/batch \
         bytes/batch device bytes/batch",
    );
    for it in results {
        let subjects = [
            ("floor", &it.floor),
            ("overwrite", &it.overwrite),
            ("store", &it.store),
            ("postgres", &it.postgres),
        ];
        for (name, rounds) in subjects {
            if rounds.is_empty() {
                continue;
            }
            let of = |value: fn(&Round) -> f64| median(rounds.iter().map(value));
            println!(
                "{:>7} {name:<9} {:>9} {:>8} {:>8} {:>8} {:>8} {:>7} {:>12} {:>11} {:>18}",
                it.writers,
                optional(of(|it| it.batches_per_second), 0),
                optional(of(|it| it.p50_ms), 3),
                optional(of(|it| it.p99_ms), 3),
                optional(of(|it| it.p999_ms), 3),
                optional(rounds.iter().map(|it| it.worst_ms).reduce(f64::max), 1),
                optional(median(rounds.iter().filter_map(|it| it.fdatasyncs_per_second)), 0),
                optional(of(|it| it.processor_us_per_batch), 1),
                optional(median(rounds.iter().filter_map(|it| it.bytes_per_batch)), 0),
                optional(median(rounds.iter().filter_map(|it| it.device_bytes_per_batch)), 0),
            );
        }
        for (name, left, right) in [
            ("store/floor", &it.store, &it.floor),
            ("store/overwrite", &it.store, &it.overwrite),
            ("store/postgres", &it.store, &it.postgres),
            ("postgres/floor", &it.postgres, &it.floor),
        ] {
            if left.is_empty() || right.is_empty() {
                continue;
            }
            let of = |value: fn(&Round) -> f64| optional(median_ratio(left, right, value), 2);
            println!(
                "{:>7} {name}: batches/s {}, p50 {}, p99 {}, cpu {}",
                it.writers,
                of(|it| it.batches_per_second),
                of(|it| it.p50_ms),
                of(|it| it.p99_ms),
                of(|it| it.processor_us_per_batch),
            );
        }
    }
}

fn figures(results: &[Results], long: Option<Round>) -> Figures {
    let at = |writers| results.iter().find(|it| it.writers == writers);
    let rate = |it: &Round| it.batches_per_second;
    let floor = |it: &Results| median_ratio(&it.store, &it.floor, rate);
    let mut figures = Figures::default();
    figures.add("commit.floor_ratio.w64", at(64).and_then(floor));
    figures.add("commit.floor_ratio.w8", at(8).and_then(floor));
    let p99 = |it: &Results| median_ratio(&it.store, &it.floor, |it| it.p99_ms);
    figures.add("commit.p99_ratio.w8", at(8).and_then(p99));
    let postgres = |it: &Results| median_ratio(&it.store, &it.postgres, rate);
    figures.add("commit.postgres_ratio.w64", at(64).and_then(postgres));
    figures.add("commit.p999_ms.w64", long.map(|it| it.p999_ms));
    figures.add("commit.worst_ms.w64", long.map(|it| it.worst_ms));
    figures
}

//! `bench start`: how long a store with many items takes to open, and the memory it then holds.

use std::{env, path::Path, process::Command};

use millstream_core::ItemId;

use crate::{
    Options, Result,
    documents::{create, fill, open},
    measure::{Stopwatch, resident_mib},
    report::{Figures, optional},
    rounds::median,
    store,
    workload::{Shape, item_id, partition_of},
};

const ITEMS: u64 = 1_000_000;
const CONTAINER: &str = "items";
/// The hidden name of the part that runs in a process of its own.
pub(crate) const OPEN: &str = "start-open";

/// Runs the benchmark.
pub(crate) async fn run(options: &Options) -> Result<Figures> {
    let directory = options.fresh_directory()?;
    let items = options.scaled(ITEMS);
    let stopwatch = Stopwatch::start();
    {
        let store = store::open(directory.path())?;
        let container = create(&store, CONTAINER).await?;
        fill(&container.documents, 0, items, Shape::CONTACT).await?;
    }
    eprintln!("{items} items loaded in {:.1} s", stopwatch.elapsed().as_secs_f64());

    let (mut times, mut sizes) = (Vec::new(), Vec::new());
    for round in 1..=options.rounds {
        let (open_ms, rss_mib) = open_elsewhere(directory.path(), items)?;
        eprintln!("round {round}: open in {open_ms:.1} ms, {rss_mib:.1} MiB resident");
        times.push(open_ms);
        sizes.push(rss_mib);
    }
    let (open_ms, rss_mib) = (median(times), median(sizes));
    println!(
        "{items} items: open in {} ms, {} MiB resident",
        optional(open_ms, 1),
        optional(rss_mib, 1),
    );
    let mut figures = Figures::default();
    figures.add("start.open_ms", open_ms);
    figures.add("start.rss_mib", rss_mib);
    Ok(figures)
}

/// Opens the store in `directory`, reads its last item, and prints time and memory.
pub(crate) async fn run_open(directory: &str, items: &str) -> Result<()> {
    let item = items.parse::<u64>()?.saturating_sub(1);
    let stopwatch = Stopwatch::start();
    let store = store::open(Path::new(directory))?;
    let container = open(&store, CONTAINER).await?;
    let open_ms = stopwatch.elapsed().as_secs_f64() * 1e3;
    let id = ItemId::new(&item_id(item))?;
    let found = container.documents.read(&partition_of(item).into(), &id).await?;
    found.ok_or("the last item is missing after opening again")?;
    println!("{open_ms} {}", resident_mib()?);
    Ok(())
}

/// A process of its own: this one still holds the memory it loaded with.
fn open_elsewhere(directory: &Path, items: u64) -> Result<(f64, f64)> {
    let mut command = Command::new(env::current_exe()?);
    let output = command.arg(OPEN).arg(directory).arg(items.to_string()).output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(format!("could not open the store again: {}", message.trim()).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let (open_ms, rss_mib) = text.trim().split_once(' ').ok_or("the other process said nothing")?;
    Ok((open_ms.parse()?, rss_mib.parse()?))
}

//! The raw floor: what the disk allows to anyone who appends and syncs the same bytes in groups.
//!
//! Writers hand their bytes to one log thread. It takes everything that waits, appends it with
//! one write, calls `fdatasync` once and wakes the writers: the plainest group commit there is.

use std::{
    fs::{self, File},
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
};

use async_trait::async_trait;
use tokio::sync::oneshot;

use crate::{
    Result,
    measure::Usage,
    rounds::{Subject, Writer},
    workload::Pair,
};

/// More than any number of writers, so that handing over never blocks.
const WAITING_MAX: usize = 4096;

/// Where the overwriting floor begins again.
const OVERWRITE_BYTES: u64 = 64 * 1024 * 1024;

/// How the file takes the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// It grows: the plain way, but every sync also has to write down the new length.
    Append,
    /// It was filled with zeros before, and is written over from its start when its end is reached.
    Overwrite,
}

/// A file that is written to and synced.
#[derive(Debug)]
pub(crate) struct Floor {
    style: Style,
    directory: PathBuf,
    fdatasyncs: Arc<AtomicU64>,
    rounds: Mutex<u64>,
}

impl Floor {
    /// A floor whose files are in `directory`.
    pub(crate) fn new(style: Style, directory: &Path) -> Self {
        Self {
            style,
            directory: directory.to_owned(),
            fdatasyncs: Arc::default(),
            rounds: Mutex::new(0),
        }
    }
}

#[async_trait]
impl Subject for Floor {
    fn name(&self) -> &'static str {
        match self.style {
            Style::Append => "floor",
            Style::Overwrite => "overwrite",
        }
    }

    async fn writers(&self, count: usize) -> Result<Vec<Box<dyn Writer>>> {
        assert!(count <= WAITING_MAX, "more writers than may wait");
        let path = {
            let mut rounds = self.rounds.lock().expect("nothing panics while holding the lock");
            *rounds += 1;
            self.directory.join(format!("floor-{rounds}.log"))
        };
        let mut file = File::create_new(&path)?;
        let bytes_max = match self.style {
            Style::Append => u64::MAX,
            Style::Overwrite => {
                io::copy(&mut io::repeat(0).take(OVERWRITE_BYTES), &mut file)?;
                file.sync_all()?;
                OVERWRITE_BYTES
            }
        };
        let (sender, receiver) = mpsc::sync_channel(WAITING_MAX);
        let fdatasyncs = Arc::clone(&self.fdatasyncs);
        // The thread ends when the last writer of the round has dropped its sender.
        thread::Builder::new().name("floor-log".to_owned()).spawn(move || {
            run(&file, bytes_max, &receiver, &fdatasyncs);
            // Not before: some file systems sync nothing for a file without a name.
            if let Err(error) = fs::remove_file(&path) {
                eprintln!("could not remove {path:?}: {error}");
            }
        })?;
        let writer = || -> Box<dyn Writer> { Box::new(FloorWriter(sender.clone())) };
        Ok((0..count).map(|_| writer()).collect())
    }

    async fn fdatasyncs(&self) -> Result<Option<u64>> {
        Ok(Some(self.fdatasyncs.load(Ordering::Relaxed)))
    }

    fn usage(&self) -> io::Result<Usage> {
        Usage::of_self()
    }
}

struct Waiting {
    pair: Pair,
    done: oneshot::Sender<io::Result<()>>,
}

struct FloorWriter(mpsc::SyncSender<Waiting>);

#[async_trait]
impl Writer for FloorWriter {
    async fn commit(&mut self, pair: Pair) -> Result<()> {
        let (done, outcome) = oneshot::channel();
        self.0.send(Waiting { pair, done }).map_err(|_| "the log thread has ended")?;
        Ok(outcome.await??)
    }
}

fn run(file: &File, bytes_max: u64, receiver: &mpsc::Receiver<Waiting>, fdatasyncs: &AtomicU64) {
    let mut end = 0;
    let mut bytes = Vec::new();
    let mut group = Vec::new();
    while let Ok(first) = receiver.recv() {
        group.push(first);
        group.extend(receiver.try_iter().take(WAITING_MAX));
        bytes.clear();
        for Waiting { pair, .. } in &group {
            bytes.extend_from_slice(pair.item_body.as_bytes());
            bytes.extend_from_slice(pair.event_body.as_bytes());
        }
        let length = u64::try_from(bytes.len()).expect("a usize fits into 64 bits");
        if bytes_max < end + length {
            end = 0;
        }
        let outcome = file.write_all_at(&bytes, end).and_then(|()| file.sync_data());
        end += length;
        fdatasyncs.fetch_add(1, Ordering::Relaxed);
        for Waiting { done, .. } in group.drain(..) {
            // A writer that was dropped does not want to know.
            let _ = done.send(match &outcome {
                Ok(()) => Ok(()),
                Err(error) => Err(io::Error::new(error.kind(), error.to_string())),
            });
        }
    }
}

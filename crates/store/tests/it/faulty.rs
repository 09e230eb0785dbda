//! A disk whose n-th operation fails.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use millstream_store::{Disk, DiskFile, SystemDisk};

/// The files of the machine until the countdown is over; then one operation fails half done, and
/// every later one too.
#[derive(Debug)]
pub(crate) struct FaultyDisk {
    countdown: Arc<AtomicI64>,
}

impl FaultyDisk {
    /// Fails the operation after `operations` others.
    pub(crate) fn new(operations: i64) -> Self {
        Self { countdown: Arc::new(AtomicI64::new(operations)) }
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Arc<dyn DiskFile>,
    countdown: Arc<AtomicI64>,
}

fn check(countdown: &AtomicI64) -> io::Result<()> {
    if countdown.fetch_sub(1, Ordering::SeqCst) <= 0 {
        return Err(io::Error::new(io::ErrorKind::StorageFull, "planted failure"));
    }
    Ok(())
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        if let Err(error) = check(&self.countdown) {
            // A full disk leaves a file that is shorter than it should be.
            let _ = SystemDisk.create(path, length / 2);
            return Err(error);
        }
        let file = SystemDisk.create(path, length)?;
        Ok(Arc::new(FaultyFile { file, countdown: Arc::clone(&self.countdown) }))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = SystemDisk.open(path)?;
        Ok(Arc::new(FaultyFile { file, countdown: Arc::clone(&self.countdown) }))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        SystemDisk.list(directory)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        SystemDisk.remove(path)
    }

    fn before_flush(&self) -> io::Result<()> {
        check(&self.countdown)
    }
}

impl DiskFile for FaultyFile {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        self.file.read_all()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if let Err(error) = check(&self.countdown) {
            self.file.write_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(error);
        }
        self.file.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        check(&self.countdown)?;
        self.file.sync()
    }
}

//! A disk in memory, and directories that go away.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::disk::{Disk, DiskFile};
use crate::engine::lock;

/// Files of the commit log that never reach a disk. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct MemoryDisk(Arc<Mutex<BTreeMap<PathBuf, Arc<MemoryFile>>>>);

#[derive(Debug)]
struct MemoryFile(Mutex<Vec<u8>>);

impl MemoryDisk {
    pub(super) fn put(&self, path: PathBuf, bytes: Vec<u8>) {
        lock(&self.0).insert(path, Arc::new(MemoryFile(Mutex::new(bytes))));
    }

    /// The content of all files by name.
    pub(super) fn contents(&self) -> Vec<Vec<u8>> {
        lock(&self.0).values().map(|it| lock(&it.0).clone()).collect()
    }
}

impl Disk for MemoryDisk {
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        let file = Arc::new(MemoryFile(Mutex::new(vec![0; length])));
        if lock(&self.0).insert(path.to_owned(), Arc::clone(&file)).is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        Ok(file)
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        match lock(&self.0).get(path) {
            Some(file) => {
                let file: Arc<dyn DiskFile> = Arc::<MemoryFile>::clone(file);
                Ok(file)
            }
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let files = lock(&self.0);
        Ok(files.keys().filter(|it| it.parent() == Some(directory)).cloned().collect())
    }

    fn sync_names(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        lock(&self.0).remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

impl DiskFile for MemoryFile {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        Ok(lock(&self.0).clone())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let mut content = lock(&self.0);
        let place = content.get_mut(start..start + bytes.len());
        place.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A directory of its own that is removed in the end.
#[derive(Debug)]
pub(super) struct Scratch(PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("millstream-fuzzing-{}-{number}", std::process::id());
        // Nothing here is meant to survive, and syncs of a real disk take most of the time.
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = parent.join(name);
        // An earlier process of the same number may have been killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("there is room for temporary files");
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The file operations of the commit log; a test puts a failing one in its place.
pub trait Disk: Send + Sync + fmt::Debug {
    /// Creates a file of `length` zero bytes that is itself durable, and returns it open.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>>;

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;

    /// The files in a directory.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>>;

    /// Makes the names of the files in a directory durable.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn sync_names(&self, directory: &Path) -> io::Result<()> {
        sync_directory(directory)
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Called before recent commits move to the sorted tables, whose files are not under this
    /// trait.
    ///
    /// # Errors
    ///
    /// One that a test wants the move to fail with.
    fn before_flush(&self) -> io::Result<()> {
        Ok(())
    }
}

/// An open file of the commit log.
pub trait DiskFile: Send + Sync + fmt::Debug {
    /// The whole content.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn read_all(&self) -> io::Result<Vec<u8>>;

    /// Writes all bytes at a place.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Waits until everything written is on the disk.
    ///
    /// # Errors
    ///
    /// Those of the operating system. What was written since the last success may be lost, also
    /// after a later success.
    fn sync(&self) -> io::Result<()>;
}

/// The files of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemDisk;

impl Disk for SystemDisk {
    fn create(&self, path: &Path, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        // Zeros are written rather than reserved: only blocks that were written once can be written
        // again without a journal commit of the file system, which would wait for the data
        // of every other file.
        let zeros = vec![0; ZEROS_AT_ONCE];
        let mut offset = 0;
        while offset < length {
            let count = usize::try_from(length - offset).unwrap_or(usize::MAX).min(ZEROS_AT_ONCE);
            write_all_at(&file, &zeros[..count], offset)?;
            offset += u64::try_from(count).expect("a usize fits into 64 bits");
        }
        file.sync_all()?;
        if let Some(parent) = path.parent() {
            sync_directory(parent)?;
        }
        Ok(Arc::new(SystemFile(file)))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        Ok(Arc::new(SystemFile(file)))
    }

    fn list(&self, directory: &Path) -> io::Result<Vec<PathBuf>> {
        let mut paths = Vec::new();
        for entry in fs::read_dir(directory)? {
            paths.push(entry?.path());
        }
        paths.sort();
        Ok(paths)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }
}

#[derive(Debug)]
struct SystemFile(File);

impl DiskFile for SystemFile {
    fn read_all(&self) -> io::Result<Vec<u8>> {
        use std::io::{Read, Seek, SeekFrom};

        let mut file = &self.0;
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(0))?;
        file.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        write_all_at(&self.0, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()
    }
}

/// Makes the entries of a directory durable.
pub(crate) fn sync_directory(path: &Path) -> io::Result<()> {
    // Windows cannot open a directory as a file and needs no such sync.
    if cfg!(unix) { File::open(path)?.sync_all() } else { Ok(()) }
}

/// Makes the entries of a directory and of all directories in it durable.
pub(crate) fn sync_directories(path: &Path) -> io::Result<()> {
    if !path.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            sync_directories(&entry.path())?;
        }
    }
    sync_directory(path)
}

#[cfg(unix)]
fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(not(unix))]
fn write_all_at(mut file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    use std::io::{Seek, SeekFrom, Write};

    file.seek(SeekFrom::Start(offset))?;
    file.write_all(bytes)
}

/// Newer kernels keep what was written at once as one piece of their cache and look through the
/// whole of it for every write into it. Much larger pieces cost a fifth of the time of a group,
/// much smaller ones are many.
const ZEROS_AT_ONCE: usize = 64 * 1024;

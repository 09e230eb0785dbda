use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    content::Content,
    error::{Attempt, Result},
};

/// A directory as a crash left it.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Paths of directories, each after its parent.
    pub(crate) directories: Vec<String>,
    /// Paths and bytes of files.
    pub(crate) files: Vec<(String, Content)>,
}

impl Image {
    /// Fills an empty directory.
    ///
    /// # Errors
    ///
    /// If something cannot be written.
    pub fn write_to(&self, directory: &Path) -> Result<()> {
        for path in &self.directories {
            fs::create_dir(directory.join(path))
                .attempt(|| format!("make directory \"{path}\""))?;
        }
        for (path, content) in &self.files {
            content.write_to(&directory.join(path)).attempt(|| format!("write file \"{path}\""))?;
        }
        Ok(())
    }

    /// What differs between this image and a directory; empty if nothing does.
    ///
    /// # Errors
    ///
    /// If the directory cannot be read.
    pub fn differences(&self, directory: &Path) -> Result<Vec<String>> {
        let mut unexpected = BTreeSet::new();
        list(directory, directory, &mut unexpected).attempt(|| "list the recorded directory")?;
        let mut differences = Vec::new();
        for path in &self.directories {
            if !unexpected.remove(Path::new(path)) {
                differences.push(format!("directory \"{path}\" is missing"));
            }
        }
        for (path, content) in &self.files {
            if !unexpected.remove(Path::new(path)) {
                differences.push(format!("file \"{path}\" is missing"));
            } else if !content
                .equals_file(&directory.join(path))
                .attempt(|| format!("read file \"{path}\""))?
            {
                differences.push(format!("file \"{path}\" has other bytes"));
            }
        }
        differences
            .extend(unexpected.iter().map(|it| format!("\"{}\" is not expected", it.display())));
        Ok(differences)
    }

    /// Bytes a reader would see in the file of this path.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&Content> {
        self.files.iter().find(|(it, _)| it == path).map(|(_, content)| content)
    }
}

fn list(root: &Path, directory: &Path, into: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        into.insert(path.strip_prefix(root).map_err(io::Error::other)?.to_owned());
        if path.is_dir() {
            list(root, &path, into)?;
        }
    }
    Ok(())
}

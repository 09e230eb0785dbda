//! The file that says which version of the format a directory has.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use millstream_core::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// What a directory says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    /// Another major cannot be read by this version.
    major: u32,
    /// A newer minor can be read and is kept.
    minor: u32,
}

const CURRENT: Format = Format { major: 1, minor: 0 };
const FILE: &str = "format.json";

impl Format {
    /// Whether a store is there; refuses one that a newer version wrote.
    pub(crate) fn check(directory: &Path) -> Result<bool> {
        let attempted = || format!("open the store in {}", directory.display());
        let bytes = match fs::read(directory.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => {
                return Err(Error::new(ErrorKind::Unavailable, attempted()).because(error));
            }
        };
        let found: Self = serde_json::from_slice(&bytes).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("read {FILE} in {}", directory.display()))
                .because(error)
        })?;
        if found.major != CURRENT.major {
            let reason = format!(
                "it has format {}.{} and this Millstream reads {}.x; use the version that wrote it",
                found.major, found.minor, CURRENT.major
            );
            return Err(Error::new(ErrorKind::Unsupported, attempted()).because(reason));
        }
        Ok(true)
    }

    /// Writes the file whole or not at all.
    pub(crate) fn write(directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&CURRENT).expect("two numbers make JSON");
        let unfinished = directory.join("format.json.new");
        let mut file = fs::File::create(&unfinished)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(unfinished, directory.join(FILE))
    }
}

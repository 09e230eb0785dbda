use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

/// Bytes are kept in pages, so that a copy shares what did not change and a hole costs nothing.
const PAGE_BYTES: usize = 4096;
const PAGE_BYTES_U64: u64 = 4096;

type Page = [u8; PAGE_BYTES];

/// What is in a file. Copies are cheap.
#[derive(Clone, Debug, Default)]
pub struct Content {
    length: u64,
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
}

impl Content {
    /// Length in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Overwrites and, past the end, grows.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let pages = Arc::make_mut(&mut self.pages);
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let start = index(at % PAGE_BYTES_U64);
            let (part, later) = rest.split_at(rest.len().min(PAGE_BYTES - start));
            let page =
                pages.entry(at / PAGE_BYTES_U64).or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[start..start + part.len()].copy_from_slice(part);
            at += count(part);
            rest = later;
        }
        self.length = self.length.max(at);
    }

    /// Cuts, or grows with zeroes.
    pub fn truncate(&mut self, length: u64) {
        if length < self.length {
            let pages = Arc::make_mut(&mut self.pages);
            pages.split_off(&length.div_ceil(PAGE_BYTES_U64));
            // What was behind the end reads as zeroes if the file grows again.
            if let Some(last) = pages.get_mut(&(length / PAGE_BYTES_U64)) {
                Arc::make_mut(last)[index(length % PAGE_BYTES_U64)..].fill(0);
            }
        }
        self.length = length;
    }

    /// Writes a new file with these bytes; holes stay holes.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write_to(&self, path: &Path) -> io::Result<()> {
        let file = File::create_new(path)?;
        let mut run: Vec<u8> = Vec::new();
        let mut start = 0;
        for (number, page) in self.pages.iter() {
            let offset = number * PAGE_BYTES_U64;
            if start + count(&run) != offset {
                file.write_all_at(&run, start)?;
                run.clear();
                start = offset;
            }
            run.extend_from_slice(&page[..]);
        }
        file.write_all_at(&run, start)?;
        file.set_len(self.length)
    }

    /// Whether a file has exactly these bytes.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn equals_file(&self, path: &Path) -> io::Result<bool> {
        Ok(self.equals(&fs::read(path)?))
    }

    /// Whether these are exactly the given bytes.
    #[must_use]
    pub fn equals(&self, bytes: &[u8]) -> bool {
        const ZEROES: Page = [0; PAGE_BYTES];
        self.length == count(bytes)
            && (0..).zip(bytes.chunks(PAGE_BYTES)).all(|(number, chunk)| {
                let page = self.pages.get(&number).map_or(&ZEROES, |page| page);
                page[..chunk.len()] == *chunk
            })
    }
}

/// Length of a slice as files count.
pub(crate) fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("a slice is shorter than 2^64 bytes")
}

/// Position in a slice.
pub(crate) fn index(position: u64) -> usize {
    usize::try_from(position).expect("a position inside a slice fits its index")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn behaves_like_plain_bytes() {
        let mut random = Random::new(1);
        let mut plain: Vec<u8> = Vec::new();
        let mut content = Content::default();
        for step in 0..500_u64 {
            if random.one_in(4) {
                let length = random.below(20_000);
                plain.resize(index(length), 0);
                content.truncate(length);
            } else {
                let offset = index(random.below(15_000));
                let data = vec![u8::try_from(step % 255).unwrap() + 1; index(random.below(6_000))];
                if !data.is_empty() {
                    plain.resize(plain.len().max(offset + data.len()), 0);
                    plain[offset..offset + data.len()].copy_from_slice(&data);
                }
                content.write(u64::try_from(offset).unwrap(), &data);
            }
            assert!(content.equals(&plain), "step {step}");
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        content.write_to(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), plain);
        assert!(content.equals_file(&path).unwrap());
    }

    #[test]
    fn a_hole_is_not_written() {
        let mut content = Content::default();
        content.truncate(1 << 30);
        content.write(1 << 29, b"middle");
        assert_eq!(content.pages.len(), 1);
        assert_eq!(content.length(), 1 << 30);
    }
}

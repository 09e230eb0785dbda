//! A disk that has not written everything yet.
//!
//! Each file is what a sync made durable plus the changes since; so is each directory. A crash
//! leaves the durable part and any choice of the changes:
//!
//! - A sync of a file makes its bytes and its length durable, as far as they were written before
//!   the sync began.
//! - A sync of a directory makes the entries in it durable: files made, renamed into, renamed away,
//!   removed.
//! - A rename is one change: after a crash it has happened or it has not. Across two directories, a
//!   sync of either is enough.
//! - Everything else may or may not have happened, in any order. See [`Rules`] for how far "any"
//!   goes.
//!
//! A name that is durable before the bytes of its file shows an empty file; bytes without a durable
//! name are lost.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    content::{Content, count, index},
    error::{Error, Result},
    image::Image,
    random::Random,
    trace::{FileId, Record, SyncId},
};

/// A write is whole per sector; this is the smallest sector still in use.
const SECTOR_BYTES: u64 = 512;

/// What a crash leaves of changes to names that no sync covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// What POSIX allows: any of them may be lost, and a sync of a file says nothing about its
    /// name. Default.
    #[default]
    Strict,
    /// What ext4 and xfs do: they are kept in order, and a sync of a file or directory keeps all up
    /// to the newest that concerns it.
    Journaled,
}

/// Which of the changes that no sync covers a crash leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// None.
    Dropped,
    /// All, as after the death of the process alone.
    Kept,
    /// A choice that depends on this seed; writes may be cut between sectors.
    Torn(u64),
}

/// What the next record will change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// What the process sees.
    pub visible: bool,
    /// What a crash is certain to leave.
    pub durable: bool,
}

/// The model; feed it the records of a trace.
#[derive(Debug, Default)]
pub struct Disk {
    rules: Rules,
    files: BTreeMap<FileId, File>,
    /// What the names in each directory mean; the root is the first.
    names_visible: Vec<Entries>,
    names_durable: Vec<Entries>,
    names: Vec<NameChange>,
    syncs: BTreeMap<SyncId, Sync>,
    /// Numbers every change, so that a sync knows what came before it.
    clock: u64,
}

#[derive(Debug, Default)]
struct File {
    durable: Content,
    visible: Content,
    pending: Vec<(u64, Change)>,
}

#[derive(Debug)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    Truncate { length: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    File(FileId),
    Directory(usize),
}

type Entries = BTreeMap<String, Node>;

#[derive(Debug)]
struct NameChange {
    at: u64,
    /// Directory, name, and what the name means from now on.
    effects: Vec<(usize, String, Option<Node>)>,
}

#[derive(Clone, Copy, Debug)]
struct Sync {
    node: Node,
    began: u64,
}

/// Every trace starts in this directory.
const ROOT: usize = 0;

impl Disk {
    /// An empty directory.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            names_visible: vec![Entries::new()],
            names_durable: vec![Entries::new()],
            ..Self::default()
        }
    }

    /// What [`Disk::apply`] would change.
    #[must_use]
    pub fn effect_of(&self, record: &Record) -> Effect {
        match record {
            Record::Mark { .. }
            | Record::SyncFile { .. }
            | Record::SyncDirectory { .. }
            | Record::Settled => Effect::default(),
            Record::SyncEnd { sync } => {
                let durable = self.syncs.get(sync).is_some_and(|sync| self.covers_something(*sync));
                Effect { visible: false, durable }
            }
            Record::Directory { .. }
            | Record::Create { .. }
            | Record::Write { .. }
            | Record::Truncate { .. }
            | Record::Rename { .. }
            | Record::Link { .. }
            | Record::Unlink { .. }
            | Record::RemoveDirectory { .. } => Effect { visible: true, durable: false },
        }
    }

    /// Does what the process did.
    ///
    /// # Errors
    ///
    /// If the record names a file that does not exist here, which means that the recorder missed
    /// something.
    pub fn apply(&mut self, record: &Record) -> Result<()> {
        self.clock += 1;
        match record {
            Record::Mark { .. } => {}
            Record::Settled => self.settle(),
            Record::Directory { path } => {
                let node = Node::Directory(self.names_visible.len());
                self.names_visible.push(Entries::new());
                self.names_durable.push(Entries::new());
                self.rename(vec![(path, Some(node))])?;
            }
            Record::Create { file, path } => {
                self.files.insert(*file, File::default());
                self.rename(vec![(path, Some(Node::File(*file)))])?;
            }
            Record::Write { file, offset, data } => {
                self.change(*file, Change::Write { offset: *offset, data: data.clone() })?;
            }
            Record::Truncate { file, length } => {
                self.change(*file, Change::Truncate { length: *length })?;
            }
            Record::Rename { from, to } => {
                let node = self.find(from)?;
                self.rename(vec![(from, None), (to, Some(node))])?;
            }
            Record::Link { from, to } => {
                let node = self.find(from)?;
                self.rename(vec![(to, Some(node))])?;
            }
            Record::Unlink { path } | Record::RemoveDirectory { path } => {
                self.find(path)?;
                self.rename(vec![(path, None)])?;
            }
            Record::SyncFile { sync, file } => {
                self.syncs.insert(*sync, Sync { node: Node::File(*file), began: self.clock });
            }
            Record::SyncDirectory { sync, path } => {
                // A removed directory can still be synced; there is nothing left to keep.
                if let Ok(node) = self.find(path) {
                    self.syncs.insert(*sync, Sync { node, began: self.clock });
                }
            }
            Record::SyncEnd { sync } => {
                if let Some(sync) = self.syncs.remove(sync) {
                    self.sync(sync);
                }
            }
        }
        Ok(())
    }

    /// What is on the disk if the power fails now.
    #[must_use]
    pub fn image(&self, variant: Variant) -> Image {
        let mut random = match variant {
            Variant::Dropped | Variant::Kept => Random::new(0),
            // Each moment draws anew.
            Variant::Torn(seed) => Random::new(Random::new(seed ^ (self.clock << 20)).next()),
        };
        let damage = Damage::draw(&mut random);
        let directories = self.entries_after(variant, damage, &mut random);
        let mut image = Image::default();
        let mut open = vec![(String::new(), ROOT)];
        let mut seen = BTreeSet::from([ROOT]);
        while let Some((path, directory)) = open.pop() {
            for (name, node) in &directories[directory] {
                let path = if path.is_empty() { name.clone() } else { format!("{path}/{name}") };
                match node {
                    // With some renames kept and others lost, a directory could otherwise be in
                    // itself.
                    Node::Directory(child) if seen.insert(*child) => {
                        image.directories.push(path.clone());
                        open.push((path, *child));
                    }
                    Node::Directory(_) => {}
                    Node::File(file) => {
                        let file = &self.files[file];
                        image.files.push((path, file.after(variant, damage, &mut random)));
                    }
                }
            }
        }
        image
    }

    fn entries_after(&self, variant: Variant, damage: Damage, random: &mut Random) -> Vec<Entries> {
        if variant == Variant::Kept {
            return self.names_visible.clone();
        }
        let mut directories = self.names_durable.clone();
        if variant == Variant::Dropped {
            return directories;
        }
        let first_lost = random.below(count_items(&self.names) + 1);
        for (number, change) in (0..).zip(&self.names) {
            let kept = match self.rules {
                Rules::Journaled => number < first_lost,
                Rules::Strict => match damage {
                    Damage::Tail => number < first_lost,
                    Damage::Anywhere => random.one_in(2),
                    Damage::Rare => !random.one_in(8),
                },
            };
            if kept {
                change.apply(&mut directories);
            }
        }
        directories
    }

    fn find(&self, path: &str) -> Result<Node> {
        let mut node = Node::Directory(ROOT);
        for part in path.split('/').filter(|it| !it.is_empty()) {
            let next = match node {
                Node::Directory(directory) => self.names_visible[directory].get(part),
                Node::File(_) => None,
            };
            node = *next.ok_or_else(|| unknown(path))?;
        }
        Ok(node)
    }

    fn rename(&mut self, changes: Vec<(&String, Option<Node>)>) -> Result<()> {
        let mut effects = Vec::new();
        for (path, node) in changes {
            let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
            let Node::Directory(parent) = self.find(parent)? else { return Err(unknown(path)) };
            effects.push((parent, name.to_owned(), node));
        }
        let change = NameChange { at: self.clock, effects };
        change.apply(&mut self.names_visible);
        self.names.push(change);
        Ok(())
    }

    fn change(&mut self, file: FileId, change: Change) -> Result<()> {
        let file =
            self.files.get_mut(&file).ok_or_else(|| unknown(&format!("number {}", file.0)))?;
        change.apply(&mut file.visible);
        file.pending.push((self.clock, change));
        Ok(())
    }

    fn settle(&mut self) {
        for file in self.files.values_mut() {
            file.pending.clear();
            file.durable = file.visible.clone();
        }
        self.names_durable = self.names_visible.clone();
        self.names.clear();
    }

    fn covers_something(&self, sync: Sync) -> bool {
        let bytes = match sync.node {
            Node::File(file) => {
                let first = self.files.get(&file).and_then(|file| file.pending.first());
                first.is_some_and(|(at, _)| *at < sync.began)
            }
            Node::Directory(_) => false,
        };
        bytes || self.names_covered(sync).contains(&true)
    }

    fn sync(&mut self, sync: Sync) {
        let covered = self.names_covered(sync);
        if let Node::File(file) = sync.node
            && let Some(file) = self.files.get_mut(&file)
        {
            let later = file.pending.partition_point(|(at, _)| *at < sync.began);
            for (_, change) in file.pending.drain(..later) {
                change.apply(&mut file.durable);
            }
        }
        let mut covered = covered.into_iter();
        self.names.retain(|change| {
            let covered = covered.next().unwrap_or(false);
            if covered {
                change.apply(&mut self.names_durable);
            }
            !covered
        });
    }

    /// For each pending change of names whether the sync makes it durable.
    fn names_covered(&self, sync: Sync) -> Vec<bool> {
        let before = self.names.partition_point(|change| change.at < sync.began);
        let mut covered = vec![false; self.names.len()];
        match (self.rules, sync.node) {
            (Rules::Strict, Node::File(_)) => {}
            (Rules::Strict, Node::Directory(directory)) => {
                // A change in two directories brings along what came before it in both, or an older
                // change of the same name could be replayed over it.
                let mut reached = BTreeSet::from([directory]);
                for (number, change) in self.names[..before].iter().enumerate().rev() {
                    if change.effects.iter().any(|(directory, _, _)| reached.contains(directory)) {
                        covered[number] = true;
                        reached.extend(change.effects.iter().map(|(directory, _, _)| *directory));
                    }
                }
            }
            (Rules::Journaled, node) => {
                let concerns = |change: &NameChange| {
                    change.effects.iter().any(|(directory, _, target)| {
                        *target == Some(node) || Node::Directory(*directory) == node
                    })
                };
                if let Some(newest) = self.names[..before].iter().rposition(concerns) {
                    covered[..=newest].fill(true);
                }
            }
        }
        covered
    }
}

impl File {
    fn after(&self, variant: Variant, damage: Damage, random: &mut Random) -> Content {
        match variant {
            Variant::Dropped => return self.durable.clone(),
            Variant::Kept => return self.visible.clone(),
            Variant::Torn(_) => {}
        }
        let mut content = self.durable.clone();
        let first_lost = random.below(count_items(&self.pending) + 1);
        for (number, (_, change)) in (0..).zip(&self.pending) {
            match damage {
                Damage::Tail if number < first_lost => change.apply(&mut content),
                Damage::Tail if number == first_lost => change.apply_torn(&mut content, random),
                Damage::Tail => break,
                Damage::Anywhere => change.apply_torn(&mut content, random),
                Damage::Rare if random.one_in(8) => change.apply_torn(&mut content, random),
                Damage::Rare => change.apply(&mut content),
            }
        }
        content
    }
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { offset, data } => content.write(*offset, data),
            Self::Truncate { length } => content.truncate(*length),
        }
    }

    fn apply_torn(&self, content: &mut Content, random: &mut Random) {
        let Self::Write { offset, data } = self else {
            if random.one_in(2) {
                self.apply(content);
            }
            return;
        };
        let end = offset + count(data);
        let first = offset / SECTOR_BYTES;
        let sectors = end.div_ceil(SECTOR_BYTES) - first;
        let part = |sector: u64| {
            let from = ((first + sector) * SECTOR_BYTES).max(*offset);
            let to = ((first + sector + 1) * SECTOR_BYTES).min(end);
            (from, &data[index(from - offset)..index(to - offset)])
        };
        let fate = random.below(4);
        let cut = random.below(sectors + 1);
        for sector in 0..sectors {
            let kept = match fate {
                0 => true,
                1 => false,
                2 => sector < cut,
                _ => random.one_in(2),
            };
            if kept {
                let (at, bytes) = part(sector);
                content.write(at, bytes);
            }
        }
    }
}

impl NameChange {
    fn apply(&self, directories: &mut [Entries]) {
        for (directory, name, node) in &self.effects {
            match node {
                Some(node) => directories[*directory].insert(name.clone(), *node),
                None => directories[*directory].remove(name),
            };
        }
    }
}

/// How the changes that survive are chosen. One rule alone would hardly ever show, say, a long run
/// of writes with one lost.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// All up to some change survive.
    Tail,
    /// Each has its own fate.
    Anywhere,
    /// Most survive.
    Rare,
}

impl Damage {
    const fn draw(random: &mut Random) -> Self {
        match random.below(3) {
            0 => Self::Tail,
            1 => Self::Anywhere,
            _ => Self::Rare,
        }
    }
}

fn count_items<T>(items: &[T]) -> u64 {
    u64::try_from(items.len()).expect("a list is shorter than 2^64 items")
}

fn unknown(path: &str) -> Error {
    Error::new(format!("replay the trace: it names \"{path}\", which was never made"))
}

#[cfg(test)]
mod tests;

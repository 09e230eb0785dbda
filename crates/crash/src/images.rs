use std::collections::VecDeque;

use crate::{
    disk::{Disk, Effect, Rules, Variant},
    error::Result,
    image::Image,
    trace::Record,
};

/// What a crash at one moment leaves.
#[derive(Clone, Debug)]
pub struct Case {
    /// How many records of the trace had been done.
    pub prefix: usize,
    /// Which unsynced changes survived.
    pub variant: Variant,
    /// How many marks had been made by then.
    pub marks: usize,
    /// The disk.
    pub image: Image,
}

/// Crashes a trace after each of its changes.
///
/// Moments at which a variant would show the same disk are one case, the last of them: it has the
/// most marks, so whatever an earlier one would show it shows too.
#[derive(Debug)]
pub struct Images<'a> {
    records: &'a [Record],
    variants: &'a [Variant],
    disk: Disk,
    prefix: usize,
    marks: usize,
    /// Moments before this one belong to the directory's past.
    settled: bool,
    ready: VecDeque<Case>,
    finished: bool,
}

/// Every case of a trace, from the first change to the last.
#[must_use]
pub fn images<'a>(records: &'a [Record], variants: &'a [Variant], rules: Rules) -> Images<'a> {
    Images {
        records,
        variants,
        disk: Disk::new(rules),
        prefix: 0,
        marks: 0,
        settled: false,
        ready: VecDeque::new(),
        finished: false,
    }
}

/// How many moments a trace has at which the disk differs from the moment before.
#[must_use]
pub fn moments(records: &[Record]) -> usize {
    let start = records.iter().position(|it| *it == Record::Settled).map_or(0, |it| it + 1);
    let changes = |record: &&Record| {
        !matches!(
            record,
            Record::Mark { .. } | Record::SyncFile { .. } | Record::SyncDirectory { .. }
        )
    };
    records[start..].iter().filter(changes).count()
}

impl Images<'_> {
    fn step(&mut self) -> Result<()> {
        let Some(record) = self.records.get(self.prefix) else {
            self.finished = true;
            self.emit(Effect { visible: true, durable: true });
            return Ok(());
        };
        if self.settled {
            self.emit(self.disk.effect_of(record));
        }
        self.disk.apply(record)?;
        self.prefix += 1;
        self.marks += usize::from(matches!(record, Record::Mark { .. }));
        self.settled |= *record == Record::Settled;
        Ok(())
    }

    /// Takes the variants that the next record would change.
    fn emit(&mut self, effect: Effect) {
        for variant in self.variants {
            let last = match variant {
                Variant::Dropped => effect.durable,
                Variant::Kept => effect.visible,
                Variant::Torn(_) => effect.visible || effect.durable,
            };
            if last {
                self.ready.push_back(Case {
                    prefix: self.prefix,
                    variant: *variant,
                    marks: self.marks,
                    image: self.disk.image(*variant),
                });
            }
        }
    }
}

impl Iterator for Images<'_> {
    type Item = Result<Case>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && !self.finished {
            if let Err(error) = self.step() {
                self.finished = true;
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
    }
}

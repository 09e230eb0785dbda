//! What the buffer and the tables held at one moment, in key order.

use std::iter::Peekable;
use std::sync::Arc;

use fjall::Slice;
use millstream_core::Result;

use crate::buffer::{Buffer, Layer};
use crate::tables::{Table, Tables, TablesSnapshot};

/// A part of a table to look at.
#[derive(Clone, Debug)]
pub(crate) struct Section {
    pub(crate) table: Table,
    /// The first key.
    pub(crate) from: Vec<u8>,
    /// The key behind the last.
    pub(crate) to: Vec<u8>,
}

/// Sections of tables as they were at one moment.
///
/// The active layer goes on changing, so what it had to say about each section is copied, up to a
/// number of entries; a section that has more ends early.
pub(crate) struct View<'a> {
    tables: &'a Tables,
    /// None if the tables hold nothing of any section.
    snapshot: Option<TablesSnapshot>,
    frozen: Option<Arc<Layer>>,
    sections: Vec<Captured>,
}

struct Captured {
    section: Section,
    recent: Vec<(Slice, Option<Slice>)>,
    is_cut: bool,
    /// Whether the tables may have entries of it.
    is_in_tables: bool,
}

impl<'a> View<'a> {
    pub(crate) fn capture(
        tables: &'a Tables,
        buffer: &Buffer,
        sections: Vec<Section>,
        recent_max: impl Fn(&[u8]) -> usize,
    ) -> Self {
        let capture = |mut section: Section| {
            let mut recent = Vec::new();
            let mut cut = None;
            let mut entries =
                buffer.active.range(section.table, &section.from, &section.to).peekable();
            let recent_max = entries.peek().map_or(0, |(first, _)| recent_max(first));
            for (key, value) in entries {
                if recent.len() == recent_max {
                    cut = Some(key.to_vec());
                    break;
                }
                recent.push((key.clone(), value.clone()));
            }
            let is_cut = cut.is_some();
            section.to = cut.unwrap_or(section.to);
            let is_in_tables = tables.may_hold(&section);
            Captured { section, recent, is_cut, is_in_tables }
        };
        let sections: Vec<_> = sections.into_iter().map(capture).collect();
        let snapshot = sections.iter().any(|it| it.is_in_tables).then(|| tables.snapshot());
        Self { tables, snapshot, frozen: buffer.frozen.clone(), sections }
    }

    /// The key at which a section ends early, if it does.
    pub(crate) fn cut_at(&self, section: usize) -> Option<&[u8]> {
        let captured = &self.sections[section];
        captured.is_cut.then_some(captured.section.to.as_slice())
    }

    /// The entries of a section in key order.
    pub(crate) fn entries(&self, section: usize) -> impl Iterator<Item = Result<(Slice, Slice)>> {
        let captured = &self.sections[section];
        let Section { table, from, to } = &captured.section;
        let frozen = self.frozen.iter().flat_map(|layer| layer.range(*table, from, to));
        let snapshot = self.snapshot.as_ref().filter(|_| captured.is_in_tables);
        let stored = snapshot.map(|it| self.tables.range(it, *table, from, to));
        Merged {
            recent: captured.recent.iter().peekable(),
            frozen: frozen.peekable(),
            stored: stored.into_iter().flatten().peekable(),
        }
    }
}

/// Three sorted sources as one; an earlier one hides a later one.
struct Merged<'a, F, S>
where
    F: Iterator<Item = (&'a Slice, &'a Option<Slice>)>,
    S: Iterator<Item = Result<(Slice, Slice)>>,
{
    recent: Peekable<std::slice::Iter<'a, (Slice, Option<Slice>)>>,
    frozen: Peekable<F>,
    stored: Peekable<S>,
}

impl<'a, F, S> Iterator for Merged<'a, F, S>
where
    F: Iterator<Item = (&'a Slice, &'a Option<Slice>)>,
    S: Iterator<Item = Result<(Slice, Slice)>>,
{
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let recent = self.recent.peek().map(|it| &it.0);
            let frozen = self.frozen.peek().map(|it| it.0);
            let Some(newer) = least(recent, frozen) else {
                return self.stored.next();
            };
            match self.stored.peek() {
                Some(Err(_)) => return self.stored.next(),
                Some(Ok((key, _))) if key < newer => return self.stored.next(),
                Some(Ok((key, _))) if key == newer => {
                    self.stored.next();
                }
                _ => {}
            }
            let key = newer.clone();
            let from_frozen = self.frozen.next_if(|it| *it.0 == key).map(|it| it.1);
            let from_recent = self.recent.next_if(|it| it.0 == key).map(|it| &it.1);
            if let Some(Some(value)) = from_recent.or(from_frozen) {
                return Some(Ok((key, value.clone())));
            }
        }
    }
}

fn least<'k>(left: Option<&'k Slice>, right: Option<&'k Slice>) -> Option<&'k Slice> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

//! Finds the partition key in the JSON of an item without building a tree.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::partition_key::text::scalar;
use crate::partition_key::{COMPONENTS_MAX, PartitionKeyComponent};

/// What each path leads to.
pub(crate) type Found = [Result<PartitionKeyComponent, String>; COMPONENTS_MAX];

/// Follows up to three paths, none of which is the beginning of another.
pub(crate) fn follow(paths: &[Vec<String>], body: &[u8]) -> serde_json::Result<Found> {
    let mut found = [const { Ok(PartitionKeyComponent::Undefined) }; COMPONENTS_MAX];
    let mut wanted = [false; COMPONENTS_MAX];
    wanted[..paths.len()].fill(true);
    Object { paths, wanted, depth: 0, found: &mut found }.read(body)?;
    Ok(found)
}

/// An object on the way, `depth` segments below the item.
struct Object<'a> {
    paths: &'a [Vec<String>],
    /// The paths that lead through this object.
    wanted: [bool; COMPONENTS_MAX],
    depth: usize,
    found: &'a mut Found,
}

/// What the name of a property says about its value.
enum Turn {
    /// It is on no path.
    Away,
    /// It ends the path of this number.
    Here(usize),
    /// It is on the way of these paths.
    Through([bool; COMPONENTS_MAX]),
}

/// Compares a name with the next segments.
struct Name<'a> {
    paths: &'a [Vec<String>],
    wanted: [bool; COMPONENTS_MAX],
    depth: usize,
}

impl Object<'_> {
    fn read(self, json: &[u8]) -> serde_json::Result<()> {
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        deserializer.deserialize_map(self)?;
        deserializer.end()
    }

    fn go_through(
        &mut self,
        wanted: [bool; COMPONENTS_MAX],
        value: &RawValue,
    ) -> serde_json::Result<()> {
        for (found, _) in self.found.iter_mut().zip(wanted).filter(|(_, wanted)| *wanted) {
            // The last of several properties of one name counts, and it may lack what an earlier
            // one had.
            *found = Ok(PartitionKeyComponent::Undefined);
        }
        if !value.get().starts_with('{') {
            return Ok(());
        }
        let inner =
            Object { paths: self.paths, wanted, depth: self.depth + 1, found: &mut *self.found };
        inner.read(value.get().as_bytes())
    }
}

impl<'de> Visitor<'de> for Object<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        let name = Name { paths: self.paths, wanted: self.wanted, depth: self.depth };
        while let Some(turn) = map.next_key_seed(&name)? {
            match turn {
                Turn::Away => {
                    map.next_value::<IgnoredAny>()?;
                }
                Turn::Here(index) => {
                    let value: &RawValue = map.next_value()?;
                    // Cosmos DB takes an object or an array for no value at all.
                    let component = scalar(value.get());
                    self.found[index] =
                        component.map(|it| it.unwrap_or(PartitionKeyComponent::Undefined));
                }
                Turn::Through(wanted) => {
                    let value: &RawValue = map.next_value()?;
                    self.go_through(wanted, value).map_err(A::Error::custom)?;
                }
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for &Name<'_> {
    type Value = Turn;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Turn, D::Error> {
        // As bytes, because a name that is off the path may contain half a surrogate pair.
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for &Name<'_> {
    type Value = Turn;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a property")
    }

    fn visit_bytes<E>(self, name: &[u8]) -> Result<Turn, E> {
        let mut through = [false; COMPONENTS_MAX];
        for (index, path) in self.paths.iter().enumerate() {
            if !self.wanted[index] || path[self.depth].as_bytes() != name {
                continue;
            }
            if path.len() == self.depth + 1 {
                return Ok(Turn::Here(index));
            }
            through[index] = true;
        }
        if through == [false; COMPONENTS_MAX] { Ok(Turn::Away) } else { Ok(Turn::Through(through)) }
    }
}

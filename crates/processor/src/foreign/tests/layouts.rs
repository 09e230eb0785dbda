//! Partitions that were split and merged at random are placed where they were, or not at all.

use std::collections::BTreeMap;

use millstream_core::{FeedMode, KeyRange, RangeId};
use proptest::prelude::*;

use crate::foreign::layout::{coverage, lay_out, order};
use crate::foreign::tests::harness::Scene;
use crate::foreign::{ForeignForm, ForeignLease, ForeignPosition, ForeignScope};

fn lease(id: RangeId, keys: Option<KeyRange>) -> ForeignLease {
    ForeignLease {
        id: format!("p..{id}"),
        prefix: "p".to_owned(),
        form: ForeignForm::DotnetPk,
        scope: ForeignScope::Partition { id, keys },
        position: ForeignPosition::NotStarted,
        mode: Some(FeedMode::LatestVersion),
        owner: None,
        timestamp: None,
    }
}

/// Whether the parts are together exactly the whole.
fn make_up(whole: &KeyRange, parts: &[KeyRange]) -> bool {
    let mut all = parts.to_vec();
    let key = |it: &str| it.parse().unwrap();
    all.extend(KeyRange::new(key(""), whole.min().clone()));
    all.extend(KeyRange::new(whole.max().clone(), key("FF")));
    all.sort_by(order);
    coverage(all.iter().map(|it| ("", it))).problems.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_partition_is_placed_exactly_where_it_was(
        ranges in 1..4_u32,
        moves in proptest::collection::vec(any::<(bool, proptest::sample::Index)>(), 0..14),
    ) {
        let scene = Scene::new(ranges);
        let mut known: BTreeMap<RangeId, KeyRange> = BTreeMap::new();
        let mut merges = 0;
        for (is_merge, place) in moves {
            known.extend(scene.ranges().into_iter().map(|it| (it.id, it.keys)));
            match scene.ranges().len() {
                count if is_merge && 1 < count => {
                    merges += 1;
                    drop(scene.merge(place.index(count - 1)));
                }
                count => drop(scene.split(place.index(count))),
            }
        }
        let now = scene.ranges();
        known.extend(now.iter().map(|it| (it.id, it.keys.clone())));
        for (id, keys) in known {
            let named = lay_out(&[lease(id, Some(keys.clone()))], &now);
            prop_assert!(named.problems.is_empty(), "{id}: {:?}", named.problems);
            let pieces: Vec<KeyRange> = named.pieces.into_iter().map(|it| it.keys).collect();
            prop_assert!(make_up(&keys, &pieces), "{id} was {keys} and is now {pieces:?}");

            let bare = lay_out(&[lease(id, None)], &now);
            prop_assert!(bare.problems.is_empty() || 0 < merges, "{:?}", bare.problems);
            if bare.problems.is_empty() {
                let pieces: Vec<KeyRange> = bare.pieces.into_iter().map(|it| it.keys).collect();
                prop_assert!(make_up(&keys, &pieces), "{id} was {keys} and is now {pieces:?}");
            }
        }
    }
}

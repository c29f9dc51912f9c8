//! Applying a diff gives what was wanted, and the second diff is empty.

use super::*;
use proptest::prelude::*;

type Owned = BTreeMap<u8, Vec<(u32, u8)>>;

fn apply(owned: &Owned, diff: &Diff<u8, u8, u32>) -> Owned {
    let mut out = owned.clone();
    for (id, key) in &diff.delete {
        let rows = out.get_mut(key).unwrap();
        rows.retain(|(row, _)| row != id);
        if rows.is_empty() {
            out.remove(key);
        }
    }
    for (id, key, value) in &diff.update {
        for row in out.get_mut(key).unwrap() {
            if row.0 == *id {
                row.1 = *value;
            }
        }
    }
    for (at, (key, value)) in diff.create.iter().enumerate() {
        out.entry(*key)
            .or_default()
            .push((1_000_000 + u32::try_from(at).unwrap(), *value));
    }
    out
}

proptest! {
    #[test]
    fn after_applying_each_wanted_key_has_one_right_row(
        rows in prop::collection::vec((0_u8..8, 0_u8..4), 0..30),
        wanted in prop::collection::btree_map(0_u8..8, 0_u8..4, 0..8),
    ) {
        let mut owned = Owned::new();
        for (id, (key, value)) in rows.iter().enumerate() {
            owned.entry(*key).or_default().push((u32::try_from(id).unwrap(), *value));
        }
        let diff = Diff::between(&owned, &wanted, |a, b| a == b);
        let after = apply(&owned, &diff);
        let seen: BTreeMap<u8, u8> = after.iter().map(|(k, rows)| { assert_eq!(rows.len(), 1); (*k, rows[0].1) }).collect();
        prop_assert_eq!(&seen, &wanted);
        prop_assert!(Diff::between(&after, &wanted, |a, b| a == b).is_empty());
    }
}

#[test]
fn a_right_duplicate_stays_and_the_wrong_ones_go() {
    let owned = Owned::from([(1, vec![(10, 0), (11, 7)])]);
    let diff = Diff::between(&owned, &BTreeMap::from([(1, 7)]), |a, b| a == b);
    assert_eq!((diff.create.len(), diff.update.len()), (0, 0));
    assert_eq!(diff.delete, vec![(10, 1)]);
}

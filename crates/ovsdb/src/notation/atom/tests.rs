//! What is a name and what is a number.

use super::*;

#[test]
fn names_are_identifiers() {
    for good in ["a", "_", "row_1", "Zz9"] {
        assert_eq!(UuidName::new(good).unwrap().as_str(), good);
    }
    for bad in ["", "1a", "row-1", "a b", "é"] {
        assert!(UuidName::new(bad).is_err(), "{bad}");
    }
}

#[test]
fn reals_are_finite_and_have_one_zero() {
    assert_eq!(Real::new(f64::NAN), None);
    assert_eq!(Real::new(f64::INFINITY), None);
    assert_eq!(Real::new(-0.0), Real::new(0.0));
    assert!(Real::new(-1.0) < Real::new(0.5));
}

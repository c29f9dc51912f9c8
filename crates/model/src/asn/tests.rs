//! Which numbers are refused.

use super::*;

#[test]
fn reserved_numbers_are_refused_by_name() {
    for n in [0, 23_456, 65_535, 4_294_967_295_i64] {
        assert!(
            Asn::try_from(n)
                .unwrap_err()
                .to_string()
                .contains("reserved"),
            "{n}"
        );
    }
    for n in [-1, 4_294_967_296] {
        assert!(
            Asn::try_from(n)
                .unwrap_err()
                .to_string()
                .contains("out of range"),
            "{n}"
        );
    }
    for n in [1, 64_512, 65_534, 65_536, 4_294_967_294] {
        assert_eq!(i64::from(Asn::try_from(n).unwrap().get()), n);
    }
}

//! The delays stay in their bounds.

use super::*;

#[test]
fn delays_double_up_to_the_greatest() {
    let mut backoff = Backoff::new(Duration::from_millis(300));
    let full: Vec<u128> = (0..5).map(|_| backoff.step(1023).as_millis()).collect();
    assert_eq!(full, [49, 99, 199, 299, 299]);
    assert_eq!(backoff.step(0).as_millis(), 150);
    backoff.reset();
    assert_eq!(backoff.step(0).as_millis(), 25);
}

#[test]
fn a_greatest_delay_of_zero_does_not_spin() {
    assert!(!Backoff::new(Duration::ZERO).step(0).is_zero());
}

#[test]
fn noise_is_not_constant() {
    assert_ne!(noise(), noise());
}

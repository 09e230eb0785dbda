//! What requests cost: a simple model, so that charges are there, plausible and repeatable.
//!
//! docs/compatibility.md tells it to users. A point read costs 1 per KiB, a write 5 and 1 more
//! per KiB, a delete 5; a page of a feed 1 and half a unit per KiB; a query 2.5, half a unit per
//! KiB that it returned, and a tenth for each item it had to look at. Everything else costs 1.

use std::fmt;

/// What a request costs that is refused.
pub(crate) const REFUSED: f64 = 1.0;

/// What a point read of so many bytes costs.
pub(crate) fn read(bytes: usize) -> f64 {
    kibibytes(bytes)
}

/// What writing an item of so many bytes costs.
pub(crate) fn write(bytes: usize) -> f64 {
    5.0 + kibibytes(bytes)
}

/// What a delete costs.
pub(crate) fn delete() -> f64 {
    5.0
}

/// What a page of a feed with so many bytes costs.
pub(crate) fn page(bytes: usize) -> f64 {
    1.0 + 0.5 * kibibytes(bytes)
}

/// What a page of a query costs that looked at so many items and returned so many bytes.
pub(crate) fn query(items: usize, bytes: usize) -> f64 {
    2.5 + 0.5 * kibibytes(bytes) + 0.1 * exact(items)
}

/// A charge as it stands in the header.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge(pub(crate) f64);

impl fmt::Display for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Every answer has one, and digits of whole numbers cost less.
        #[expect(clippy::as_conversions, reason = "a charge is positive and small")]
        let hundredths = (self.0 * 100.0).round() as u64;
        write!(f, "{}.{:02}", hundredths / 100, hundredths % 100)
    }
}

fn kibibytes(bytes: usize) -> f64 {
    exact(bytes.div_ceil(1024).max(1))
}

/// Counts of items and KiB are far below what a page may hold, so that this is exact.
fn exact(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    #[test]
    fn charges_grow_with_the_bytes() {
        assert_eq!(super::Charge(super::read(10)).to_string(), "1.00");
        assert_eq!(super::Charge(super::read(1025)).to_string(), "2.00");
        assert_eq!(super::Charge(super::write(0)).to_string(), "6.00");
        assert_eq!(super::Charge(super::query(10, 2048)).to_string(), "4.50");
    }
}

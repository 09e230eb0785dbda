//! What requests cost: a simple model, so that charges are there, plausible and repeatable.
//!
//! docs/compatibility.md tells it to users. A point read costs 1 per KiB, a write 5 and 1 more
//! per KiB, a delete 5; a page of a feed 1 and half a unit per KiB; a query 2.5, half a unit per
//! KiB that it returned, and a tenth for each item it had to look at. Everything else costs 1.

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

/// A charge as it stands in the header, without its point.
pub(crate) fn hundredths(charge: f64) -> u64 {
    #[expect(clippy::as_conversions, reason = "a charge is positive and small")]
    let hundredths = (charge * 100.0).round() as u64;
    hundredths
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
        assert_eq!(super::hundredths(super::read(10)), 100);
        assert_eq!(super::hundredths(super::read(1025)), 200);
        assert_eq!(super::hundredths(super::write(0)), 600);
        assert_eq!(super::hundredths(super::query(10, 2048)), 450);
    }
}

//! MurmurHash3 by Austin Appleby, in the two variants that Cosmos DB uses, always with seed 0.

/// The 32-bit hash (`x86_32`).
pub(crate) fn murmur3_32(data: &[u8]) -> u32 {
    let (words, tail) = data.as_chunks::<4>();
    let mut hash = 0_u32;
    for word in words {
        hash ^= scramble_32(u32::from_le_bytes(*word));
        hash = hash.rotate_left(13).wrapping_mul(5).wrapping_add(0xE654_6B64);
    }
    // Scrambling a zero gives zero, so that a missing tail needs no branch.
    hash ^= scramble_32(u32::from_le_bytes(padded(tail)));

    hash ^= u32::try_from(data.len()).expect("a key is far shorter than 4 GiB");
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85EB_CA6B);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xC2B2_AE35);
    hash ^ (hash >> 16)
}

/// The 128-bit hash (`x64_128`) as its lower and higher half.
pub(crate) fn murmur3_128(data: &[u8]) -> (u64, u64) {
    let (mut low, mut high) = (0_u64, 0_u64);
    let (blocks, tail) = data.as_chunks::<16>();
    for block in blocks {
        let (first, second) = halves(block);
        low ^= scramble_low(first);
        low = low.rotate_left(27).wrapping_add(high).wrapping_mul(5).wrapping_add(0x52DC_E729);
        high ^= scramble_high(second);
        high = high.rotate_left(31).wrapping_add(low).wrapping_mul(5).wrapping_add(0x3849_5AB5);
    }
    let (first, second) = halves(&padded(tail));
    low ^= scramble_low(first);
    high ^= scramble_high(second);

    let length = u64::try_from(data.len()).expect("a length fits 64 bits");
    low ^= length;
    high ^= length;
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    low = finish(low);
    high = finish(high);
    low = low.wrapping_add(high);
    high = high.wrapping_add(low);
    (low, high)
}

fn scramble_32(word: u32) -> u32 {
    word.wrapping_mul(0xCC9E_2D51).rotate_left(15).wrapping_mul(0x1B87_3593)
}

fn scramble_low(word: u64) -> u64 {
    word.wrapping_mul(0x87C3_7B91_1142_53D5).rotate_left(31).wrapping_mul(0x4CF5_AD43_2745_937F)
}

fn scramble_high(word: u64) -> u64 {
    word.wrapping_mul(0x4CF5_AD43_2745_937F).rotate_left(33).wrapping_mul(0x87C3_7B91_1142_53D5)
}

fn finish(mut word: u64) -> u64 {
    word = (word ^ (word >> 33)).wrapping_mul(0xFF51_AFD7_ED55_8CCD);
    word = (word ^ (word >> 33)).wrapping_mul(0xC4CE_B9FE_1A85_EC53);
    word ^ (word >> 33)
}

fn halves(block: &[u8; 16]) -> (u64, u64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = *block;
    (u64::from_le_bytes([a, b, c, d, e, f, g, h]), u64::from_le_bytes([i, j, k, l, m, n, o, p]))
}

fn padded<const LENGTH: usize>(tail: &[u8]) -> [u8; LENGTH] {
    let mut bytes = [0; LENGTH];
    bytes[..tail.len()].copy_from_slice(tail);
    bytes
}

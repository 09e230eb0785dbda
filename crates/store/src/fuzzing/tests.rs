//! Each target on random bytes and on valid input that was damaged a little.

use std::panic;

use crate::fuzzing::{Target, target};

#[track_caller]
fn check(name: &str, rounds: u32) {
    let target = target(name);
    let seeds = (target.seeds)();
    for seed in &seeds {
        run(target, seed);
    }
    let mut random = Random(0x6d69_6c6c);
    for round in 0..rounds {
        let mut input = seeds[random.below(seeds.len())].clone();
        if round % 8 == 0 {
            input = (0..random.below(120)).map(|_| random.byte()).collect();
        }
        for _ in 0..random.below(4) + 1 {
            damage(&mut input, &seeds, &mut random);
        }
        run(target, &input);
    }
}

fn run(target: &Target, input: &[u8]) {
    let outcome = panic::catch_unwind(|| (target.run)(input));
    assert!(outcome.is_ok(), "{} fails on {}", target.name, input.escape_ascii());
}

fn damage(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut Random) {
    const STRIKING: [&[u8]; 8] =
        [b"\0", b"\xff\xff\xff\xff\xff\xff\xff\xff", b"\"", b"{", b"]", b"-", b"MSGR", b"null"];
    let at = random.below(input.len() + 1);
    let rest = input.len() - at;
    match random.below(7) {
        0 if 0 < rest => input[at] ^= 1 << random.below(8),
        1 if 0 < rest => input[at] = random.byte(),
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + random.below(rest.min(12) + 1))),
        4 => {
            let copied = input[at..at + random.below(rest.min(40) + 1)].to_vec();
            let to = random.below(input.len() + 1);
            input.splice(to..to, copied);
        }
        5 => {
            let other = &seeds[random.below(seeds.len())];
            input.splice(at.., other[random.below(other.len() + 1)..].iter().copied());
        }
        _ => {
            let striking = STRIKING[random.below(STRIKING.len())];
            let replaced = if random.below(2) == 0 { rest.min(striking.len()) } else { 0 };
            input.splice(at..at + replaced, striking.iter().copied());
        }
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        let limit = u64::try_from(limit).expect("a usize fits into 64 bits");
        usize::try_from(self.next() % limit).expect("it is below a usize")
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

#[test]
fn effective_keys_come_back() {
    check("effective_key", 5000);
}

#[test]
fn key_ranges_come_back() {
    check("key_range", 5000);
}

#[test]
fn cursors_come_back() {
    check("cursor", 5000);
}

#[test]
fn stored_partition_keys_come_back() {
    check("key_bytes", 5000);
}

#[test]
fn partition_keys_in_headers_come_back() {
    check("key_text", 5000);
}

#[test]
fn partition_key_definitions_come_back() {
    check("key_definition", 5000);
}

#[test]
fn bodies_that_are_accepted_can_be_changed() {
    check("envelope", 5000);
}

#[test]
fn patches_that_are_accepted_keep_the_id() {
    check("patch", 5000);
}

#[test]
fn records_come_back() {
    check("records", 5000);
}

#[test]
fn keys_of_the_tables_come_back() {
    check("table_keys", 5000);
}

#[test]
fn entries_of_a_group_come_back() {
    check("entries", 5000);
}

#[test]
fn a_format_file_is_understood_or_refused() {
    check("format", 2000);
}

#[test]
fn a_log_of_garbage_is_refused_or_goes_on() {
    check("log_segment", 5000);
}

#[test]
fn a_catalog_of_garbage_is_refused() {
    check("catalog", 3000);
}

#[test]
fn a_continuation_of_garbage_is_refused() {
    check("continuation", 5000);
}

#[test]
fn a_store_of_garbage_is_refused_or_answers() {
    check("store", 100);
}

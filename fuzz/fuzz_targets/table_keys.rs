#![no_main]

millstream_fuzz::target!("table_keys");

#![no_main]

millstream_fuzz::target!("effective_key");

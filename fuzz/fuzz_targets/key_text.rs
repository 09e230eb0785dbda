#![no_main]

millstream_fuzz::target!("key_text");

#![no_main]

millstream_fuzz::target!("envelope");

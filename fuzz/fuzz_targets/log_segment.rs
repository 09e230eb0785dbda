#![no_main]

millstream_fuzz::target!("log_segment");

#![no_main]

millstream_fuzz::target!("gateway_continuation");

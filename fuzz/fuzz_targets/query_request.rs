#![no_main]

millstream_fuzz::query_target!(millstream_query::fuzzing::request);

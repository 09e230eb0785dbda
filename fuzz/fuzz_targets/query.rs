#![no_main]

use millstream_query::fuzzing;

millstream_fuzz::query_target!(fuzzing::query, fuzzing::QUERIES);

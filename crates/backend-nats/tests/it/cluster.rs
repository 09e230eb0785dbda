use crate::harness::{Servers, check};

macro_rules! tests {
    (; $($module:ident $name:ident;)*) => {
        $(#[test]
        fn $name() {
            check(stringify!($name), Servers::cluster());
        })*
    };
}

millstream_core::each_obligation!(tests);

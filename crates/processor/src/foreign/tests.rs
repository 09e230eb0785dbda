mod documents;
mod exports;
mod flows;
mod harness;
mod imports;
mod layouts;
mod refusals;

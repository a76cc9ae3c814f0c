//! Durable metadata shared by several processes.
#![forbid(unsafe_code)]

//! The command around branches: devices, secrets, what is explained, completed, configured, drawn and
//! stopped.

#[path = "../common/mod.rs"]
mod common;

mod complete;
mod config;
mod devices;
mod explain;
mod secrets;
mod stop;
mod tree;

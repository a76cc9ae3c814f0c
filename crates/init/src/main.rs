//! Entry of the init executable: what it is to be is its first argument.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let status = match std::env::args().nth(1).as_deref() {
        Some("init") => forkpoint_init::boot::run(),
        Some("worker") => forkpoint_init::worker::run(),
        _ => {
            eprintln!("forkpoint-init is started by Forkpoint, not by hand");
            2
        }
    };
    ExitCode::from(u8::try_from(status).unwrap_or(125))
}

//! `cargo xtask`: build, test, check, demonstrate and measure Forkpoint.
//!
//! One module per verb. It drives cargo, the built executables and ordinary system tools from outside, and knows
//! nothing of Forkpoint's crates, so that it compiles in seconds and cannot share a bug with what it checks.
#![forbid(unsafe_code)]

mod bench;
mod cmd;
mod demo;
mod lint;
mod test;

use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask VERB [OPTIONS]

  demo                 the main job on a real program: six attempts at a bug, the best one committed, then undone
  test                 every test, as the current user and (when root) again as an ordinary user
       -p, --package NAME   only this package (repeatable); core tests are then not demanded
       --suite TEXT         only suites whose name contains TEXT
       --filter TEXT        only tests whose name contains TEXT
       --no-user            not again as an ordinary user
       --no-doc             no documentation tests
  lint                 formatting, clippy, documentation, file lengths, error pages, claims in the documentation
       --no-cargo           only the checks that need no compiler
  bench [NAME…]        measure; prints markdown tables (`bench list` names what there is)
";

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let verb = args.next();
    let rest: Vec<String> = args.collect();
    let outcome = match verb.as_deref() {
        Some("demo") => demo::run(&rest),
        Some("test") => test::run(&rest),
        Some("lint") => lint::run(&rest),
        Some("bench") => bench::run(&rest),
        Some("help" | "--help" | "-h") => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Some(other) => {
            eprint!("xtask: no verb `{other}`\n{USAGE}");
            return ExitCode::from(2);
        }
        None => {
            eprint!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("xtask: {e:#}");
            ExitCode::FAILURE
        }
    }
}

//! `forkpoint completions`.

use clap::ValueEnum;
use forkpoint_model::Result;

use crate::app::App;
use crate::{codes, complete, exit, output};

/// Print the completions of a shell
///
/// bash: `forkpoint completions bash > ~/.local/share/bash-completion/completions/forkpoint`;
/// zsh: into a file `_forkpoint` in a directory of `$fpath`;
/// fish: `forkpoint completions fish > ~/.config/fish/completions/forkpoint.fish`.
///
/// What is printed asks `forkpoint` itself each time, which also completes the names of branches, attempts,
/// explorations and checkpoints, as they are then.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The shell
    #[arg(value_name = "SHELL")]
    shell: Which,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Which {
    Bash,
    Zsh,
    Fish,
}

/// Prints.
pub(crate) fn run(_app: &App, args: &Args) -> Result<u8> {
    let shell = complete::SHELLS[args.shell as usize];
    let text =
        complete::script(shell).map_err(|e| codes::INTERNAL.io("cannot write a script", e))?;
    output::print_bytes(&text)?;
    Ok(exit::DONE)
}

//! `forkpoint man`.

use clap::{Command, CommandFactory};
use clap_mangen::Man;
use forkpoint_model::Result;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::app::App;
use crate::{codes, exit, output};

/// Write the manual pages into a directory
///
/// One page for the command and one for each verb, for section 1: `forkpoint man ~/.local/share/man/man1`.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory; made if it is missing
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes.
pub(crate) fn run(app: &App, args: &Args) -> Result<u8> {
    let dir = app.cwd.join(&args.dir);
    let failed = |path: &Path, e| codes::OUTPUT.io(format!("cannot write {}", path.display()), e);
    std::fs::create_dir_all(&dir).map_err(|e| failed(&dir, e))?;
    let mut root = crate::args::Cli::command();
    root.build();
    let mut pages = Vec::new();
    collect(&root, &mut pages);
    for (name, command) in &pages {
        let mut page = Vec::new();
        let path = dir.join(format!("{name}.1"));
        let title = Man::new(command.clone()).title(name.to_uppercase());
        title.render(&mut page).map_err(|e| failed(&path, e))?;
        let written = std::fs::File::create(&path).and_then(|mut file| file.write_all(&page));
        written.map_err(|e| failed(&path, e))?;
    }
    output::print(&format!("{} pages in {}\n", pages.len(), dir.display()))?;
    Ok(exit::DONE)
}

/// A command and all below it, under the names that building the whole gave them.
fn collect(command: &Command, pages: &mut Vec<(String, Command)>) {
    let name = command.get_display_name().unwrap_or(command.get_name());
    pages.push((name.to_owned(), command.clone()));
    for verb in command.get_subcommands().filter(|c| c.get_name() != "help") {
        collect(verb, pages);
    }
}

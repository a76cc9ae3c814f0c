//! Standard output and standard error: one JSON document or lines for a person on the first, messages
//! on the second. A reader that has gone away ends the output quietly.

use forkpoint_explore::logs::printable;
use forkpoint_model::{Error, Result};
use serde::Serialize;
use std::io::{self, IsTerminal, Write};

use crate::codes;
use crate::style::Style;

/// Writes to standard output. A closed pipe is no error: whoever read it has seen enough.
pub(crate) fn print(text: &str) -> Result<()> {
    print_bytes(text.as_bytes())
}

/// As [`print()`], for text that may be any bytes.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(e) => Err(codes::OUTPUT.io("cannot write to standard output", e)),
    }
}

/// Writes what a branch wrote: as it is to a file or a program, and to a terminal without anything
/// that a terminal obeys.
pub(crate) fn print_foreign(bytes: &[u8]) -> Result<()> {
    if io::stdout().is_terminal() {
        print(&harmless(bytes))
    } else {
        print_bytes(bytes)
    }
}

fn harmless(bytes: &[u8]) -> String {
    let mut text = String::new();
    for part in bytes.split_inclusive(|&b| b == b'\n') {
        let line = part.strip_suffix(b"\n").unwrap_or(part);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        text.push_str(&printable(&String::from_utf8_lossy(line)));
        if part.ends_with(b"\n") {
            text.push('\n');
        }
    }
    text
}

/// Writes one JSON document.
pub(crate) fn print_json(document: &impl Serialize) -> Result<()> {
    let mut text = serde_json::to_string_pretty(document)
        .map_err(|e| codes::INTERNAL.io("cannot write JSON", e))?;
    text.push('\n');
    print(&text)
}

/// Writes a line to standard error; where even that fails there is nobody to tell.
pub(crate) fn say(line: &str) {
    writeln!(io::stderr().lock(), "{line}").unwrap_or(());
}

/// An error, as its two lines.
pub(crate) fn error_lines(error: &Error, style: Style) -> String {
    let head = style.red(&format!("error[{}]", error.code));
    let message = printable(&error.message);
    let hint = printable(&hint(error));
    format!("{head}: {message}\n{}: {hint}", style.bold("hint"))
}

/// What to do about an error: as it says itself, else as its code says.
fn hint(error: &Error) -> String {
    if !error.hint.is_empty() {
        return error.hint.clone();
    }
    if error.message.contains("No space left on device") {
        return "free space there: forkpoint abort what is not needed, forkpoint gc --all".into();
    }
    let by_code = match error.code.as_str() {
        "FP0001" => "forkpoint --help, or forkpoint VERB --help",
        "FP0101" => "set FORKPOINT_HOME to a directory of your own, on a local file system",
        "FP0203" | "FP0401" => "give an existing directory that you may read",
        "FP0411" => "give the path of a program that exists and may be executed inside the branch",
        _ => "",
    };
    match by_code {
        "" => format!(
            "docs/errors/{}.md says what it means and what to do",
            error.code
        ),
        text => text.into(),
    }
}

#[derive(Serialize)]
struct ErrorDocument {
    schema: &'static str,
    #[serde(flatten)]
    error: Error,
}

/// Tells of an error, and returns the exit status.
pub(crate) fn fail(error: &Error, json: bool) -> u8 {
    say(&error_lines(error, Style::of_stderr()));
    if json {
        let document = ErrorDocument {
            schema: "forkpoint.error/1",
            error: error.clone().hint(hint(error)),
        };
        // The error that counts has been told already.
        print_json(&document).unwrap_or(());
    }
    crate::exit::of_error(error.kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_two_lines_and_shows_no_control_characters() {
        let error = codes::USAGE.error("no \u{1b}[31mbranch").hint("look");
        assert_eq!(
            error_lines(&error, Style::PLAIN),
            "error[FP0001]: no branch\nhint: look"
        );
        assert_eq!(
            error_lines(&codes::USAGE.error("x"), Style::PLAIN),
            "error[FP0001]: x\nhint: forkpoint --help, or forkpoint VERB --help",
            "one without a hint of its own gets its kind's"
        );
    }

    #[test]
    fn what_a_branch_wrote_commands_no_terminal() {
        let written = b"a\x1b[2Jb\r\n\x1b]0;title\x07c\xff\n\x9b31mrest";
        let shown = harmless(written);
        assert_eq!(shown, "ab\nc\u{fffd}\n\u{fffd}31mrest");
    }

    #[test]
    fn the_json_of_an_error_has_the_four_fields() {
        let error = codes::USAGE.error("x").hint("y");
        let json = serde_json::to_value(ErrorDocument { schema: "s", error }).unwrap();
        assert_eq!(
            json,
            serde_json::json!({"schema": "s", "code": "FP0001", "kind": "invalid", "message": "x", "hint": "y"})
        );
    }
}

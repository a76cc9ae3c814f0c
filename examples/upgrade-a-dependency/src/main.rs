//! Reads headings, one on a line, and prints the column of each.
#![forbid(unsafe_code)]

use std::io::BufRead;

fn main() -> std::io::Result<()> {
    for line in std::io::stdin().lock().lines() {
        println!("{}", columns::column(&line?));
    }
    Ok(())
}

//! The view in an emulated terminal, at several sizes.

use super::*;
use forkpoint_explore::Reason;
use forkpoint_explore::backend::{Ended, Exit, Stream};
use forkpoint_model::ExplorationId;
use std::time::Duration;

fn size(n: u16) -> std::num::NonZeroU16 {
    n.try_into().unwrap()
}

struct Term {
    parser: vt100::Parser,
    screen: Screen,
}

impl Term {
    fn new(rows: u16, columns: u16) -> Self {
        Self {
            parser: vt100::Parser::new(size(rows), size(columns), 100),
            screen: Screen {
                state: State::default(),
                painter: Painter::new(Style::PLAIN),
            },
        }
    }

    fn tell(&mut self, progress: &Progress<'_>) {
        self.screen.state.on(progress, Instant::now());
    }

    fn begin(&mut self, attempts: u32) {
        let exploration = ExplorationId::from_bits(1);
        self.tell(&Progress::Begin {
            exploration,
            attempts,
            jobs: 2,
            strategy: "best-of-n",
        });
    }

    fn start(&mut self, index: u32, text: &str) {
        self.tell(&Progress::Started {
            index,
            command: "x",
        });
        self.tell(&Progress::Line {
            index: Some(index),
            stream: Stream::Stdout,
            text,
        });
    }

    fn draw(&mut self) -> Vec<String> {
        let (rows, columns) = self.parser.screen().size();
        let (rows, columns) = (usize::from(rows.get()), usize::from(columns.get()));
        let lines = frame::lines(
            &self.screen.state,
            Instant::now(),
            columns,
            rows,
            Style::PLAIN,
        );
        self.screen.painter.draw(&lines, columns);
        self.shown()
    }

    fn shown(&mut self) -> Vec<String> {
        let written = std::mem::take(&mut self.screen.painter.written);
        self.parser.process(&written);
        let all = self.parser.screen().contents();
        all.lines().map(str::to_owned).collect()
    }
}

fn exit(code: i32) -> Exit {
    Exit {
        ended: Ended::Code(code),
        wall: Duration::from_secs(61),
        cpu: Duration::from_millis(1500),
        peak_memory_bytes: 3 << 20,
        uncaptured: Vec::new(),
    }
}

#[test]
fn every_attempt_has_its_line_and_frames_replace_each_other() {
    let mut term = Term::new(24, 100);
    term.begin(3);
    term.start(0, "compiling");
    term.start(1, "linking");
    let shown = term.draw();
    assert!(
        shown[0].starts_with("0:00  0 of 3 done, 0 passed"),
        "{shown:?}"
    );
    assert!(
        shown[1].contains("running") && shown[1].ends_with("compiling"),
        "{shown:?}"
    );
    assert!(shown[3].contains("waiting"));
    term.tell(&Progress::Usage {
        index: 1,
        cpu: Duration::from_millis(2500),
        memory_bytes: 5 << 20,
    });
    let shown = term.draw();
    assert!(
        shown[2].contains("2.5s") && shown[2].contains("5.0 MiB"),
        "{shown:?}"
    );
    term.tell(&Progress::Ended {
        index: 0,
        exit: &exit(0),
    });
    term.tell(&Progress::Scored {
        index: 0,
        score: 2.5,
    });
    term.tell(&Progress::Out {
        index: 1,
        reason: Reason::FailedVerify,
        detail: None,
    });
    let shown = term.draw();
    assert_eq!(
        shown.len(),
        4,
        "nothing is left of the frame before: {shown:?}"
    );
    for part in ["passed", "1:01", "1.5s", "3.0 MiB", "2.5"] {
        assert!(shown[1].contains(part), "{part}: {shown:?}");
    }
    assert!(shown[2].contains("out") && shown[2].ends_with("failed verify"));
    term.screen.painter.above("note: kept");
    assert_eq!(term.draw()[0], "note: kept");
    term.screen.painter.clear();
    assert_eq!(term.shown(), ["note: kept"]);
}

#[test]
fn it_fits_at_every_size() {
    for (rows, columns) in [
        (24, 80),
        (10, 40),
        (5, 20),
        (3, 12),
        (2, 5),
        (1, 1),
        (50, 200),
    ] {
        let mut term = Term::new(rows, columns);
        term.begin(200);
        for i in 0..20 {
            term.start(i * 7, "\u{4f60}\u{597d} wide \u{1b}[31mtext that is much longer than any terminal is wide, really");
        }
        term.draw();
        let shown = term.draw();
        // More lines than rows would scroll, and leave a frame behind in the scrollback.
        term.parser.screen_mut().set_scrollback(100);
        assert_eq!(
            term.parser.screen().scrollback(),
            0,
            "{rows}x{columns}: {shown:?}"
        );
        assert!(
            shown.len() <= usize::from(rows),
            "{rows}x{columns}: {shown:?}"
        );
        if rows == 10 {
            assert!(shown.last().unwrap().contains("more: "), "{shown:?}");
            assert!(shown[1].contains("running"), "{shown:?}");
        }
    }
}

#[test]
fn a_changed_size_is_followed() {
    let mut term = Term::new(24, 100);
    term.begin(4);
    term.start(0, &"long ".repeat(30));
    term.draw();
    term.parser.screen_mut().set_size(size(12), size(140));
    let shown = term.draw();
    assert_eq!(shown.len(), 5, "{shown:?}");
    term.parser.screen_mut().set_size(size(24), size(50));
    let shown = term.draw();
    let heads = shown.iter().filter(|l| l.contains("of 4 done")).count();
    assert_eq!(heads, 1, "{shown:?}");
    assert!(shown.iter().all(|l| l.chars().count() < 50));
}

#[test]
fn hostile_output_commands_no_terminal_and_what_does_not_change_is_not_drawn() {
    let mut term = Term::new(24, 80);
    term.begin(1);
    term.start(0, "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31mred\u{202e}");
    term.draw();
    let (cells, title) = (
        term.parser.screen().contents(),
        term.parser.screen().alternate_screen(),
    );
    assert!(cells.contains("of 1 done") && !title);
    assert_eq!(
        term.parser.screen().cell(1, 1).unwrap().fgcolor(),
        vt100::Color::Default
    );
    let state = &term.screen.state;
    let lines = frame::lines(state, state.begun.unwrap(), 80, 24, Style::PLAIN);
    term.screen.painter.draw(&lines, 80);
    term.screen.painter.written.clear();
    term.screen.painter.draw(&lines, 80);
    assert!(term.screen.painter.written.is_empty());
}

#[test]
fn texts_are_cut_by_columns_and_not_by_letters() {
    assert_eq!(frame::fit("abc", 3), ("abc".into(), 3));
    assert_eq!(frame::fit("abcd", 3), ("ab…".into(), 3));
    assert_eq!(frame::fit("\u{4f60}\u{597d}", 3), ("\u{4f60}…".into(), 3));
    assert_eq!(frame::fit("\u{4f60}\u{597d}", 2), ("…".into(), 1));
    assert_eq!(frame::fit("x", 0), (String::new(), 0));
    assert_eq!(frame::clock(Duration::from_secs(3723)), "1:02:03");
}

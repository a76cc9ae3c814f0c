//! The page holds nothing that an attempt put there to be more than text.

use super::*;
use crate::report::{Changed, Reason, Span};
use forkpoint_model::{ExplorationId, WorldId};

fn report(text: &str) -> Report {
    let row = |index: u32| AttemptReport {
        index,
        name: (index == 0).then(|| "first".to_owned()),
        command: text.into(),
        params: [("p".to_owned(), text.to_owned())].into(),
        detail: Some(text.into()),
        reason: Reason::Outscored,
        passed: true,
        score: Some(f64::from(index) + 0.5),
        cpu_s: 1.5,
        wall_s: 2.0,
        peak_memory_bytes: 1 << 20,
        uncaptured: vec![text.into()],
        changed: Changed {
            files: 1,
            bytes: 100,
        },
        ..AttemptReport::default()
    };
    let span = |attempt, phase: &str, from_s, to_s| Span {
        attempt,
        phase: phase.into(),
        from_s,
        to_s,
    };
    serde_json::from_value::<Report>(serde_json::json!({
        "schema": "s", "exploration": ExplorationId::from_bits(1), "world": WorldId::from_bits(1), "base": text,
        "strategy": "best-of-n", "outcome": "committed", "winner": 1, "committed": true, "commit": null,
        "baseline": null, "preparation": null, "wall_s": 4.0, "notes": [text], "comparisons": [],
        "attempts": [row(0), row(1)],
        "timeline": [span(None, "prepare", 0.0, 1.0), span(Some(0), text, 1.0, 3.0), span(Some(1), "verify", 2.0, 4.0)],
    }))
    .unwrap()
}

const HOSTILE: &str = "</script></style></pre></title>--><script>alert(1)</script><img src=x onerror='a'>\"' onload=\"x\u{1b}[31m\u{0}\u{9b}\u{202e}&amp;";

#[test]
fn hostile_text_stays_text() {
    let page = page(&report(HOSTILE), &mut |_| Material {
        log: HOSTILE.repeat(3),
        verifier: HOSTILE.into(),
        patch: format!(
            "diff --git a/{HOSTILE} b/{HOSTILE}\nnew file {HOSTILE}\n@@ {HOSTILE} @@\n-{HOSTILE}\n+{HOSTILE}\n {HOSTILE}\n"
        ),
        cut: true,
        missing: Some(HOSTILE.into()),
    });
    for bad in [
        "<script",
        "</script",
        "<img",
        "onerror='",
        "onload=\"",
        "\u{1b}",
        "\u{0}",
        "\u{9b}",
        "\u{202e}",
    ] {
        assert!(!page.contains(bad), "{bad:?}");
    }
    assert_eq!(page.matches("<style>").count(), 1);
    assert_eq!(page.matches("</style>").count(), 1);
    assert!(page.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("default-src 'none'"));
    for outside in ["http://", "https://", "src=", "href=", "url(", "@import"] {
        assert!(
            !page
                .replace(&esc(HOSTILE), "")
                .replace("src=x", "")
                .contains(outside),
            "{outside}"
        );
    }
}

#[test]
fn changes_that_cannot_be_shown_are_said_to_be_missing() {
    let why = "FP0412: the delta is gone";
    let page = page(&report("plain"), &mut |_| Material {
        missing: Some(why.into()),
        ..Material::default()
    });
    assert!(page.contains(&format!("What it changed is not shown: {why}")));
}

#[test]
fn what_the_page_is_for_is_on_it() {
    let page = page(&report("plain"), &mut |_| Material {
        patch: "diff --git a/f b/f\n@@ -1 +1 @@\n-old\n+new\n".into(),
        ..Material::default()
    });
    for part in [
        "Timeline",
        "Scores",
        "Sizes of the changes",
        "processor time of the losers",
        "1.5 s",
        "<td class=\"d\">old</td><td class=\"a\">new</td>",
        "name=\"viewport\"",
        "prefers-color-scheme",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Every element that is opened is closed.
    for tag in [
        "details", "div", "table", "svg", "tr", "td", "dl", "ul", "main", "pre", "h2",
    ] {
        let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
        let opened = page
            .match_indices(&open)
            .filter(|(i, _)| !page[i + open.len()..].starts_with(|c: char| c.is_alphanumeric()))
            .count();
        assert_eq!(opened, page.matches(&close).count(), "{tag}");
    }
}

#[test]
fn a_report_without_anything_is_a_page() {
    let mut empty = report("x");
    empty.attempts.clear();
    empty.timeline.clear();
    empty.winner = None;
    empty.outcome = Outcome::NonePassed;
    assert!(page(&empty, &mut |_| Material::default()).contains("No attempt passed"));
}

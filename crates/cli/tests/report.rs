//! The report as a page, with the real binary and an attempt that tries to get out of it.

mod common;

use common::Lab;

#[test]
fn the_page_shows_what_changed_and_nothing_gets_out_of_its_text() {
    let lab = Lab::new(&[("a", "old\n")]);
    let hostile =
        "echo '</pre></script><script>alert(1)</script>'; echo '<img src=x onerror=alert(2)>' > a";
    lab.run(&[
        "explore",
        "--report",
        "../r.html",
        "--score",
        "wc -c < a",
        "--attempt",
        hostile,
        "--attempt",
        "echo new > a",
    ])
    .expect(0);
    let page = std::fs::read_to_string(lab.path("r.html")).unwrap();
    for bad in ["<script", "<img", "http://", "https://"] {
        assert!(!page.contains(bad), "{bad}");
    }
    for part in [
        "&lt;img src=x",
        "<td class=\"a\">new</td>",
        "<td class=\"d\">old</td>",
        "is committed",
    ] {
        assert!(page.contains(part), "{part}");
    }
    lab.run(&["report", "last", "../again.html"]).expect(0);
    let again = std::fs::read_to_string(lab.path("again.html")).unwrap();
    assert!(again.contains("alert(1)&lt;/script&gt;") && again.contains("Timeline"));
    lab.run(&["report", "last", "/nowhere/r.html"]).expect(125);
    lab.run(&["report", "x0none", "r.html"]).expect(2);
}

//! C-16: text from outside is cleaned before it is shown.

use longhaul_mcp::clean;

#[test]
fn hidden_characters_are_taken_out() {
    assert_eq!(clean("a\u{1b}[31mb\u{0}c\u{9b}d", 100), "a[31mbcd");
    assert_eq!(
        clean("pay\u{202e}exe\u{200b}\u{feff}\u{2066}.\u{ad}", 100),
        "payexe."
    );
    assert_eq!(clean("x\u{e0041}\u{e007f}y\u{fe0f}", 100), "xy");
    assert_eq!(clean("two\nlines\tand\r", 100), "two lines and");
}

#[test]
fn a_cut_is_marked_and_counted_in_characters() {
    assert_eq!(clean("ééééé", 5), "ééééé");
    assert_eq!(clean("éééééé", 5), "éééé…");
}

#[test]
fn a_stack_of_marks_is_no_higher_than_a_script_needs() {
    assert_eq!(
        clean("Vi\u{1ec7}t e\u{301}\u{323}", 100),
        "Vi\u{1ec7}t e\u{301}\u{323}"
    );
    let stack = format!("Z{}a\u{301}", "\u{300}\u{489}\u{20dd}".repeat(50));
    assert_eq!(clean(&stack, 100), "Z\u{300}\u{489}\u{20dd}\u{300}a\u{301}");
}

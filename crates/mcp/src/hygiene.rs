//! Text from outside made fit to be shown: what comes from a tool or a client may reach a terminal or a model
//! (C-16). It never judges what the text says.

/// `text` without control, escape, bidirectional, zero-width and tag characters, and at most `chars_max`
/// characters long; a cut ends in `…`. Of marks that stand on one character, at most four are kept.
pub fn clean(text: &str, chars_max: usize) -> String {
    let mut out = String::new();
    let mut room = chars_max;
    let mut marks = 0;
    for kept in text
        .chars()
        .map(|c| if c == '\t' || c == '\n' { ' ' } else { c })
        .filter(|c| !is_hidden(*c))
    {
        marks = if is_mark(kept) { marks + 1 } else { 0 };
        if marks > MARKS_MAX {
            continue;
        }
        if room == 0 {
            out.pop();
            out.push('…');
            break;
        }
        room -= 1;
        out.push(kept);
    }
    out
}

/// More marks than any script puts on one character; a stack of them is drawn over what is around it.
const MARKS_MAX: usize = 4;

/// Marks that are drawn over, under or around the character before them and can be stacked.
fn is_mark(c: char) -> bool {
    matches!(c,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}'
        | '\u{64b}'..='\u{65f}' | '\u{6d6}'..='\u{6dc}' | '\u{e34}'..='\u{e3a}' | '\u{e47}'..='\u{e4e}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{302a}'..='\u{302f}'
        | '\u{3099}' | '\u{309a}' | '\u{a66f}'..='\u{a672}' | '\u{fe20}'..='\u{fe2f}')
}

/// Characters that change how other text is shown, or are not shown at all.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

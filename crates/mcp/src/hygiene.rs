//! Text from outside made fit to be shown: what comes from a tool or a client may reach a terminal or a model
//! (C-16). It never judges what the text says.

/// `text` without control, escape, bidirectional, zero-width and tag characters, and at most `chars_max`
/// characters long; a cut ends in `…`.
pub fn clean(text: &str, chars_max: usize) -> String {
    let mut out = String::new();
    let mut room = chars_max;
    for kept in text
        .chars()
        .map(|c| if c == '\t' || c == '\n' { ' ' } else { c })
        .filter(|c| !is_hidden(*c))
    {
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

/// Characters that change how other text is shown, or are not shown at all.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

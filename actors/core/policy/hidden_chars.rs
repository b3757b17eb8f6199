//! Characters that a terminal does not show, and where a text needs them. Ranges are those of Unicode 16.

/// Whether the character is invisible, or changes the order or the line breaks of the text. Newline and tab are not
/// hidden.
pub(super) const fn is_hidden(c: char) -> bool {
    is_control(c) || is_default_ignorable(c) || is_format(c)
}

/// Whether the text has a hidden character. Plain ASCII is passed at the speed of memory.
pub(super) fn has_hidden(text: &str) -> bool {
    let is_plain = |byte: &u8| matches!(byte, b'\t' | b'\n' | b' '..=b'~');
    // Without a branch for each byte, so that the compiler makes vectors of it.
    let is_plain_text = |part: &[u8]| part.iter().fold(true, |plain, byte| plain & is_plain(byte));
    !text.as_bytes().chunks(256).all(is_plain_text) && text.contains(is_hidden)
}

/// Controls (general category Cc), newline and tab excepted.
const fn is_control(c: char) -> bool {
    matches!(c, '\0'..='\u{8}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}')
}

/// `Default_Ignorable_Code_Point` of `DerivedCoreProperties.txt`: joiners, zero-width spaces, bidirectional controls,
/// fillers, variation selectors, tags, byte order marks, soft hyphens.
const fn is_default_ignorable(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Other characters without a glyph: line and paragraph separators (Zl, Zp), interlinear annotations and hieroglyph
/// layout (Cf).
const fn is_format(c: char) -> bool {
    matches!(c, '\u{2028}'..='\u{2029}' | '\u{fff9}'..='\u{fffb}' | '\u{13430}'..='\u{13440}')
}

/// Whether ordinary text has the hidden character `c` directly after `before`. At most one follows a letter; at most a
/// variation selector and a joiner follow an emoji.
pub(super) const fn belongs_to(c: char, before: char) -> bool {
    match c {
        '\u{200c}' => is_of_joining_script(before),
        '\u{200d}' => {
            is_of_joining_script(before) || is_emoji(before) || before == '\u{fe0f}' || is_skin_tone(before)
        }
        '\u{fe0e}' | '\u{fe0f}' => is_emoji(before) || matches!(before, '#' | '*' | '0'..='9'),
        '\u{180b}'..='\u{180f}' => matches!(before, '\u{1820}'..='\u{18aa}'),
        '\u{fe00}'..='\u{fe02}' | '\u{e0100}'..='\u{e01ef}' => is_ideograph(before),
        _ => false,
    }
}

/// Scripts whose spelling needs joiners: Arabic and Persian, Syriac, N'Ko, those of India, Myanmar, Khmer, Mongolian.
const fn is_of_joining_script(c: char) -> bool {
    matches!(c,
        '\u{620}'..='\u{8ff}' | '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17b3}'
        | '\u{17b6}'..='\u{17d3}' | '\u{1820}'..='\u{18aa}' | '\u{a8e0}'..='\u{a8ff}' | '\u{aa60}'..='\u{aa7f}'
        | '\u{fb50}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}' | '\u{11000}'..='\u{11fff}')
}

/// The blocks with all of `Emoji` in `emoji-data.txt` except digits, `#` and `*`.
const fn is_emoji(c: char) -> bool {
    matches!(c,
        '\u{a9}' | '\u{ae}' | '\u{203c}' | '\u{2049}' | '\u{2122}' | '\u{2139}' | '\u{2190}'..='\u{21ff}'
        | '\u{2300}'..='\u{23ff}' | '\u{24c2}' | '\u{25a0}'..='\u{27bf}' | '\u{2900}'..='\u{297f}'
        | '\u{2b00}'..='\u{2bff}' | '\u{3030}' | '\u{303d}' | '\u{3297}' | '\u{3299}'
        | '\u{1f000}'..='\u{1f3fa}' | '\u{1f400}'..='\u{1faff}')
}

const fn is_skin_tone(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// Ideographs: variation selectors choose their forms, as in Japanese names.
const fn is_ideograph(c: char) -> bool {
    matches!(c, '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

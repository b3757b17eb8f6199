//! Markdown of a model as the HTML that Telegram takes: code, bold and links. All else stays as it is written. Pure.

/// The HTML of a text.
pub(super) fn html(text: &str) -> String {
    let mut html = String::with_capacity(text.len() + text.len() / 8);
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if let Some((fence, language)) = opening_fence(line) {
            let mut code: Vec<&str> = Vec::new();
            for line in lines.by_ref() {
                if is_closing(line, fence) {
                    break;
                }
                code.push(line);
            }
            html.push_str(&code_block(language, &code.join("\n")));
        } else {
            push_inline(&mut html, line);
        }
        if lines.peek().is_some() {
            html.push('\n');
        }
    }
    html
}

/// The marks of a fence that this line opens, and the language behind it.
fn opening_fence(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let letter = line.chars().next().filter(|letter| matches!(letter, '`' | '~'))?;
    let rest = line.trim_start_matches(letter);
    let fence = &line[..line.len() - rest.len()];
    (fence.len() >= 3 && !rest.contains('`')).then(|| (fence, rest.trim()))
}

fn is_closing(line: &str, fence: &str) -> bool {
    let line = line.trim();
    line.len() >= fence.len() && line.starts_with(fence) && line.trim_start_matches(&fence[..1]).is_empty()
}

fn code_block(language: &str, code: &str) -> String {
    let language: String =
        language.chars().take_while(|letter| letter.is_alphanumeric() || "+#-_".contains(*letter)).collect();
    match language.as_str() {
        "" => format!("<pre>{}</pre>", escaped(code)),
        language => {
            format!("<pre><code class=\"language-{}\">{}</code></pre>", escaped(language), escaped(code))
        }
    }
}

/// A line outside of fences.
fn push_inline(html: &mut String, line: &str) {
    let mut rest = line;
    while let Some(at) = rest.find(['`', '*']) {
        html.push_str(&escaped(&rest[..at]));
        rest = &rest[at..];
        let span = span(rest, "`").map(|(text, end)| (format!("<code>{}</code>", escaped(text)), end));
        let span = span.or_else(|| {
            let (text, end) = self::span(rest, "**").filter(|(text, _)| text.trim() == *text)?;
            Some((format!("<b>{}</b>", escaped(text)), end))
        });
        if let Some((marked, end)) = span {
            html.push_str(&marked);
            rest = &rest[end..];
        } else {
            let mark = rest.len() - rest.trim_start_matches(&rest[..1]).len();
            html.push_str(&rest[..mark]);
            rest = &rest[mark..];
        }
    }
    html.push_str(&escaped(rest));
}

/// What stands between two marks at the beginning of a text, and where it ends; `None` if there is nothing.
fn span<'a>(text: &'a str, mark: &str) -> Option<(&'a str, usize)> {
    let inner = text.strip_prefix(mark)?;
    let end = inner.find(mark)?;
    (end > 0).then(|| (&inner[..end], end + 2 * mark.len()))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markdown_becomes_html_that_is_well_formed() {
        let check = |text: &str, expect: &str| assert_eq!(html(text), expect, "{text}");
        check("a < b & c", "a &lt; b &amp; c");
        check("use `a<b>` and **all of it**", "use <code>a&lt;b&gt;</code> and <b>all of it</b>");
        check("2 * 3 ** 4 and ` alone", "2 * 3 ** 4 and ` alone");
        check(
            "```rust\nlet x = \"<\";\n```\nend",
            "<pre><code class=\"language-rust\">let x = &quot;&lt;&quot;;</code></pre>\nend",
        );
        check("~~~\na\n~~~", "<pre>a</pre>");
        check("```\nopen\n`` inner", "<pre>open\n`` inner</pre>");
        check("``` `x`\ny", "``` <code>x</code>\ny");
        check("a\n\nb", "a\n\nb");
        check("", "");
    }

    #[test]
    fn any_text_is_escaped() {
        for text in ["*`*`*", "`**`", "***", "**a`b**c`", "```", "`````\n````\n`````", "ä**ö**`ü`"] {
            let html = html(text);
            let count = |tag: &str| html.matches(tag).count();
            assert_eq!(count("<code>"), count("</code>"), "{text}: {html}");
            assert_eq!(count("<b>"), count("</b>"), "{text}: {html}");
            assert_eq!(count("<pre>"), count("</pre>"), "{text}: {html}");
        }
    }
}

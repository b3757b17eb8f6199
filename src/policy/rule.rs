//! The operator's rules: `TOOL` or `TOOL(PATTERN)`.

use std::{fmt, str::FromStr, sync::Arc};

/// Longer rules are refused, in bytes.
const MAX_RULE_BYTES: usize = 8_192;

/// A rule of the operator. `*` matches any text, also an empty one; `\` takes the meaning of the next character away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    text: Arc<str>,
    tool: Pattern,
    argument: Option<Pattern>,
}

/// Why a text is no rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{rule}` is no rule: {problem}; {remedy}")]
pub struct RuleError {
    rule: String,
    problem: &'static str,
    remedy: &'static str,
}

impl Rule {
    /// The rule as it was written.
    pub fn text(&self) -> &Arc<str> {
        &self.text
    }

    /// True if the rule is about this tool.
    pub(super) fn is_about(&self, tool: &str) -> bool {
        self.tool.matches(tool)
    }

    /// True if the rule is about all calls of its tools.
    pub(super) fn is_for_all_arguments(&self) -> bool {
        self.argument.is_none()
    }

    /// True if the rule matches an argument; it does for any if it has no pattern.
    pub(super) fn matches_argument(&self, argument: &str) -> bool {
        self.argument.as_ref().is_none_or(|pattern| pattern.matches(argument))
    }

    /// The rule that matches only this argument of this tool; `None` if it were too long.
    pub(super) fn exact(tool: &str, argument: &str) -> Option<Self> {
        let mut text = format!("{tool}(");
        for c in argument.chars() {
            if matches!(c, '*' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
        text.push(')');
        text.parse().ok()
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        const FORM: &str = "write TOOL or TOOL(PATTERN), like \"shell(git push *)\"";
        let error = |problem, remedy| {
            let rule = text.chars().take(80).collect();
            Err(RuleError { rule, problem, remedy })
        };
        if text.len() > MAX_RULE_BYTES {
            return error("it has more than 8,192 bytes", "shorten it with `*`");
        }
        let (tool, argument) = match text.split_once('(') {
            Some((tool, rest)) => match rest.strip_suffix(')') {
                Some(argument) => (tool, Some(argument)),
                None => return error("the closing `)` at its end is missing", FORM),
            },
            None => (text, None),
        };
        if tool.is_empty() {
            return error("it names no tool", FORM);
        }
        if !tool.chars().all(|c| c.is_ascii_alphanumeric() || "_-.:*/".contains(c)) {
            return error(
                "the name of its tool has other characters than letters, digits, `_`, `-`, `.` and `*`",
                FORM,
            );
        }
        if argument == Some("") {
            return error("its pattern is empty", "leave the `()` out to match every call of the tool");
        }
        let Some(argument) = argument.map(Pattern::new).transpose().ok() else {
            return error("a `\\` stands at its end", "write `\\\\` for the character itself");
        };
        Ok(Self { text: text.into(), tool: Pattern::literal_with_stars(tool), argument })
    }
}

/// A text with wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    /// The texts between the wildcards.
    parts: Vec<String>,
}

impl Pattern {
    fn new(text: &str) -> Result<Self, ()> {
        let mut parts = vec![String::new()];
        let mut rest = text.chars();
        while let Some(c) = rest.next() {
            let Some(part) = parts.last_mut() else { return Err(()) };
            match c {
                '*' => parts.push(String::new()),
                '\\' => part.push(rest.next().ok_or(())?),
                c => part.push(c),
            }
        }
        Ok(Self { parts })
    }

    fn literal_with_stars(text: &str) -> Self {
        Self { parts: text.split('*').map(str::to_owned).collect() }
    }

    /// Takes time in proportion to both lengths: each part is searched once, from where the one before it ends.
    fn matches(&self, text: &str) -> bool {
        let [first, middle @ .., last] = &self.parts[..] else {
            return self.parts.iter().all(|part| part == text);
        };
        let Some(rest) = text.strip_prefix(first.as_str()) else { return false };
        let Some(mut rest) = rest.strip_suffix(last.as_str()) else { return false };
        middle.iter().all(|part| match rest.find(part.as_str()) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Rule;

    #[test]
    fn a_rule_matches_a_tool_and_an_argument() {
        let check = |rule: &str, tool: &str, argument: &str, expected: bool| {
            let parsed: Rule = rule.parse().expect("a rule");
            let is_match = parsed.is_about(tool) && parsed.matches_argument(argument);
            assert_eq!(is_match, expected, "{rule} {tool} {argument}");
        };
        check("shell", "shell", "anything", true);
        check("shell", "shell2", "", false);
        check("mcp_*", "mcp_files", "x", true);
        check("*", "any", "x", true);
        check("shell(git push *)", "shell", "git push origin", true);
        check("shell(git push *)", "shell", "git push", false);
        check("shell(git push*)", "shell", "git push", true);
        check("shell(git * main)", "shell", "git push origin main", true);
        check("shell(a*a)", "shell", "a", false);
        check("shell(*b*)", "shell", "abc", true);
        check("shell(*b*b*)", "shell", "abc", false);
        check(r"shell(rm \*)", "shell", "rm *", true);
        check(r"shell(rm \*)", "shell", "rm x", false);
        check("shell(f(x))", "shell", "f(x)", true);
    }

    #[test]
    fn an_exact_rule_matches_only_its_argument() {
        for argument in ["rm -rf *", r"echo \n", "git commit -m 'a (b)'", "x\ny"] {
            let rule = Rule::exact("shell", argument).expect("a rule");
            assert!(rule.matches_argument(argument), "{rule}");
            assert!(!rule.matches_argument(&format!("{argument} x")), "{rule}");
            assert_eq!(rule.text().parse(), Ok(rule.clone()));
        }
        assert_eq!(Rule::exact("shell", &"x".repeat(9_000)), None);
    }

    #[test]
    fn an_error_names_the_rule_and_the_remedy() {
        let check = |rule: &str, expected: &str| {
            let error = rule.parse::<Rule>().expect_err(rule).to_string();
            assert!(error.contains(expected) && error.contains("; "), "{error}");
        };
        check("", "`` is no rule: it names no tool");
        check("(x)", "it names no tool");
        check("shell(x", "`shell(x` is no rule: the closing `)` at its end is missing");
        check("shell()", "its pattern is empty");
        check("she ll", "other characters");
        check(r"shell(x\)", "a `\\` stands at its end");
        check(&"x".repeat(9_000), "more than 8,192 bytes");
    }
}

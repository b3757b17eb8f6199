//! Templates of texts, in the language of Jinja. A template is the operator's, and a sender fills it: the
//! work and the memory of a rendering are bounded.

use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, value::Value};

use crate::excerpt::first_chars;

/// Work of one rendering: about as many instructions, or 64 bytes of data each.
const FUEL: u64 = 50_000;
/// Most characters of a template's part in a message.
const MAX_PLACE_CHARS: usize = 80;

/// Checks that a text is a template.
pub(crate) fn check(source: &str) -> Result<(), String> {
    environment().template_from_str(source).map(drop).map_err(|error| explain(&error, source))
}

/// Fills a template. The error names the part of it that fails.
pub(crate) fn fill(source: &str, values: &Value) -> Result<String, String> {
    let environment = environment();
    let rendered = environment.template_from_str(source).and_then(|template| template.render(values));
    rendered.map_err(|error| explain(&error, source))
}

fn environment<'source>() -> Environment<'source> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    // A name that is wrong must not become an empty text.
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    environment.set_debug(true);
    environment
}

fn explain(error: &Error, source: &str) -> String {
    if error.kind() == ErrorKind::OutOfFuel {
        return "is too much work for one text; make the template do less".to_owned();
    }
    let kind = error.kind().to_string();
    let what = error.detail().map_or_else(|| kind.clone(), |detail| format!("{kind}: {detail}"));
    match error.range().and_then(|range| source.get(range)) {
        Some(place) => format!("{what}, at `{}`", first_chars(place, MAX_PLACE_CHARS)),
        None => what,
    }
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn work_and_memory_are_bounded() {
        let check = |source: &str| {
            let error = fill(source, &context! { x => 1 }).unwrap_err();
            assert!(error.contains("too much work"), "{source}: {error}");
        };
        check("{% for a in range(9999) %}{% for b in range(9999) %}x{% endfor %}{% endfor %}");
        check("{{ 'x' * 100000000 }}");
        check("{% set ns = 'xxxxxxxxxxxxxxxx' %}{% for a in range(9999) %}{{ ns * 1000 }}{% endfor %}");
    }

    #[test]
    fn mistakes_are_found_before_a_template_is_filled() {
        let check = |source: &str, expect: Result<(), &str>| match (check(source), expect) {
            (Ok(()), Ok(())) => {}
            (Err(error), Err(part)) => assert!(error.contains(part), "{error}"),
            (found, expect) => panic!("{source}: expected {expect:?}, got {found:?}"),
        };
        check("plain", Ok(()));
        check("{{ a.b }}", Ok(()));
        check("{{ a.b ", Err("syntax error"));
        check("{% for x in %}", Err("syntax error"));
    }
}

//! Text templates: parsing, filters, and rendering with the values of a [`ScriptTurn`], such as results of calls.

use std::borrow::Cow;

use serde_json::Value;

use crate::rehearsal::{RawContent, ScriptTurn, call_id};

/// A text with placeholders, which are filled when the answer is rendered.
#[derive(Debug, Clone)]
pub(crate) struct Template(Vec<TemplatePiece>);

#[derive(Debug, Clone)]
enum TemplatePiece {
    Text(String),
    Placeholder { source: ValueSource, filters: Vec<TemplateFilter> },
}

/// The source of a placeholder's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// `{{user}}`
    User,
    /// `{{step}}`
    Step,
    /// `{{open}}`: two literal braces.
    Open,
    /// `{{result:…}}`
    Result {
        /// The step of the call, and its position in that step, both counted from 1; `None` means the newest result.
        call: Option<(u64, u64)>,
        /// A JSON pointer into the result; `None` takes the raw text.
        pointer: Option<String>,
    },
}

#[derive(Debug, Clone)]
enum TemplateFilter {
    Lines,
    Count,
    Trim,
    First(usize),
    Join(String),
    Json,
}

/// An invalid placeholder: the problem and the remedy.
pub(super) type TemplateError = (String, &'static str);

const SOURCES: &str = "write `user`, `step`, `open`, `result:last` or `result:<step>.<n>`, each result perhaps with a JSON pointer such as `result:1.1#/stdout`; for two plain braces write `{{open}}`";
const FILTERS: &str = "use `lines`, `count`, `trim`, `first:<number>`, `join:<text>` or `json`";

impl Template {
    pub(super) fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let Some((placeholder, next)) = after.split_once("}}") else {
                let problem = format!("the template `{{{{{after}` is not closed");
                return Err((problem, "close it with `}}`; for two plain braces write `{{open}}`"));
            };
            if !before.is_empty() {
                pieces.push(TemplatePiece::Text(before.into()));
            }
            pieces.push(parse_placeholder(placeholder)?);
            rest = next;
        }
        if !rest.is_empty() {
            pieces.push(TemplatePiece::Text(rest.into()));
        }
        Ok(Self(pieces))
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = &ValueSource> {
        self.0.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Placeholder { source, .. } => Some(source),
        })
    }

    /// Fills the placeholders. A missing value is replaced by a note in parentheses.
    pub(in crate::rehearsal) fn render(&self, turn: &ScriptTurn<'_, '_>) -> String {
        let mut text = String::new();
        for piece in &self.0 {
            match piece {
                TemplatePiece::Text(plain) => text.push_str(plain),
                TemplatePiece::Placeholder { source, filters } => match resolve(source, turn) {
                    Ok(found) => text.push_str(&apply_filters(found, filters).into_text()),
                    Err(missing) => text.push_str(&missing),
                },
            }
        }
        text
    }
}

fn parse_placeholder(placeholder: &str) -> Result<TemplatePiece, TemplateError> {
    let mut parts = placeholder.split('|');
    let name = parts.next().unwrap_or_default().trim();
    let source = parse_source(name)
        .ok_or_else(|| (format!("the template `{{{{{placeholder}}}}}` is unknown"), SOURCES))?;
    let filters = parts.map(|part| {
        parse_filter(part).ok_or_else(|| {
            (format!("the filter `{}` in `{{{{{placeholder}}}}}` is unknown", part.trim()), FILTERS)
        })
    });
    Ok(TemplatePiece::Placeholder { source, filters: filters.collect::<Result<_, _>>()? })
}

fn parse_source(name: &str) -> Option<ValueSource> {
    match name {
        "user" => return Some(ValueSource::User),
        "step" => return Some(ValueSource::Step),
        "open" => return Some(ValueSource::Open),
        _ => {}
    }
    let result = name.strip_prefix("result:")?;
    let (result, pointer) = match result.split_once('#') {
        Some((_, pointer)) if !pointer.is_empty() && !pointer.starts_with('/') => return None,
        Some((result, pointer)) => (result, Some(pointer.to_owned())),
        None => (result, None),
    };
    let call = match result.split_once('.') {
        Some((step, n)) => Some((step.parse().ok()?, n.parse().ok()?)),
        None if result == "last" => None,
        None => return None,
    };
    Some(ValueSource::Result { call, pointer })
}

fn parse_filter(part: &str) -> Option<TemplateFilter> {
    match part.trim_start().split_once(':') {
        None => match part.trim() {
            "lines" => Some(TemplateFilter::Lines),
            "count" => Some(TemplateFilter::Count),
            "trim" => Some(TemplateFilter::Trim),
            "json" => Some(TemplateFilter::Json),
            _ => None,
        },
        Some(("first", n)) => n.trim().parse().ok().map(TemplateFilter::First),
        Some(("join", text)) => Some(TemplateFilter::Join(text.into())),
        Some(_) => None,
    }
}

/// A value between filters.
enum FilterValue<'a> {
    Text(Cow<'a, str>),
    List(Vec<String>),
}

impl FilterValue<'_> {
    fn into_text(self) -> String {
        match self {
            FilterValue::Text(text) => text.into_owned(),
            FilterValue::List(items) => items.join("\n"),
        }
    }
}

fn resolve<'a>(source: &ValueSource, turn: &'a ScriptTurn<'_, '_>) -> Result<FilterValue<'a>, String> {
    let (call, pointer) = match source {
        ValueSource::User => return Ok(FilterValue::Text(turn.user.text())),
        ValueSource::Step => return Ok(FilterValue::Text(turn.step().to_string().into())),
        ValueSource::Open => return Ok(FilterValue::Text("{{".into())),
        ValueSource::Result { call, pointer } => (call, pointer),
    };
    let (found, name) = match call {
        None => (turn.last_result(), "last".to_owned()),
        Some((step, n)) => (turn.result(&call_id(*step, *n)), format!("{step}.{n}")),
    };
    let found = found.map(RawContent::text);
    let text = found.ok_or_else(|| format!("(rehearsal: the request has no result {name})"))?;
    let Some(pointer) = pointer else { return Ok(FilterValue::Text(text)) };
    let json = serde_json::from_str::<Value>(&text).ok();
    match json.as_ref().and_then(|json| json.pointer(pointer)) {
        None => Err(format!("(rehearsal: result {name} has no {pointer}; it says: {text})")),
        Some(Value::Array(items)) => Ok(FilterValue::List(items.iter().map(plain_text).collect())),
        Some(found) => Ok(FilterValue::Text(plain_text(found).into())),
    }
}

/// A string unchanged, any other value as JSON.
fn plain_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn apply_filters<'a>(mut value: FilterValue<'a>, filters: &[TemplateFilter]) -> FilterValue<'a> {
    for filter in filters {
        value = filter.apply(value);
    }
    value
}

impl TemplateFilter {
    fn apply<'a>(&self, value: FilterValue<'a>) -> FilterValue<'a> {
        match (self, value) {
            (Self::Lines, FilterValue::Text(text)) => FilterValue::List(
                text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect(),
            ),
            (Self::Count, FilterValue::Text(text)) => {
                FilterValue::Text(text.chars().count().to_string().into())
            }
            (Self::Count, FilterValue::List(items)) => FilterValue::Text(items.len().to_string().into()),
            (Self::Trim, FilterValue::Text(text)) => FilterValue::Text(text.trim().to_owned().into()),
            (Self::Trim, FilterValue::List(items)) => {
                FilterValue::List(items.iter().map(|item| item.trim().to_owned()).collect())
            }
            (Self::First(n), FilterValue::Text(text)) => FilterValue::Text(text.chars().take(*n).collect()),
            (Self::First(n), FilterValue::List(mut items)) => {
                items.truncate(*n);
                FilterValue::List(items)
            }
            (Self::Join(between), FilterValue::List(items)) => FilterValue::Text(items.join(between).into()),
            (Self::Json, FilterValue::Text(text)) => {
                FilterValue::Text(Value::from(text.into_owned()).to_string().into())
            }
            (Self::Json, FilterValue::List(items)) => {
                FilterValue::Text(Value::from(items).to_string().into())
            }
            (Self::Lines, list @ FilterValue::List(_)) => list,
            (Self::Join(_), text @ FilterValue::Text(_)) => text,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::to_raw_value;

    use super::*;
    use crate::rehearsal::{BorrowedText, RequestMessage};

    #[track_caller]
    fn check(template: &str, expected: &str) {
        let result = r#"{"stdout":"b.txt\n\n  a.txt\n","exit_code":0,"all":["x","y",3]}"#;
        let texts = ["look around", result, "wrote \"a\"\n"].map(|text| to_raw_value(text).unwrap());
        let [user, first, second] = texts.each_ref().map(|text| RawContent::of(Some(text)).unwrap());
        let id = |id: &'static str| BorrowedText(id.into());
        let after = [
            RequestMessage::Assistant(RawContent::default(), vec![id("rh_6_1")]),
            RequestMessage::Tool(id("rh_1_1"), first),
            RequestMessage::Tool(id("rh_1_2"), second),
        ];
        let turn = ScriptTurn { user: &user, after: &after };
        assert_eq!(Template::parse(template).unwrap().render(&turn), expected, "{template}");
    }

    #[test]
    fn sources_and_pointers() {
        check("no holes } {", "no holes } {");
        check("{{user}}, step {{ step }}", "look around, step 7");
        check("{{open}}.Names}}", "{{.Names}}");
        check("{{result:last}}", "wrote \"a\"\n");
        check("{{result:1.1#/exit_code}}", "0");
        check("{{result:1.1#/all}}", "x\ny\n3");
        check(
            "{{result:1.1#}}",
            "{\"stdout\":\"b.txt\\n\\n  a.txt\\n\",\"exit_code\":0,\"all\":[\"x\",\"y\",3]}",
        );
    }

    #[test]
    fn filters() {
        check("{{result:1.1#/stdout | lines | count}}", "2");
        check("{{result:1.1#/stdout | lines | trim | join:, }}", "b.txt, a.txt");
        check("{{result:1.1#/stdout|lines|first:1}}", "b.txt");
        check("{{result:1.1#/all | join:+}}", "x+y+3");
        check("{{result:1.2 | trim | json}}", r#""wrote \"a\"""#);
        check("{{result:1.1#/all | lines | json}}", r#"["x","y","3"]"#);
        check("{{user | first:4}}{{user | count}}", "look11");
        check("{{user | join:,}}", "look around");
    }

    #[test]
    fn what_is_missing_is_named_in_its_place() {
        check("<{{result:9.9 | count}}>", "<(rehearsal: the request has no result 9.9)>");
        check("<{{result:1.2#/stdout}}>", "<(rehearsal: result 1.2 has no /stdout; it says: wrote \"a\"\n)>");
    }

    #[test]
    fn what_is_unknown_is_refused() {
        let check = |template: &str, problem: &str| {
            let (found, remedy) = Template::parse(template).unwrap_err();
            assert_eq!(found, problem);
            assert!(!remedy.is_empty());
        };
        check("{{usr}}", "the template `{{usr}}` is unknown");
        check("{{result:first}}", "the template `{{result:first}}` is unknown");
        check("{{result:1.1#stdout}}", "the template `{{result:1.1#stdout}}` is unknown");
        check("{{user | upper}}", "the filter `upper` in `{{user | upper}}` is unknown");
        check("{{user | first:x}}", "the filter `first:x` in `{{user | first:x}}` is unknown");
        check("a {{user", "the template `{{user` is not closed");
    }
}

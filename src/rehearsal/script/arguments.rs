//! Templates of a call's arguments.

use serde_json::{Map, Value};

use super::template::{Template, TemplateError, TemplateValues, ValueSource};

/// The arguments of a call: JSON with templates in its strings.
#[derive(Debug, Clone)]
pub(crate) struct ArgumentsTemplate(ArgumentNode);

#[derive(Debug, Clone)]
enum ArgumentNode {
    /// A value without templates.
    Plain(Value),
    Text(Template),
    List(Vec<ArgumentNode>),
    Map(Vec<(String, ArgumentNode)>),
}

impl ArgumentsTemplate {
    pub(super) fn compile(value: Value) -> Result<Self, TemplateError> {
        // A bare string is the raw text of the arguments, so it is a template even without placeholders.
        if let Value::String(text) = &value {
            return Ok(Self(ArgumentNode::Text(Template::parse(text)?)));
        }
        compile_node(value).map(Self)
    }

    pub(super) fn sources(&self) -> Vec<&ValueSource> {
        let mut found = Vec::new();
        self.0.collect_sources(&mut found);
        found
    }

    /// The argument text that the model sends.
    pub(in crate::rehearsal) fn render(&self, results: &impl TemplateValues) -> String {
        match &self.0 {
            ArgumentNode::Text(raw) => raw.render(results),
            node @ (ArgumentNode::Plain(_) | ArgumentNode::List(_) | ArgumentNode::Map(_)) => {
                node.fill(results).to_string()
            }
        }
    }
}

fn compile_node(value: Value) -> Result<ArgumentNode, TemplateError> {
    match value {
        Value::String(text) => {
            let template = Template::parse(&text)?;
            Ok(if template.is_plain() {
                ArgumentNode::Plain(Value::String(text))
            } else {
                ArgumentNode::Text(template)
            })
        }
        Value::Array(items) => {
            let nodes = items.iter().cloned().map(compile_node).collect::<Result<Vec<_>, _>>()?;
            Ok(if nodes.iter().all(ArgumentNode::is_plain) {
                ArgumentNode::Plain(Value::Array(items))
            } else {
                ArgumentNode::List(nodes)
            })
        }
        Value::Object(fields) => {
            let nodes = fields.iter().map(|(name, value)| Ok((name.clone(), compile_node(value.clone())?)));
            let nodes = nodes.collect::<Result<Vec<_>, TemplateError>>()?;
            Ok(if nodes.iter().all(|(_, node)| node.is_plain()) {
                ArgumentNode::Plain(Value::Object(fields))
            } else {
                ArgumentNode::Map(nodes)
            })
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Ok(ArgumentNode::Plain(plain)),
    }
}

impl ArgumentNode {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn collect_sources<'a>(&'a self, found: &mut Vec<&'a ValueSource>) {
        match self {
            Self::Plain(_) => {}
            Self::Text(template) => found.extend(template.sources()),
            Self::List(nodes) => nodes.iter().for_each(|node| node.collect_sources(found)),
            Self::Map(nodes) => nodes.iter().for_each(|(_, node)| node.collect_sources(found)),
        }
    }

    fn fill(&self, results: &impl TemplateValues) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Text(template) => Value::String(template.render(results)),
            Self::List(nodes) => Value::Array(nodes.iter().map(|node| node.fill(results)).collect()),
            Self::Map(nodes) => {
                let fields = nodes.iter().map(|(name, node)| (name.clone(), node.fill(results)));
                Value::Object(fields.collect::<Map<_, _>>())
            }
        }
    }
}

use serde_json::{Map, Value};

use super::template::{Misread, Results, Source, Template};

/// The arguments of a call: JSON whose strings may have holes.
#[derive(Debug, Clone)]
pub(crate) struct Arguments(Node);

#[derive(Debug, Clone)]
enum Node {
    /// Nothing to fill.
    Plain(Value),
    Text(Template),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Arguments {
    pub(super) fn compile(value: Value) -> Result<Self, Misread> {
        // A bare string is the arguments' text itself, so it is a template even without holes.
        if let Value::String(text) = &value {
            return Ok(Self(Node::Text(Template::parse(text)?)));
        }
        node(value).map(Self)
    }

    pub(super) fn sources(&self) -> Vec<&Source> {
        let mut found = Vec::new();
        self.0.collect(&mut found);
        found
    }

    /// The text that the model sends.
    pub(in crate::rehearsal) fn render(&self, results: &impl Results) -> String {
        match &self.0 {
            Node::Text(raw) => raw.render(results),
            node @ (Node::Plain(_) | Node::List(_) | Node::Map(_)) => node.fill(results).to_string(),
        }
    }
}

fn node(value: Value) -> Result<Node, Misread> {
    match value {
        Value::String(text) => {
            let template = Template::parse(&text)?;
            Ok(if template.is_plain() { Node::Plain(Value::String(text)) } else { Node::Text(template) })
        }
        Value::Array(items) => {
            let nodes = items.iter().cloned().map(node).collect::<Result<Vec<_>, _>>()?;
            Ok(if nodes.iter().all(Node::is_plain) {
                Node::Plain(Value::Array(items))
            } else {
                Node::List(nodes)
            })
        }
        Value::Object(fields) => {
            let nodes = fields.iter().map(|(name, value)| Ok((name.clone(), node(value.clone())?)));
            let nodes = nodes.collect::<Result<Vec<_>, Misread>>()?;
            Ok(if nodes.iter().all(|(_, node)| node.is_plain()) {
                Node::Plain(Value::Object(fields))
            } else {
                Node::Map(nodes)
            })
        }
        plain @ (Value::Null | Value::Bool(_) | Value::Number(_)) => Ok(Node::Plain(plain)),
    }
}

impl Node {
    fn is_plain(&self) -> bool {
        matches!(self, Self::Plain(_))
    }

    fn collect<'a>(&'a self, found: &mut Vec<&'a Source>) {
        match self {
            Self::Plain(_) => {}
            Self::Text(template) => found.extend(template.sources()),
            Self::List(nodes) => nodes.iter().for_each(|node| node.collect(found)),
            Self::Map(nodes) => nodes.iter().for_each(|(_, node)| node.collect(found)),
        }
    }

    fn fill(&self, results: &impl Results) -> Value {
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

//! A thousand tool schemas from the field in each wire format: names that the vendor takes, and schemas as they were.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
};

use crate::recordings::{folder, wire};
use hermod::provider::{EncodeTarget, WIRES, Wire};
use hermod_actors::{
    model::{AnswerOrigin, CallId, CredentialId, ModelDeadlines, RunId, SessionId, ToolSpec},
    port::{EncodedHead, MessageBuffer, ModelRequest, ToolChoice},
};
use serde_json::Value;

fn tools() -> Vec<ToolSpec> {
    let lines = fs::read_to_string(folder().join("tool-schemas/bfcl-tools.jsonl")).unwrap();
    let tool = |line: &str| {
        let line: Value = serde_json::from_str(line).unwrap();
        serde_json::from_value(line["tool"]["function"].clone()).unwrap()
    };
    let tools: Vec<_> = lines.lines().map(tool).collect();
    assert_eq!(tools.len(), 1_000);
    tools
}

/// The tools as a request carries them, and what leads their names back.
fn offered(format: &Wire, tools: &[ToolSpec]) -> (Vec<Value>, EncodedHead) {
    let wire = wire(format.name);
    let origin = AnswerOrigin { provider: "p".into(), wire: format.name.into(), model: "m".into() };
    let head =
        wire.encoder(EncodeTarget { origin: Arc::new(origin), has_vision: true }).head("Be kind.", tools);
    let request = ModelRequest {
        call: CallId { run: RunId::from_bits(1), iteration: 1, n: 0 },
        session: SessionId::from_bits(1),
        model: "m".into(),
        credential: CredentialId::default(),
        max_tokens: 9,
        thinking: None,
        deadlines: ModelDeadlines::default(),
        head: head.clone(),
        tool_choice: ToolChoice::Auto,
        messages: MessageBuffer::default(),
        images: BTreeMap::new(),
    };
    let body: Value = serde_json::from_slice(&wire.body(request).concat()).unwrap();
    (body["tools"].as_array().unwrap().clone(), head)
}

/// Name, description and schema, whatever the vendor calls them.
fn parts(tool: &Value) -> (&str, &Value, &Value) {
    let tool = tool.get("function").filter(|function| function.is_object()).unwrap_or(tool);
    let schema = tool.get("parameters").or(tool.get("input_schema")).unwrap();
    (tool["name"].as_str().unwrap(), &tool["description"], schema)
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn a_thousand_schemas_arrive_as_they_were() {
    let tools = tools();
    for format in WIRES {
        let mut renamed = 0;
        for tool in &tools {
            let (offered, head) = offered(format, std::slice::from_ref(tool));
            let [offered] = &offered[..] else { panic!("{offered:?}") };
            let (name, description, schema) = parts(offered);
            assert_eq!((description, schema), (&Value::from(&*tool.description), &tool.parameters));
            // In the order in which it was written, too.
            assert_eq!(schema.to_string(), tool.parameters.to_string());
            let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            assert!((1..=64).contains(&name.len()) && name.bytes().all(plain), "{}: {name}", format.name);
            assert_eq!(
                head.renamed_tools.get(name).map_or(name, String::as_str),
                tool.name,
                "{}",
                format.name
            );
            renamed += usize::from(name != tool.name);
        }
        println!("{}: {} schemas, {renamed} names mapped and back", format.name, tools.len());
    }
}

#[test]
#[cfg_attr(no_recordings, ignore = "the recordings are not here: see README.md, Two commands")]
fn different_tools_keep_different_names() {
    let mut by_name = BTreeMap::new();
    for tool in tools() {
        by_name.entry(tool.name.clone()).or_insert(tool);
    }
    let tools: Vec<_> = by_name.into_values().collect();
    for format in WIRES.iter().filter(|_| !tools.is_empty()) {
        let (offered, head) = offered(format, &tools);
        let names: BTreeSet<&str> = offered.iter().map(|tool| parts(tool).0).collect();
        assert_eq!(names.len(), tools.len(), "{}", format.name);
        let back: BTreeSet<&str> =
            names.iter().map(|name| head.renamed_tools.get(*name).map_or(*name, String::as_str)).collect();
        assert_eq!(back, tools.iter().map(|tool| &*tool.name).collect(), "{}", format.name);
    }
}

#[test]
fn a_schema_that_vendors_refuse_is_made_fit_in_each_format() {
    let parameters = serde_json::json!({"anyOf": [{"properties": {"x": {"anyOf": []}}}]});
    let tool = ToolSpec { name: "f".into(), description: "d".into(), parameters };
    let fit = serde_json::json!({"type": "object", "properties": {"x": {"anyOf": []}}});
    for format in WIRES {
        let (offered, _) = offered(format, std::slice::from_ref(&tool));
        assert_eq!(parts(&offered[0]).2, &fit, "{}", format.name);
    }
}

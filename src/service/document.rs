//! The OpenAPI document of the service. Each operation describes what is its own; this module adds what holds for all of
//! them: names, the token, and the errors that follow from what an operation takes.

use std::sync::OnceLock;

use axum::{body::Bytes, http::StatusCode};
use serde_json::{Map, Value, json};
use utoipa::openapi::{ComponentsBuilder, OpenApi, OpenApiBuilder};

use super::{openai, problem::Problem};

/// The methods of a path in the document. Its other fields are no operations.
const METHODS: [&str; 8] = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
/// The name of the token in the document.
const TOKEN: &str = "token";

/// Answers with an id that other operations take: the operation and status, the parameter, and where the id is.
const LINKS: [([&str; 3], &str, &str); 3] = [
    (["/v1/runs", "post", "202"], "run", "$response.body#/run"),
    (["/v1/runs", "post", "202"], "session", "$response.body#/session"),
    (["/v1/responses", "post", "200"], "response", "$response.body#/id"),
];

/// The document, which is rendered when it is asked for the first time.
#[derive(Debug)]
pub(super) struct Document {
    /// What adds the operations.
    descriptions: Vec<fn(&mut OpenApi)>,
    rendered: OnceLock<Bytes>,
}

impl Document {
    /// The document of these operations.
    pub(super) fn of(descriptions: Vec<fn(&mut OpenApi)>) -> Self {
        Self { descriptions, rendered: OnceLock::new() }
    }

    /// The document as JSON.
    pub(super) fn render(&self) -> serde_json::Result<Bytes> {
        if let Some(rendered) = self.rendered.get() {
            return Ok(rendered.clone());
        }
        let mut document = base();
        self.descriptions.iter().for_each(|describe| describe(&mut document));
        let text = serde_json::to_vec(&complete(serde_json::to_value(&document)?))?;
        Ok(self.rendered.get_or_init(|| text.into()).clone())
    }
}

/// A document without operations, with the schema of errors.
fn base() -> OpenApi {
    OpenApiBuilder::new().components(Some(ComponentsBuilder::new().schema_from::<Problem>().build())).build()
}

fn complete(mut document: Value) -> Value {
    document["info"] = json!({
        "title": "Hermod",
        "version": env!("CARGO_PKG_VERSION"),
        "description": "Durable runs of agents. A submission that is answered 202 is on disk and reaches an outcome.",
        "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
    });
    let paths = document["paths"].take();
    let paths = match paths {
        Value::Object(paths) => paths.into_iter().map(complete_path).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Map::new(),
    };
    document["paths"] = paths.into();
    for (answer, parameter, place) in LINKS {
        add_links(&mut document["paths"], answer, parameter, place);
    }
    let components = &mut document["components"];
    components["securitySchemes"] = json!({ TOKEN: {
        "type": "http", "scheme": "bearer",
        "description": "A token of `hermod tokens create`. An operation names the scope that it needs; `admin` has all.",
    } });
    for (name, schema) in openai::schemas() {
        components["schemas"][name] = schema;
    }
    document
}

/// Links an answer to all operations that have this parameter in their path.
fn add_links(paths: &mut Value, [path, method, status]: [&str; 3], parameter: &str, place: &str) {
    let place = json!({ parameter: place });
    let named = format!("{{{parameter}}}");
    let operations = paths.as_object().into_iter().flatten().filter(|(path, _)| path.contains(&named));
    let operations = operations.flat_map(|(_, item)| item.as_object().into_iter().flatten());
    let ids: Vec<Value> = operations.map(|(_, operation)| operation["operationId"].clone()).collect();
    for id in ids {
        let name = id.as_str().unwrap_or_default().to_owned();
        let link = json!({ "operationId": id, "parameters": place });
        paths[path][method]["responses"][status]["links"][name] = link;
    }
}

fn complete_path((path, mut operations): (String, Value)) -> (String, Value) {
    // The router's mark of a parameter with slashes.
    let path = path.replace("{*", "{");
    for method in METHODS {
        if let Some(operation) = operations.get_mut(method) {
            complete_operation(&path, operation);
        }
    }
    (path, operations)
}

fn complete_operation(path: &str, operation: &mut Value) {
    let resource =
        path.trim_start_matches("/v1/").trim_start_matches('/').split('/').next().unwrap_or_default();
    let resource = resource.trim_end_matches(".json");
    let name = operation["operationId"].as_str().unwrap_or_default();
    operation["operationId"] = format!("{resource}_{name}").into();
    operation["tags"] = json!([resource]);
    let mut statuses = vec![StatusCode::FORBIDDEN, StatusCode::MISDIRECTED_REQUEST];
    if operation.get("security").is_some() {
        statuses.extend([StatusCode::UNAUTHORIZED, StatusCode::SERVICE_UNAVAILABLE]);
    }
    let takes = |place: &str| {
        let mut parameters = operation["parameters"].as_array().into_iter().flatten();
        parameters.any(|parameter| parameter["in"] == place)
    };
    if takes("path") {
        statuses.push(StatusCode::NOT_FOUND);
    }
    if takes("query") || takes("header") || takes("path") {
        statuses.push(StatusCode::BAD_REQUEST);
    }
    if operation.get("requestBody").is_some() {
        statuses.extend([
            StatusCode::BAD_REQUEST,
            StatusCode::REQUEST_TIMEOUT,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ]);
    }
    add_errors(path, &mut operation["responses"], &statuses);
}

/// Adds the errors of these statuses, and gives their content to those that an operation names itself.
fn add_errors(path: &str, responses: &mut Value, statuses: &[StatusCode]) {
    for status in statuses {
        let response = &mut responses[status.as_str()];
        if response.is_null() {
            *response = json!({ "description": status.canonical_reason() });
        }
    }
    let (media, schema) = if openai::is_own_path(path) {
        ("application/json", "ApiError")
    } else {
        (Problem::MEDIA_TYPE, "Problem")
    };
    let errors = responses.as_object_mut().into_iter().flatten();
    for (_, response) in errors.filter(|(status, _)| status.starts_with(['4', '5'])) {
        response["content"] =
            json!({ media: { "schema": { "$ref": format!("#/components/schemas/{schema}") } } });
    }
}

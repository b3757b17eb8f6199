//! How the service's document shows an expectation of a run. The core parses it, and knows no OpenAPI.

use serde::Deserialize;
use utoipa::ToSchema;

/// Something that must hold when a run has given its answer. Paths are relative to the workspace, or absolute inside it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
#[expect(dead_code, reason = "only the document has it")]
pub(super) enum ExpectationField {
    /// A regular file exists.
    File {
        /// The file.
        #[schema(min_length = 1, max_length = 4096, pattern = r"\S")]
        path: String,
        /// Whether it must have content.
        #[serde(default)]
        not_empty: bool,
        /// Whether it must have been written since the run started.
        #[serde(default)]
        newer: bool,
    },
    /// A file is JSON that matches a schema.
    Schema {
        /// The file.
        #[schema(min_length = 1, max_length = 4096, pattern = r"\S")]
        path: String,
        /// The JSON schema. References must stay within it, and must not lead back to themselves.
        #[schema(value_type = Object)]
        schema: serde_json::Value,
    },
    /// A shell command exits with 0. It runs in the workspace, as a shell call of the run would, and perhaps again.
    Command {
        /// The command.
        #[schema(min_length = 1, max_length = 4096, pattern = r"\S")]
        command: String,
        /// Its time limit in seconds; 120 if it is absent.
        #[schema(minimum = 1, maximum = 3600)]
        timeout_s: Option<u64>,
    },
    /// The answer contains a text, letter by letter.
    Text {
        /// The text.
        #[schema(min_length = 1, max_length = 4096, pattern = r"\S")]
        contains: String,
    },
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::Expectation;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_document_has_what_the_core_parses() {
        for given in [
            json!({"kind": "file", "path": "a"}),
            json!({"kind": "file", "path": "a", "not_empty": true, "newer": true}),
            json!({"kind": "schema", "path": "a", "schema": {}}),
            json!({"kind": "command", "command": "make"}),
            json!({"kind": "command", "command": "make", "timeout_s": 1}),
            json!({"kind": "text", "contains": "a"}),
            json!({"kind": "text"}),
            json!({"kind": "text", "contains": "a", "matches": "b"}),
            json!({"kind": "glob", "path": "a"}),
        ] {
            let (core, shown) = (
                serde_json::from_value::<Expectation>(given.clone()).is_ok(),
                serde_json::from_value::<ExpectationField>(given.clone()).is_ok(),
            );
            assert_eq!(core, shown, "{given}");
        }
    }
}

//! Tests of how the model lists of providers are read.

use super::*;

/// Checks the limits that a list reads for the model `m` in a body.
#[track_caller]
fn check(list: &ModelList, body: &str, window: Option<u64>, max_output: Option<u64>) {
    assert_eq!(parse_limits(list, body.as_bytes(), "m"), ModelLimits { window, max_output }, "{body}");
}

#[test]
fn a_list_of_models_tells_windows_in_the_fields_of_its_vendor() {
    let check = |entry: &str, window, max_output| {
        let others = r#"{"id":"other","context_length":9999},{"context_length":8888}"#;
        check(&MODELS, &format!(r#"{{"object":"list","data":[{others},{entry}]}}"#), window, max_output);
        check(&MODELS, &format!("[{others},{entry}]"), window, max_output);
    };
    // OpenRouter.
    let top = r#""top_provider":{"context_length":65536,"max_completion_tokens":16384,"is_moderated":false}"#;
    check(&format!(r#"{{"id":"m","context_length":131072,{top}}}"#), Some(65_536), Some(16_384));
    check(
        r#"{"id":"m","context_length":131072,"top_provider":{"max_completion_tokens":null}}"#,
        Some(131_072),
        None,
    );
    check(r#"{"id":"m","context_length":131072,"top_provider":null}"#, Some(131_072), None);
    // vLLM.
    check(
        r#"{"id":"m","object":"model","owned_by":"vllm","root":"/m","max_model_len":32768}"#,
        Some(32_768),
        None,
    );
    // Groq.
    check(r#"{"id":"m","context_window":131072,"max_completion_tokens":32768}"#, Some(131_072), Some(32_768));
    // OpenAI reports no limits.
    check(r#"{"id":"m","object":"model","created":1,"owned_by":"openai"}"#, None, None);
}

#[test]
fn local_servers_tell_windows_by_an_api_of_their_own() {
    let studio = |entry: &str, window| {
        check(&LM_STUDIO, &format!(r#"{{"object":"list","data":[{entry}]}}"#), window, None);
    };
    studio(r#"{"id":"m","state":"not-loaded","max_context_length":131072}"#, Some(131_072));
    studio(
        r#"{"id":"m","state":"loaded","max_context_length":131072,"loaded_context_length":4096}"#,
        Some(4_096),
    );
    studio(r#"{"id":"n","max_context_length":131072}"#, None);
    let ollama = |parameters: &str, info: &str, window| {
        check(&OLLAMA, &format!(r#"{{"parameters":{parameters},"model_info":{info}}}"#), window, None);
    };
    let info = r#"{"general.architecture":"llama","llama.context_length":131072,"llama.block_count":32}"#;
    ollama(r#""stop \"<|eot|>\"\nnum_ctx                        8192\n""#, info, Some(8_192));
    ollama(r#""stop \"<|eot|>\"""#, info, Some(131_072));
    ollama(r#""num_ctx 262144""#, info, Some(131_072));
    ollama(r#""num_ctx 16384""#, "{}", Some(16_384));
    ollama(r#""num_ctx""#, "{}", None);
    ollama("7", "[]", None);
}

#[test]
fn odd_bodies_tell_nothing() {
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let deep_entry = format!(r#"{{"data":[{{"id":"m","context_length":{}"#, "{\"a\":".repeat(100_000));
    let many = format!("[{}1]", "1,".repeat(500_000));
    let mut bodies = vec![deep, deep_entry, many];
    let odd = [
        "",
        "null",
        "1",
        "\"m\"",
        "{}",
        "[]",
        "<html><body>m</body></html>",
        "{\"data\":",
        "\u{feff}{}",
        "{\"data\":{}}",
    ];
    bodies.extend(odd.map(str::to_owned));
    let sizes = [
        "0",
        "-1",
        "1",
        "1023",
        "1.5",
        "1e300",
        "18446744073709551616",
        "999999999999",
        "\"\"",
        "\"many\"",
        "null",
        "true",
        "[]",
        "{}",
    ];
    for size in sizes {
        let fields = format!(r#""context_length":{size},"max_model_len":{size},"max_context_length":{size}"#);
        let show = format!(r#""parameters":{size},"model_info":{{"a.context_length":{size}}}"#);
        bodies.push(format!(r#"{{"data":[{{"id":"m",{fields},"top_provider":{{{fields}}}}}],{show}}}"#));
    }
    for list in LISTS {
        for body in &bodies {
            assert_eq!(parse_limits(&list, body.as_bytes(), "m"), ModelLimits::default(), "{body:.200}");
        }
        assert_eq!(parse_limits(&list, &[0xff, 0xfe, 0], "m"), ModelLimits::default());
    }
}

#[test]
fn an_answer_is_no_longer_than_the_window() {
    let entry = r#"[{"id":"m","context_length":4096,"top_provider":{"max_completion_tokens":8192}}]"#;
    check(&MODELS, entry, Some(4_096), None);
}

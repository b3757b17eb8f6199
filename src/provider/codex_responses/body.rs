//! The request body of `codex_responses`: writes model, output limit, reasoning effort and tool choice, and joins them
//! with the encoded head and messages (`encode.rs`).

use bytes::Bytes;
use hermod_actors::{
    model::{ThinkingLevel, ThinkingRequest, ThinkingStyle},
    port::{ModelRequest, ToolChoice},
};
use serde_json::{Value, json};

use crate::provider::wire::join_body;

/// The smallest output limit that OpenAI accepts, in tokens.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// The whole body, in pieces. Some servers refuse a limit of the output.
pub(super) fn body(has_output_limit: bool, request: ModelRequest) -> Vec<Bytes> {
    let mut fields = json!({"model": &*request.model});
    if has_output_limit {
        fields["max_output_tokens"] = request.max_tokens.max(MIN_OUTPUT_TOKENS).into();
    }
    fields["stream"] = true.into();
    fields["store"] = false.into();
    if may_reason(&request.model) {
        fields["include"] = json!(["reasoning.encrypted_content"]);
    }
    if let Some(reasoning) = request.thinking.and_then(|thinking| reasoning(&request.model, thinking)) {
        fields["reasoning"] = reasoning;
    }
    if request.head.has_tools && request.tool_choice == ToolChoice::NoCalls {
        fields["tool_choice"] = "none".into();
    }
    // Requests with the same key go to the machine that has cached their prefix.
    fields["prompt_cache_key"] = request.session.to_string().into();
    let mut begin = fields.to_string();
    begin.pop();
    begin.push(',');
    join_body(begin.into_bytes(), request, &[])
}

/// The model's name without a vendor prefix.
fn base_name(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// True if a model may reason. OpenAI's older models do not, and refuse a request for reasoning content.
fn may_reason(model: &str) -> bool {
    !["gpt-3.5", "gpt-4", "chatgpt-4o"].iter().any(|old| base_name(model).starts_with(old))
}

/// The value of the field `reasoning`; `None` if the request omits it.
fn reasoning(model: &str, thinking: ThinkingRequest) -> Option<Value> {
    // This API configures reasoning only by effort.
    if thinking.style == ThinkingStyle::None {
        return None;
    }
    let effort = effort(model, thinking.level);
    let mut reasoning = json!({"effort": effort});
    if effort != "none" {
        reasoning["summary"] = "auto".into();
    }
    Some(reasoning)
}

/// The nearest effort that the model supports, by OpenAI's documentation of `reasoning.effort`.
fn effort(model: &str, level: ThinkingLevel) -> &'static str {
    let name = base_name(model);
    let is_one_of = |families: &[&str]| families.iter().any(|family| name.starts_with(family));
    let (off, minimal) = if is_one_of(&["o1", "o3", "o4", "gpt-oss"]) || name.contains("-codex") {
        ("low", "low")
    } else if is_one_of(&["gpt-5."]) {
        ("none", "low")
    } else if is_one_of(&["gpt-5"]) {
        ("minimal", "minimal")
    } else {
        ("none", "minimal")
    };
    match level {
        ThinkingLevel::Off => off,
        ThinkingLevel::Minimal => minimal,
        level @ (ThinkingLevel::Low | ThinkingLevel::Medium | ThinkingLevel::High) => level.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_the_nearest_word_that_the_model_takes() {
        let check = |model: &str, words: [&str; 5]| {
            assert_eq!(ThinkingLevel::ALL.map(|level| effort(model, level)), words, "{model}");
        };
        check("o4-mini", ["low", "low", "low", "medium", "high"]);
        check("openai/gpt-oss-120b", ["low", "low", "low", "medium", "high"]);
        check("gpt-5-codex", ["low", "low", "low", "medium", "high"]);
        check("gpt-5-mini", ["minimal", "minimal", "low", "medium", "high"]);
        check("gpt-5.1", ["none", "low", "low", "medium", "high"]);
        check("deepseek-v4-flash", ["none", "minimal", "low", "medium", "high"]);
    }

    #[test]
    fn a_style_without_words_is_left_out() {
        let requested = |style, level| reasoning("gpt-5.1", ThinkingRequest { level, style });
        assert_eq!(requested(ThinkingStyle::None, ThinkingLevel::High), None);
        assert_eq!(requested(ThinkingStyle::Effort, ThinkingLevel::Off), Some(json!({"effort": "none"})));
        let high = Some(json!({"effort": "high", "summary": "auto"}));
        for style in [ThinkingStyle::Effort, ThinkingStyle::Budget, ThinkingStyle::Adaptive] {
            assert_eq!(requested(style, ThinkingLevel::High), high);
        }
    }

    #[test]
    fn only_models_that_reason_are_asked_for_their_reasoning() {
        for (model, expected) in
            [("gpt-4o-mini", false), ("openai/gpt-4.1", false), ("gpt-5", true), ("grok-4", true)]
        {
            assert_eq!(may_reason(model), expected, "{model}");
        }
    }
}

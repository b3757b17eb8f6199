//! What of a decoded answer is sent back in the next request.

use std::sync::Arc;

use hermod_actors::model::Message;
use serde_json::{Value, json};

use super::{
    encode::{encoder, input},
    events::*,
};

/// Checks the items that are sent back of an answer with this output.
fn check(output: &[Value], back: &[Value]) {
    let answer = answer(&[completed(output)]);
    let again = input(&encoder(origin(), true), &[Message::Assistant(Arc::new(answer.message))]);
    assert_eq!(again, back);
}

fn wire_call(index: u64, name: &str, arguments: &str) -> Value {
    json!({"type": "function_call", "call_id": format!("c{index}_0"), "name": name, "arguments": arguments})
}

fn wire_text(text: &str) -> Value {
    json!({"type": "message", "role": "assistant", "content": text})
}

#[test]
fn an_answer_goes_back_as_it_came() {
    let output = [
        thought(0, "hm", "x1"),
        thought(1, "", "x2"),
        message(2, "So:"),
        thought(3, "", "x3"),
        call(4, "f", "{}"),
    ];
    check(
        &output,
        &[output[0].clone(), output[1].clone(), wire_text("So:"), output[3].clone(), wire_call(4, "f", "{}")],
    );
    let open = json!({"type": "reasoning", "id": "i0", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]});
    check(&[open.clone(), message(1, "a")], &[open, wire_text("a")]);
    let signed = json!({"type": "reasoning", "summary": [], "signature": "s", "format": "google-gemini-v1"});
    check(&[signed.clone(), message(1, "a")], &[signed.clone(), wire_text("a")]);
    // A gateway sends the signed reasoning of Gemini after the items that it led to.
    check(&[message(0, "a"), signed.clone()], &[wire_text("a"), signed.clone()]);
    check(std::slice::from_ref(&signed), &[]);
    let mut said = message(0, "a");
    said["phase"] = "final_answer".into();
    let back = json!({"type": "message", "role": "assistant", "content": "a", "phase": "final_answer"});
    check(&[said], &[back]);
}

#[test]
fn what_the_vendor_does_not_need_again_is_not_kept() {
    let kept = |output: &[Value]| answer(&[completed(output)]).message.opaque;
    // Reasoning with only an id is dropped, because the vendor stores nothing.
    assert_eq!(kept(&[thought(0, "hm", ""), message(1, "a")]), None);
    assert_eq!(kept(&[message(0, "a"), call(1, "f", "{}")]), None);
    // The next item of the reasoning is not sent back, so the reasoning is not either.
    let search = json!({"type": "web_search_call", "id": "i1"});
    assert_eq!(kept(&[thought(0, "hm", "x"), search, message(2, "a")]), None);
    assert_eq!(kept(&[thought(0, "hm", "x")]), None);
    let opaque = kept(&[thought(0, "hm", "x"), call(1, "f", "{}")]).unwrap();
    assert_eq!((opaque.origin(), opaque.parts().len()), (&origin(), 2));
}

#[test]
fn a_status_does_not_go_back() {
    let mut whole = thought(0, "hm", "x");
    let clean = whole.clone();
    whole["status"] = Value::Null;
    check(&[whole, message(1, "a")], &[clean, wire_text("a")]);
}

//! View of the pieces of a reply, as chat surfaces get them.

use hermod_actors::shaping::{FinalReply, ReplyPiece, ReplySource, ToolSummary};
use serde_json::{Map, Value, json};

use super::stream::EventIds;

/// The name of a piece's event.
pub const fn reply_event_name(piece: &ReplyPiece) -> &'static str {
    match piece {
        ReplyPiece::Delta { .. } => "delta",
        ReplyPiece::Block { .. } => "block",
        ReplyPiece::Reasoning { .. } => "reasoning",
        ReplyPiece::Tool(_) => "tool",
        ReplyPiece::Retry { .. } => "retry",
        ReplyPiece::Final(_) => "final",
    }
}

/// A piece as JSON: `{event, session, run, seq, …of the piece}`.
pub fn reply_event(ids: EventIds, piece: &ReplyPiece) -> Value {
    let own = match piece {
        ReplyPiece::Delta { message, call, attempt, text } => {
            json!({ "message": message, "call": call, "attempt": attempt, "text": text })
        }
        ReplyPiece::Reasoning { call, attempt, text } => {
            json!({ "call": call, "attempt": attempt, "text": text })
        }
        ReplyPiece::Block { call, at, text } => json!({ "call": call, "at": at, "text": text }),
        ReplyPiece::Tool(ToolSummary { call, tool, status, text }) => {
            json!({ "call": call, "tool": tool, "status": status, "text": text })
        }
        ReplyPiece::Retry { call, message, at } => json!({ "call": call, "message": message, "at": at }),
        ReplyPiece::Final(reply) => final_fields(reply),
    };
    let mut fields = Map::new();
    fields.insert("event".into(), json!(reply_event_name(piece)));
    fields.insert("session".into(), json!(ids.session));
    fields.insert("run".into(), json!(ids.run));
    fields.insert("seq".into(), json!(ids.seq));
    if let Value::Object(own) = own {
        fields.extend(own);
    }
    Value::Object(fields)
}

fn final_fields(FinalReply { ended, text, source, is_silent }: &FinalReply) -> Value {
    let mut fields = json!({
        "outcome": ended.outcome,
        "text": text,
        "source": source.map(ReplySource::name),
    });
    if *is_silent {
        fields["silent"] = json!(true);
    }
    if ended.outcome != hermod_actors::model::Outcome::Completed {
        fields["reason"] = json!(ended.to_string());
    }
    fields
}

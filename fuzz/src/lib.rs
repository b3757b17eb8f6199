//! What must hold for any bytes from the network: nothing panics, and however they are cut, the same comes out.
//!
//! An input is a number of cuts, where they are (16 bits each, modulo the length of the rest), and the bytes of a body.

use std::sync::{Arc, Mutex, PoisonError};

use hermod::provider::{Decoder, Dialect, WIRES, sse};
use hermod_actors::{
    model::{ModelAnswer, Failure, AnswerOrigin},
    port::DeltaSink,
};

/// Cuts that one input may have.
const CUTS: u8 = 8;

/// Decodes a body with the decoder of this wire format.
pub fn decoder(format: &str, input: &[u8]) {
    let parts = parts(input);
    let whole = parts.concat();
    let (answer, shown) = decode(format, &[&whole]);
    let (cut_answer, cut_shown) = decode(format, &parts);
    assert_eq!(cut_answer, answer, "cut into {parts:?}");
    // How far an interface has come when the answer fails may differ.
    if answer.is_ok() {
        assert_eq!(cut_shown, shown, "cut into {parts:?}");
    }
}

/// Parses an event stream.
pub fn sse(input: &[u8]) {
    let parts = parts(input);
    let whole = parts.concat();
    assert_eq!(events(&parts), events(&[&whole]), "cut into {parts:?}");
}

fn parts(input: &[u8]) -> Vec<&[u8]> {
    let Some((count, rest)) = input.split_first() else { return Vec::new() };
    let count = usize::from(count % (CUTS + 1)).min(rest.len() / 2);
    let (places, body) = rest.split_at(2 * count);
    let mut cuts: Vec<usize> = places
        .chunks_exact(2)
        .map(|place| usize::from(u16::from_le_bytes([place[0], place[1]])) % (body.len() + 1))
        .chain([0, body.len()])
        .collect();
    cuts.sort_unstable();
    cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect()
}

type Texts = (String, String);

/// Text and reasoning, as they were shown.
#[derive(Default)]
struct Shown(Mutex<Texts>);

impl DeltaSink for Shown {
    fn text(&self, delta: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0.push_str(delta);
    }
    fn reasoning(&self, delta: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).1.push_str(delta);
    }
}

fn decode(format: &str, parts: &[&[u8]]) -> (Result<ModelAnswer, Failure>, Texts) {
    let wire = WIRES.iter().find(|wire| wire.name == format).expect("a wire format of this name");
    let origin = AnswerOrigin { provider: "p".into(), wire: format.into(), model: "m".into() };
    let mut decoder: Box<dyn Decoder> = (wire.make)(&Dialect::default()).decoder(Arc::new(origin));
    let shown = Shown::default();
    let pushed = parts.iter().try_for_each(|part| decoder.push(part, &shown).map(drop));
    let result = pushed.and_then(|()| decoder.finish(&shown));
    (result, shown.0.into_inner().unwrap_or_else(PoisonError::into_inner))
}

type Events = Vec<Vec<u8>>;

fn events(parts: &[&[u8]]) -> Result<Events, sse::EventTooLarge> {
    let mut events = Events::new();
    let mut take = |data: &[u8]| events.push(data.to_vec());
    let mut parser = sse::SseParser::default();
    for part in parts {
        parser.push(part, &mut take)?;
    }
    parser.finish(&mut take)?;
    Ok(events)
}

//! Recorded exchanges with providers, as `../shared/recordings` holds them, and what the vendors' SDKs made of them.

pub(crate) mod expected;
pub(crate) mod facts;

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use hermod::provider::{Decoder, Dialect, WIRES, WireFormat, failure::failure_of};
use hermod_actors::{
    model::{AnswerOrigin, Failure, ModelAnswer},
    port::DeltaSink,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use facts::Facts;

/// One wire format in the recordings.
#[derive(Debug)]
pub(crate) struct Format {
    /// Its name there.
    recorded: &'static str,
    /// Ours.
    pub(crate) name: &'static str,
    /// Exchanges recorded, and shapes documented.
    pub(crate) cases: usize,
    /// What the SDK's answer is in our words.
    answer: fn(&Value) -> Facts,
    /// How a call's arguments are compared.
    arguments: fn(&str) -> Value,
}

/// All of them.
pub(crate) const FORMATS: [Format; 3] = [
    Format {
        recorded: "chat_completions",
        name: "chat_completions",
        cases: 324,
        answer: expected::chat_completion,
        arguments: facts::as_text,
    },
    Format {
        recorded: "anthropic",
        name: "anthropic_messages",
        cases: 155,
        answer: expected::anthropic_message,
        // The SDK tells them only as an object.
        arguments: facts::as_json,
    },
    Format {
        recorded: "responses",
        name: "codex_responses",
        cases: 160,
        answer: expected::response,
        arguments: facts::as_text,
    },
];

/// One exchange.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) format: &'static Format,
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    /// What the SDKs say, in their words.
    pub(crate) sdk: Value,
}

/// Takes no notice.
pub(crate) struct Nobody;

impl DeltaSink for Nobody {
    fn text(&self, _: &str) {}
    fn reasoning(&self, _: &str) {}
}

impl Case {
    fn of(format: &'static Format, folder: PathBuf, entry: &Value) -> Self {
        let headers = json_file(&folder.join("response.headers.json"));
        let header = |(name, value): (&String, &Value)| {
            let value = HeaderValue::from_str(value.as_str()?).ok()?;
            Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
        };
        Self {
            format,
            name: entry["name"].as_str().unwrap().to_owned(),
            status: u16::try_from(entry["status"].as_u64().unwrap()).unwrap(),
            headers: headers.as_object().unwrap().iter().filter_map(header).collect(),
            body: fs::read(folder.join("response.body")).unwrap(),
            sdk: json_file(&folder.join("expected.json")),
            folder,
        }
    }

    /// What the SDKs say, in our words.
    pub(crate) fn expected(&self) -> Facts {
        expected::facts(&self.sdk, self.format.answer)
    }

    /// What was made of it here.
    pub(crate) fn found(&self) -> Facts {
        facts::of(&self.outcome(), self.format.arguments)
    }

    pub(crate) fn decoder(&self) -> Box<dyn Decoder> {
        let origin = AnswerOrigin { provider: "p".into(), wire: self.format.name.into(), model: "m".into() };
        wire(self.format.name).decoder(Arc::new(origin))
    }

    /// The answer, if the body comes in these parts.
    pub(crate) fn decode<'a>(
        &self,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<ModelAnswer, Failure> {
        let mut decoder = self.decoder();
        for part in parts {
            decoder.push(part, &Nobody)?;
        }
        decoder.finish(&Nobody)
    }

    /// What became of the exchange.
    pub(crate) fn outcome(&self) -> Result<ModelAnswer, Failure> {
        if self.status == 200 {
            return self.decode([&*self.body]);
        }
        Err(failure_of(self.status, &self.headers, &self.body))
    }
}

/// The wire format of this name.
#[track_caller]
pub(crate) fn wire(name: &str) -> Box<dyn WireFormat> {
    let wire = WIRES.iter().find(|wire| wire.name == name);
    (wire.unwrap_or_else(|| panic!("{name} is not among the wire formats")).make)(&Dialect::default())
}

/// The folder with the recordings. A test that needs it is ignored without it (`no_recordings`, see `build.rs`).
#[track_caller]
pub(crate) fn folder() -> PathBuf {
    let folder = env::var_os("HERMOD_RECORDINGS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/recordings"), PathBuf::from);
    assert!(folder.is_dir(), "{} does not exist; set HERMOD_RECORDINGS to the recordings", folder.display());
    folder
}

/// All exchanges of all formats. Fails if some are missing.
pub(crate) fn cases() -> Vec<Case> {
    let folder = folder();
    let index = |name: &str| json_file(&folder.join(name)).as_array().unwrap().clone();
    let entries: Vec<Value> = index("index.json").into_iter().chain(index("index-documented.json")).collect();
    let mut cases = Vec::new();
    for format in &FORMATS {
        let of_format = entries.iter().filter(|entry| entry["wire_format"] == format.recorded);
        let before = cases.len();
        cases.extend(
            of_format.map(|entry| Case::of(format, folder.join(entry["dir"].as_str().unwrap()), entry)),
        );
        assert_eq!(cases.len() - before, format.cases, "exchanges of {}", format.name);
    }
    assert_eq!(cases.len(), entries.len(), "exchanges of a wire format that nobody decodes");
    cases
}

pub(crate) fn json_file(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

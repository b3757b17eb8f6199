//! [`Redactor`]: a set of known secrets that grows while it is used. Readers take the present matcher without waiting
//! for a change.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
};

use hermod_actors::port::{RedactedStream, TextRedactor};

use super::{
    forms::{forms, may_be_secret},
    matcher::{Form, Matcher},
    stream::RedactionStream,
};
use crate::secret::Secret;

/// Values that are known at most. Beyond that the value that was learned first is forgotten, of those that are renewed
/// during the life of the process.
const MAX_VALUES: usize = 512;

/// Redacts the values that it has learned. Clones share them.
#[derive(Clone, Default)]
pub struct Redactor(Arc<SharedValues>);

#[derive(Default)]
struct SharedValues {
    matcher: RwLock<Arc<Matcher>>,
    values: Mutex<Vec<KnownValue>>,
}

struct KnownValue {
    value: Secret,
    forms: Vec<Form>,
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redactor").field("matcher", &self.matcher()).finish_non_exhaustive()
    }
}

impl Redactor {
    /// Redacts the secret from now on, also in streams that have begun. A short value or a placeholder is ignored.
    pub fn learn(&self, label: &str, secret: &Secret) {
        self.learn_all([(label, secret)]);
    }

    /// Learns several secrets at once, which costs no more than one.
    pub fn learn_all<'s>(&self, secrets: impl IntoIterator<Item = (&'s str, &'s Secret)>) {
        let mut values = self.0.values.lock().unwrap_or_else(PoisonError::into_inner);
        let before = values.len();
        for (label, secret) in secrets {
            let is_known = values.iter().any(|known| known.value.reveal() == secret.reveal());
            if is_known || !may_be_secret(secret.reveal()) {
                continue;
            }
            let replacement: Arc<str> = replacement(label).into();
            let forms = forms(secret.reveal()).into_iter().map(|form| (form, Arc::clone(&replacement)));
            values.push(KnownValue { value: secret.clone(), forms: forms.collect() });
        }
        if values.len() == before {
            return;
        }
        if values.len() > MAX_VALUES {
            let surplus = values.len() - MAX_VALUES;
            // The first half are the values of the start: variables and configured keys.
            values.drain(MAX_VALUES / 2..MAX_VALUES / 2 + surplus);
        }
        let all = values.iter().flat_map(|known| known.forms.iter().cloned()).collect();
        if let Some(matcher) = Matcher::new(all) {
            *self.0.matcher.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(matcher);
        } else {
            tracing::error!("the known secrets are too long to be searched for; the newest is not redacted");
        }
    }

    /// `bytes` with every known secret replaced; borrowed if there is none.
    pub fn redact_bytes<'t>(&self, bytes: &'t [u8]) -> Cow<'t, [u8]> {
        self.matcher().redact(bytes)
    }

    /// `text` with every known secret replaced; borrowed if there is none.
    pub fn redact<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(redacted) => match String::from_utf8(redacted) {
                Ok(redacted) => Cow::Owned(redacted),
                Err(error) => Cow::Owned(String::from_utf8_lossy(error.as_bytes()).into_owned()),
            },
        }
    }

    pub(super) fn matcher(&self) -> Arc<Matcher> {
        Arc::clone(&self.0.matcher.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The text in place of a secret. It needs no escape in JSON, in a shell, or in a URL's path.
fn replacement(label: &str) -> String {
    let is_kept = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let label: String = label.chars().take(64).map(|c| if is_kept(c) { c } else { '_' }).collect();
    if label.is_empty() { "[redacted]".to_owned() } else { format!("[redacted:{label}]") }
}

impl TextRedactor for Redactor {
    fn redacted(&self, text: &str) -> Option<String> {
        match self.redact(text) {
            Cow::Borrowed(_) => None,
            Cow::Owned(redacted) => Some(redacted),
        }
    }

    fn stream(&self) -> Box<dyn RedactedStream> {
        Box::new(RedactionStream::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redactor(secrets: &[(&str, &str)]) -> Redactor {
        let redactor = Redactor::default();
        for (label, value) in secrets {
            redactor.learn(label, &Secret::new(*value));
        }
        redactor
    }

    #[test]
    fn known_values_are_replaced_in_all_their_forms() {
        let redactor = redactor(&[
            ("ACME_KEY", "sk-acme-0123456789abcdef"),
            ("OTHER_KEY", "sk-acme-0123456789abcdef-and-more"),
            ("QUOTED", "pass\"word/1"),
            ("SHORT", "short"),
            ("a label: ä", "süßstoff"),
        ]);
        let check = |text: &str, expect: &str| assert_eq!(redactor.redact(text), expect, "{text}");
        check("", "");
        check("nothing here, short", "nothing here, short");
        check("key sk-acme-0123456789abcdef!", "key [redacted:ACME_KEY]!");
        check("sk-acme-0123456789abcdefsk-acme-0123456789abcdef", "[redacted:ACME_KEY][redacted:ACME_KEY]");
        check("sk-acme-0123456789abcdef-and-more", "[redacted:OTHER_KEY]");
        check("sk-acme-0123456789abcdef-and", "[redacted:ACME_KEY]-and");
        check(r#"{"p":"pass\"word/1"}"#, r#"{"p":"[redacted:QUOTED]"}"#);
        check("?p=pass%22word%2F1&q", "?p=[redacted:QUOTED]&q");
        check("süßstoffe", "[redacted:a_label___]e");
        // `printf sk-acme-0123456789abcdef | base64`, and with a line break behind.
        check("c2stYWNtZS0wMTIzNDU2Nzg5YWJjZGVm", "[redacted:ACME_KEY]");
        check("c2stYWNtZS0wMTIzNDU2Nzg5YWJjZGVmCg==", "[redacted:ACME_KEY]Cg==");
    }

    #[test]
    fn a_value_keeps_its_first_label_and_the_oldest_renewed_ones_are_forgotten() {
        let redactor = redactor(&[("FIRST", "sk-acme-0123456789"), ("SECOND", "sk-acme-0123456789")]);
        assert_eq!(redactor.redact("sk-acme-0123456789"), "[redacted:FIRST]");
        for n in 0..MAX_VALUES + 10 {
            redactor.learn("TOKEN", &Secret::new(format!("token-{n:06}")));
        }
        assert_eq!(redactor.redact("sk-acme-0123456789"), "[redacted:FIRST]");
        assert_eq!(redactor.redact(&format!("token-{:06}", MAX_VALUES + 9)), "[redacted:TOKEN]");
        assert_eq!(redactor.0.values.lock().unwrap().len(), MAX_VALUES);
        assert!(!format!("{redactor:?}").contains("acme"));
    }
}

//! Signatures of webhooks, as the specification Standard Webhooks says: HMAC-SHA256 over `id.timestamp.body`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac;

use crate::secret::Secret;

/// The prefix of secrets that are written in base64.
const ENCODED_PREFIX: &str = "whsec_";

/// The key of a webhook.
pub(super) struct SigningKey(hmac::Key);

impl SigningKey {
    /// The key of a secret: the bytes of the base64 behind `whsec_`, otherwise the bytes of the text. The error does not
    /// contain the secret.
    pub(super) fn of_secret(secret: &Secret) -> Result<Self, String> {
        hmac_key(secret).map(Self)
    }

    /// The value of the header `webhook-signature`; `seconds` is that of `webhook-timestamp`.
    pub(super) fn sign(&self, id: &str, seconds: u64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(format!("{id}.{seconds}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

/// The key of a secret, as [`SigningKey::of_secret`] reads it.
pub(crate) fn hmac_key(secret: &Secret) -> Result<hmac::Key, String> {
    let text = secret.reveal();
    let bytes = match text.strip_prefix(ENCODED_PREFIX) {
        Some(encoded) => {
            STANDARD.decode(encoded).map_err(|_| format!("behind `{ENCODED_PREFIX}` it is no base64"))?
        }
        None => text.as_bytes().to_vec(),
    };
    if bytes.is_empty() {
        return Err("it is empty".to_owned());
    }
    Ok(hmac::Key::new(hmac::HMAC_SHA256, &bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification's reference libraries.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let key = SigningKey::of_secret(&Secret::new("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")).ok().unwrap();
        let signature = key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_base64_or_text() {
        let check = |secret: &str, expect: Result<(), &str>| {
            let made = SigningKey::of_secret(&Secret::new(secret)).map(drop);
            assert_eq!(made, expect.map_err(str::to_owned), "{secret}");
        };
        check("a plain secret", Ok(()));
        check("whsec_%%%", Err("behind `whsec_` it is no base64"));
        check("whsec_", Err("it is empty"));
    }
}

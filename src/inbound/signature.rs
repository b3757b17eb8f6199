//! Signatures of incoming webhooks, each as its vendor documents it. All are compared in constant time, over the bytes that
//! came. A claim is what the headers say; it is read before the body, so that a request without one costs nothing.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use data_encoding::HEXLOWER_PERMISSIVE;
use hermod_actors::model::Timestamp;
use http::{HeaderMap, header};
use ring::hmac;

use crate::{
    delivery::hmac_key,
    secret::{Secret, is_same},
};

/// How far the time of a signature may be from now, in seconds: what all vendors recommend.
const MAX_SKEW_S: u64 = 300;

/// How requests are signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum SignatureScheme {
    /// `X-Hub-Signature-256` over the body.
    Github,
    /// `Stripe-Signature` over time and body; several signatures while a secret is rolled.
    Stripe,
    /// `X-Slack-Signature` over version, time and body.
    Slack,
    /// `webhook-signature` over id, time and body, as Standard Webhooks says.
    Standard,
    /// The secret itself, as a bearer token.
    Bearer,
}

/// The keys of a scheme. Any of them may sign.
pub(super) enum Keys {
    Macs(Vec<hmac::Key>),
    Tokens(Vec<Secret>),
}

/// What the headers of a request claim.
#[derive(Debug)]
pub enum SignatureClaim {
    /// One of these tags is that of `prefix` and the body.
    Tags {
        /// What is signed before the body.
        prefix: String,
        /// The tags.
        tags: Vec<Vec<u8>>,
    },
    /// The token in the headers is right already.
    Token,
}

impl SignatureScheme {
    /// All schemes.
    pub const ALL: [Self; 5] = [Self::Github, Self::Stripe, Self::Slack, Self::Standard, Self::Bearer];

    /// The name in the configuration.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The keys of these secrets. The error does not contain a secret.
    pub(super) fn keys(self, secrets: Vec<Secret>) -> Result<Keys, String> {
        let of_text = |secret: &Secret| hmac::Key::new(hmac::HMAC_SHA256, secret.reveal().as_bytes());
        Ok(match self {
            // The prefix `whsec_` of Stripe's secrets belongs to the key.
            Self::Github | Self::Stripe | Self::Slack => Keys::Macs(secrets.iter().map(of_text).collect()),
            Self::Standard => Keys::Macs(secrets.iter().map(hmac_key).collect::<Result<_, _>>()?),
            Self::Bearer => Keys::Tokens(secrets),
        })
    }

    /// What the headers claim; `None` if they claim nothing that could hold now.
    pub(super) fn claim(self, keys: &Keys, headers: &HeaderMap, now: Timestamp) -> Option<SignatureClaim> {
        let hex = |text: &str| HEXLOWER_PERMISSIVE.decode(text.as_bytes()).ok();
        match self {
            Self::Github => {
                let tag = single(headers, "x-hub-signature-256")?.strip_prefix("sha256=").and_then(hex)?;
                Some(SignatureClaim::Tags { prefix: String::new(), tags: vec![tag] })
            }
            Self::Stripe => {
                let items =
                    || single(headers, "stripe-signature").into_iter().flat_map(|text| text.split(','));
                let values = |name: &'static str| {
                    let pairs = items().filter_map(|item| item.trim().split_once('='));
                    pairs.filter(move |(key, _)| *key == name).map(|(_, value)| value)
                };
                let time = values("t").next().filter(|time| is_recent(time, now))?;
                Some(SignatureClaim::Tags {
                    prefix: format!("{time}."),
                    tags: values("v1").filter_map(hex).collect(),
                })
            }
            Self::Slack => {
                let time =
                    single(headers, "x-slack-request-timestamp").filter(|time| is_recent(time, now))?;
                let tag = single(headers, "x-slack-signature")?.strip_prefix("v0=").and_then(hex)?;
                Some(SignatureClaim::Tags { prefix: format!("v0:{time}:"), tags: vec![tag] })
            }
            Self::Standard => {
                let time = single(headers, "webhook-timestamp").filter(|time| is_recent(time, now))?;
                let id = single(headers, "webhook-id")?;
                let signatures = single(headers, "webhook-signature")?.split(' ');
                let tags = signatures.filter_map(|text| STANDARD.decode(text.strip_prefix("v1,")?).ok());
                Some(SignatureClaim::Tags { prefix: format!("{id}.{time}."), tags: tags.collect() })
            }
            Self::Bearer => {
                let (scheme, token) = single(headers, header::AUTHORIZATION.as_str())?.split_once(' ')?;
                let is_right = scheme.eq_ignore_ascii_case("bearer") && keys.have_token(token.trim());
                is_right.then_some(SignatureClaim::Token)
            }
        }
    }
}

impl Keys {
    /// True if the claim holds for this body.
    pub(super) fn verify(&self, claim: &SignatureClaim, body: &[u8]) -> bool {
        match (self, claim) {
            (Self::Macs(keys), SignatureClaim::Tags { prefix, tags }) => keys.iter().any(|key| {
                let mut context = hmac::Context::with_key(key);
                context.update(prefix.as_bytes());
                context.update(body);
                let expected = context.sign();
                tags.iter().any(|tag| is_same(tag, expected.as_ref()))
            }),
            (Self::Tokens(_), SignatureClaim::Token) => true,
            (Self::Macs(_), SignatureClaim::Token) | (Self::Tokens(_), SignatureClaim::Tags { .. }) => false,
        }
    }

    fn have_token(&self, token: &str) -> bool {
        match self {
            Self::Macs(_) => false,
            Self::Tokens(secrets) => {
                secrets.iter().any(|secret| is_same(secret.reveal().as_bytes(), token.as_bytes()))
            }
        }
    }
}

/// The value of a header that is there once: of two, a proxy and this service might read different ones.
pub(super) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// True if this number of seconds since 1970 is about now.
fn is_recent(seconds: &str, now: Timestamp) -> bool {
    let now = now.ms_since(Timestamp::default()) / 1_000;
    let is_number = seconds.bytes().all(|byte| byte.is_ascii_digit());
    is_number && seconds.parse::<u64>().is_ok_and(|seconds| seconds.abs_diff(now) <= MAX_SKEW_S)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        let mut map = HeaderMap::new();
        pairs.iter().map(pair).for_each(|(name, value)| {
            map.append(name, value);
        });
        map
    }

    #[track_caller]
    fn check(
        scheme: SignatureScheme,
        (secrets, seconds): (&[&str], i64),
        (pairs, body): (&[(&'static str, &str)], &str),
        expect: bool,
    ) {
        let keys = scheme.keys(secrets.iter().map(|secret| Secret::new(*secret)).collect()).ok().unwrap();
        let claim = scheme.claim(&keys, &headers(pairs), Timestamp(seconds * 1_000));
        let holds = claim.is_some_and(|claim| keys.verify(&claim, body.as_bytes()));
        assert_eq!(holds, expect, "{scheme:?} {seconds} {pairs:?}");
    }

    /// The example of GitHub's page "Validating webhook deliveries".
    #[test]
    fn github_signs_as_it_documents() {
        const SECRET: &str = "It's a Secret to Everybody";
        const TAG: &str = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        const NAME: &str = "x-hub-signature-256";
        let check = |secrets: &[&str], pairs: &[(&'static str, &str)], body: &str, expect: bool| {
            check(SignatureScheme::Github, (secrets, 0), (pairs, body), expect);
        };
        check(&[SECRET], &[(NAME, TAG)], "Hello, World!", true);
        check(&["new", SECRET], &[(NAME, TAG)], "Hello, World!", true);
        check(&["new"], &[(NAME, TAG)], "Hello, World!", false);
        check(&[SECRET], &[(NAME, TAG)], "Hello, World?", false);
        check(&[SECRET], &[], "Hello, World!", false);
        check(&[SECRET], &[(NAME, TAG), (NAME, TAG)], "Hello, World!", false);
        check(&[SECRET], &[(NAME, &TAG[..TAG.len() - 2])], "Hello, World!", false);
        check(&[SECRET], &[(NAME, &TAG.replace("sha256=", "sha1="))], "Hello, World!", false);
        check(&[SECRET], &[("x-hub-signature", TAG)], "Hello, World!", false);
    }

    /// Signed with Python's `hmac`, by the description on Stripe's page "Verify webhook signatures manually".
    #[test]
    fn stripe_signs_as_it_documents() {
        const BODY: &str = r#"{"id":"evt_1","object":"event","type":"charge.succeeded","amount":1000}"#;
        const SECRET: &str = "webhook_secret";
        const TIME: i64 = 1_533_204_620;
        const RIGHT: &str = "v1=6b0ca51a93cf8ef004737454e4977a70597aed869756cbfee612c2cea2ce1ef0";
        const WRONG: &str = "v1=2d0d175ffdb48d1d5c3ba1eb1cbd6f45682eed62fdfaaa5bc88e6587b633e683";
        let check = |secret: &str, now: i64, header: &str, body: &str, expect: bool| {
            let request: (&[_], _) = (&[("stripe-signature", header)], body);
            check(SignatureScheme::Stripe, (&[secret], now), request, expect);
        };
        let header = format!("t={TIME},{RIGHT},{}", WRONG.replace("v1", "v0"));
        check(SECRET, TIME, &header, BODY, true);
        check(SECRET, TIME + 300, &header, BODY, true);
        check(SECRET, TIME + 301, &header, BODY, false);
        check(SECRET, TIME - 301, &header, BODY, false);
        check("other", TIME, &header, BODY, false);
        check(SECRET, TIME, &header, &BODY.replace("1000", "9999"), false);
        // While a secret is rolled, there is a signature of each.
        check(SECRET, TIME, &format!("t={TIME},{WRONG},{RIGHT}"), BODY, true);
        check(SECRET, TIME, &format!("t={TIME},{WRONG}"), BODY, false);
        check(SECRET, TIME, &format!("t={TIME},{}", RIGHT.replace("v1", "v0")), BODY, false);
        check(SECRET, TIME, RIGHT, BODY, false);
        check(SECRET, TIME, &format!("t=+{TIME},{RIGHT}"), BODY, false);
        check(SECRET, TIME, "", BODY, false);
    }

    /// The example of Slack's page "Verifying requests from Slack".
    #[test]
    fn slack_signs_as_it_documents() {
        const BODY: &str = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
            &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A\
            %2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.474\
            45629121.803a0bc887a14d10d2c447fce8b6703c";
        const SECRET: &str = "8f742231b10e8888abcd99yyyzzz85a5";
        const TAG: &str = "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503";
        const TIME: i64 = 1_531_420_618;
        let check = |secret: &str, now: i64, (time, tag): (&str, &str), expect: bool| {
            let pairs: &[_] = &[("x-slack-request-timestamp", time), ("x-slack-signature", tag)];
            check(SignatureScheme::Slack, (&[secret], now), (pairs, BODY), expect);
        };
        check(SECRET, TIME, ("1531420618", TAG), true);
        check(SECRET, TIME - 300, ("1531420618", TAG), true);
        check(SECRET, TIME + 301, ("1531420618", TAG), false);
        check(SECRET, TIME, ("1531420619", TAG), false);
        check(SECRET, TIME, ("-1531420618", TAG), false);
        check("other", TIME, ("1531420618", TAG), false);
        check(SECRET, TIME, ("1531420618", &TAG.replace("v0", "v1")), false);
    }

    /// The example of the reference libraries of Standard Webhooks.
    #[test]
    fn standard_webhooks_are_signed_as_specified() {
        const BODY: &str = r#"{"test": 2432232314}"#;
        const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        const TAG: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        const TIME: i64 = 1_614_265_330;
        let check = |now: i64, id: &str, tags: &str, expect: bool| {
            let pairs: &[_] =
                &[("webhook-id", id), ("webhook-timestamp", "1614265330"), ("webhook-signature", tags)];
            check(SignatureScheme::Standard, (&[SECRET], now), (pairs, BODY), expect);
        };
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        check(TIME, id, TAG, true);
        check(TIME, id, &format!("v1a,AAAA v1,AAAA {TAG}"), true);
        check(TIME, id, "v1a,AAAA v1,AAAA", false);
        check(TIME, "msg_other", TAG, false);
        check(TIME + 301, id, TAG, false);
    }

    #[test]
    fn a_bearer_token_is_the_secret() {
        let check = |pairs: &[(&'static str, &str)], expect: bool| {
            check(SignatureScheme::Bearer, (&["new-token", "old-token"], 0), (pairs, "{}"), expect);
        };
        check(&[("authorization", "Bearer old-token")], true);
        check(&[("authorization", "bearer new-token")], true);
        check(&[("authorization", "Bearer new-toke")], false);
        check(&[("authorization", "Basic new-token")], false);
        check(&[("authorization", "Bearer new-token"), ("authorization", "Bearer new-token")], false);
        check(&[], false);
    }
}

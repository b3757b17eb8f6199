//! Sends messages as e-mail by SMTP. The id of the letter is made of the message's, so a receiver can see a repeat.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use hermod_actors::model::{OutboxContent, OutboxMessage, Timestamp};
use lettre::{
    Message, SmtpTransport, Transport as _,
    message::{
        Attachment as LetterAttachment, Mailbox, Mailboxes, MultiPart, SinglePart,
        header::{ContentType, HeaderName, HeaderValue},
    },
    transport::smtp::{
        Error,
        authentication::Credentials,
        client::{Tls, TlsParameters},
    },
};
use minijinja::value::{Serde, Value};

use super::{attachments::AttachedFile, payload::payload, verdict::SendResult};
use crate::{
    config::{MailTls, TargetSection},
    excerpt::first_chars,
    redaction,
    secret::Secret,
    text_template,
};

/// Most characters of a subject.
const MAX_SUBJECT_CHARS: usize = 120;
/// Most characters of what a server says.
const MAX_REPLY_CHARS: usize = 300;

/// A target of kind `email`.
pub(super) struct Email {
    transport: SmtpTransport,
    from: Mailbox,
    to: Mailboxes,
    /// The template of the subject; without one it is the first line.
    subject: Option<String>,
}

impl Email {
    /// Touches no network. The error does not contain the password. `None` if the section is not complete.
    pub(super) fn new(
        section: &TargetSection,
        password: Option<&Secret>,
        timeout: Duration,
    ) -> Result<Option<Self>, String> {
        let (Some(server), Some(from), Some(to)) = (&section.server, &section.from, &section.to) else {
            return Ok(None);
        };
        let server = server.0.as_str();
        let mode = section.mail_tls();
        let parameters = || {
            let built = TlsParameters::builder(server.to_owned()).build_rustls();
            built.map_err(|error| format!("server: TLS with `{server}` cannot be set up: {error}"))
        };
        let tls = match mode {
            MailTls::Implicit => Tls::Wrapper(parameters()?),
            MailTls::Starttls => Tls::Required(parameters()?),
            MailTls::None => Tls::None,
        };
        let port = section.port.map_or_else(|| mode.default_port(), |port| port.0);
        let builder = SmtpTransport::builder_dangerous(server).port(port).tls(tls).timeout(Some(timeout));
        let builder = match (&section.user, password) {
            (Some(user), Some(password)) => {
                builder.credentials(Credentials::new(user.0.clone(), password.reveal().to_owned()))
            }
            (None, _) | (_, None) => builder,
        };
        Ok(Some(Self {
            transport: builder.build(),
            from: from.0.clone(),
            to: to.0.clone(),
            subject: section.subject.as_ref().map(|subject| subject.0.clone()),
        }))
    }

    /// Makes one attempt. Blocks for as long as the server does; each of its replies within the time limit.
    pub(super) fn send(&self, message: &OutboxMessage, files: &[AttachedFile]) -> SendResult {
        let letter = match self.letter(message, files) {
            Ok(letter) => letter,
            Err(why) => return SendResult::Permanent { why },
        };
        match self.transport.send(&letter) {
            Ok(_) => SendResult::Delivered,
            Err(error) => failure(&error),
        }
    }

    fn letter(&self, message: &OutboxMessage, files: &[AttachedFile]) -> Result<Message, String> {
        let subject = match &self.subject {
            None => first_line(message),
            Some(template) => {
                let values = Value::from(Serde(values(message)));
                text_template::fill(template, &values).map_err(|why| format!("subject: {why}"))?
            }
        };
        let subject = subject.split_whitespace().collect::<Vec<_>>().join(" ");
        let auto =
            HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned());
        let mut builder = Message::builder()
            .message_id(Some(format!("<{}@{}>", message.id, self.from.email.domain())))
            .date(date(message.created_at))
            .from(self.from.clone())
            .subject(first_chars(&subject, MAX_SUBJECT_CHARS))
            // So that no absence note answers it.
            .raw_header(auto);
        for mailbox in self.to.iter() {
            builder = builder.to(mailbox.clone());
        }
        let letter = if files.is_empty() {
            builder.header(ContentType::TEXT_PLAIN).body(body(message))
        } else {
            let mut parts = MultiPart::mixed().singlepart(SinglePart::plain(body(message)));
            for file in files {
                let media_type = ContentType::parse(file.media_type)
                    .map_err(|error| format!("{}: {error}", file.media_type))?;
                let part = LetterAttachment::new(file.name.clone());
                parts = parts.singlepart(part.body(file.bytes.to_vec(), media_type));
            }
            builder.multipart(parts)
        };
        letter.map_err(|error| format!("it cannot be made a letter: {error}"))
    }
}

/// What a template of a subject is filled with.
fn values(message: &OutboxMessage) -> serde_json::Value {
    let mut sent = payload(message);
    let kind = sent["type"].take();
    let mut values = sent["data"].take();
    values["type"] = kind;
    values["first_line"] = first_line(message).into();
    values
}

/// The first line of the text that is not blank.
fn first_line(message: &OutboxMessage) -> String {
    let line = message.text().lines().map(str::trim).find(|line| !line.is_empty());
    line.map_or_else(|| heading(message).unwrap_or_else(|| "message".to_owned()), str::to_owned)
}

/// How the run has ended, of which this is the result.
fn heading(message: &OutboxMessage) -> Option<String> {
    match &message.content {
        OutboxContent::Message { .. } | OutboxContent::Notice { .. } => None,
        OutboxContent::Result { ended, .. } => Some(format!("run {}: {ended}", message.run)),
    }
}

fn body(message: &OutboxMessage) -> String {
    let text = message.text();
    let cut = match &message.content {
        OutboxContent::Result { truncated: true, .. } => "\n[the text is longer]",
        OutboxContent::Result { .. } | OutboxContent::Message { .. } | OutboxContent::Notice { .. } => "",
    };
    match heading(message) {
        Some(heading) => format!("{heading}\n\n{text}{cut}\n"),
        None => format!("{text}\n"),
    }
}

fn date(at: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.ms_since(Timestamp::default()))
}

/// A refusal for good makes a dead letter; all else may be different later.
fn failure(error: &Error) -> SendResult {
    let words = error.to_string();
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let words = redaction::of_process().redact(&words).into_owned();
    let why = first_chars(&words, MAX_REPLY_CHARS).into_owned();
    match error.is_permanent() {
        true => SendResult::Permanent { why },
        false => SendResult::Temporary { why, pause: None },
    }
}

/// True if this name leads to this machine.
pub(crate) fn is_loopback(server: &str) -> bool {
    server == "localhost" || server.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

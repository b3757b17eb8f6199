//! The targets of a configuration, ready to be sent to.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use hermod_actors::model::OutboxMessage;

use super::{
    attachments::AttachmentFiles,
    blocking_slot::{BlockingSlot, SharedOutput},
    chat::ChatOutputs,
    email::Email,
    folder,
    payload::payload,
    signature::SigningKey,
    verdict::{DeliveryLimits, SendResult},
    webhook::{self, Webhook},
};
use crate::{
    config::{CHANNEL_TARGET, Config, DeliverySection, TargetKind, TargetKindName, TargetSection},
    redaction,
    secret::{Reference, Secret},
};

/// The targets of a configuration by name.
#[derive(Debug, Default)]
pub struct Targets {
    pub(super) ready: BTreeMap<Arc<str>, Arc<Target>>,
    /// Those that cannot be used now, each with the reason. Their messages wait.
    pub unusable: Vec<(String, String)>,
    /// The names of all that are configured.
    pub(super) known: Arc<BTreeSet<Arc<str>>>,
    /// The age after which messages for other targets are dead; `None` in a process that does not decide that.
    pub(super) abandoned_after: Option<Duration>,
}

/// A target.
pub(super) struct Target {
    pub(super) limits: DeliveryLimits,
    channel: Destination,
    files: AttachmentFiles,
}

enum Destination {
    Webhook(Box<Webhook>),
    Folder(PathBuf, BlockingSlot),
    Email(Arc<Email>, BlockingSlot),
    Output(SharedOutput),
    /// A chat of the channel with this name; without a chat, that of the message's session.
    Chat {
        outputs: Arc<ChatOutputs>,
        channel: Arc<str>,
        chat: Option<String>,
    },
}

/// What targets within the process need. Without one of these, messages for such targets wait.
#[derive(Debug, Clone, Default)]
pub struct TargetOutputs {
    /// Where messages for standard output go.
    pub lines: Option<SharedOutput>,
    /// The channels with chats.
    pub chats: Option<Arc<ChatOutputs>>,
}

impl Targets {
    /// Resolves the secrets of the targets, which become known to this process's redaction. Touches no network. Each channel
    /// is a target too: its runs deliver to their chats. Without outputs, which only a service has, messages for them wait.
    pub fn resolve(
        config: &Config,
        variables: &BTreeMap<String, String>,
        outputs: &TargetOutputs,
        state: &Path,
    ) -> Self {
        let files = AttachmentFiles::at(state);
        let known = config.targets.keys().map(|name| name.as_str().into());
        let of_channels = config.channels.keys().map(|name| format!("{CHANNEL_TARGET}{name}").into());
        let known = known.chain(of_channels).collect::<BTreeSet<_>>();
        let abandoned_after = outputs.lines.as_ref().map(|_| config.delivery.max_age.0);
        let mut targets = Self { known: known.into(), abandoned_after, ..Self::default() };
        for (name, section) in &config.targets {
            match target((config, &files), section, variables, outputs) {
                Ok(Some(target)) => drop(targets.ready.insert(name.as_str().into(), Arc::new(target))),
                Ok(None) => {}
                Err(reason) => targets.unusable.push((name.clone(), reason)),
            }
        }
        for (name, chats) in config.channels.keys().filter_map(|name| Some((name, outputs.chats.as_ref()?))) {
            let channel =
                Destination::Chat { outputs: Arc::clone(chats), channel: name.as_str().into(), chat: None };
            let target = Target { limits: limits(config.delivery), channel, files: files.clone() };
            targets.ready.insert(format!("{CHANNEL_TARGET}{name}").into(), Arc::new(target));
        }
        targets
    }
}

/// The names of the configured targets, each with what models read of it.
pub fn described_targets(config: &Config) -> Vec<(String, String)> {
    let describe =
        |section: &TargetSection| section.description.clone().map(|text| text.0).unwrap_or_default();
    config.targets.iter().map(|(name, section)| (name.clone(), describe(section))).collect()
}

/// A target that is ready; `None` if this process does not serve targets of its kind.
fn target(
    (config, files): (&Config, &AttachmentFiles),
    section: &TargetSection,
    variables: &BTreeMap<String, String>,
    outputs: &TargetOutputs,
) -> Result<Option<Target>, String> {
    let section_limits = section.limits(&config.delivery);
    // The check of the configuration has found these keys.
    let missing = || "its section is not complete".to_owned();
    let channel = match section.kind.as_ref().map(|TargetKindName(kind)| kind).ok_or_else(missing)? {
        TargetKind::Webhook => {
            let (url, reference) = section.url.as_ref().zip(section.secret.as_ref()).ok_or_else(missing)?;
            let secret = resolved("secret", &reference.0, variables)?;
            redaction::learn_url("url", &url.0);
            let key =
                SigningKey::of_secret(&secret).map_err(|why| format!("secret: {}: {why}", reference.0))?;
            Destination::Webhook(Box::new(Webhook::new(&url.0, key, section_limits.timeout.0)?))
        }
        TargetKind::Folder => {
            let path = section.path.as_ref().and_then(|path| path.0.clone());
            Destination::Folder(path.ok_or_else(missing)?, BlockingSlot::default())
        }
        TargetKind::Email => {
            let password = section.password.as_ref();
            let password =
                password.map(|reference| resolved("password", &reference.0, variables)).transpose()?;
            let email =
                Email::new(section, password.as_ref(), section_limits.timeout.0)?.ok_or_else(missing)?;
            Destination::Email(Arc::new(email), BlockingSlot::default())
        }
        TargetKind::Telegram => {
            let (name, chat) = section.channel.as_ref().zip(section.chat.as_ref()).ok_or_else(missing)?;
            let Some(outputs) = outputs.chats.as_ref().map(Arc::clone) else { return Ok(None) };
            Destination::Chat { outputs, channel: name.0.as_str().into(), chat: Some(chat.0.clone()) }
        }
        TargetKind::Stdout => match &outputs.lines {
            Some(output) => Destination::Output(output.clone()),
            None => return Ok(None),
        },
    };
    Ok(Some(Target { limits: limits(section_limits), channel, files: files.clone() }))
}

fn limits(section: DeliverySection) -> DeliveryLimits {
    DeliveryLimits {
        attempts: section.attempts.0,
        max_age: section.max_age.0,
        timeout: section.timeout.0,
        first_pause: section.first_pause.0,
        longest_pause: section.longest_pause.0,
    }
}

/// The secret of a key, which becomes known to this process's redaction.
fn resolved(
    key: &str,
    reference: &Reference,
    variables: &BTreeMap<String, String>,
) -> Result<Secret, String> {
    let secret = reference.resolve(variables).map_err(|missing| format!("{key}: {missing}"))?;
    redaction::of_process().learn_all([(&*reference.to_string(), &secret)]);
    Ok(secret)
}

impl Target {
    /// Makes one attempt.
    pub(super) async fn send(&self, message: &OutboxMessage) -> SendResult {
        let files = match &self.channel {
            // It says the names and sizes alone.
            Destination::Output(_) => Ok(Vec::new()),
            Destination::Webhook(_) => match webhook::check_files(message) {
                Ok(()) => self.files.load(message).await,
                Err(refused) => Err(refused),
            },
            Destination::Folder(..) | Destination::Email(..) | Destination::Chat { .. } => {
                self.files.load(message).await
            }
        };
        let files = match files {
            Ok(files) => files,
            Err(result) => return result,
        };
        match &self.channel {
            Destination::Webhook(webhook) => webhook.send(message, &files).await,
            Destination::Folder(folder, slot) => {
                let (folder, message) = (folder.clone(), message.clone());
                slot.run(self.limits.timeout, move || folder::write(&folder, &message, &files)).await
            }
            Destination::Email(email, slot) => {
                let (email, message) = (Arc::clone(email), message.clone());
                slot.run(self.limits.timeout, move || email.send(&message, &files)).await
            }
            Destination::Output(output) => {
                output.write(self.limits.timeout, payload(message).to_string()).await
            }
            Destination::Chat { outputs, channel, chat } => {
                outputs.send(channel, chat.as_deref(), (message, &files)).await
            }
        }
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target").field("limits", &self.limits).finish_non_exhaustive()
    }
}

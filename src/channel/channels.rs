//! The channels of a configuration: started with the service, exchanged by a reload, stopped at its end.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time::timeout};
use tokio_util::sync::CancellationToken;

use super::{
    chat_channel::{Channel, FrontDoor, Health},
    inbound,
    outbox::ChannelOutput,
    port::ChatTransport,
    records,
    replies::ReplyMessages,
    state::StateFile,
    telegram::{self, Telegram},
};
use crate::{
    clock,
    config::{CHANNEL_TARGET, ChannelKind, ChannelSection},
    delivery::{ChatOutput, ChatOutputs},
    host::{NoteSink, RunSettings},
    redaction,
    secret::{Secret, is_same},
    view::{ChannelStateView, ChannelView},
};

/// The folder of the state directory in which channels keep their state.
const FOLDER: &str = "channels";
/// How long the end of a channel is waited for.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// The adapter of a kind of channel, for a base URL and a token.
fn transport(kind: ChannelKind, url: Option<&str>, token: Secret) -> Result<Arc<dyn ChatTransport>, String> {
    match kind {
        ChannelKind::Telegram => Ok(Arc::new(Telegram::new(url.unwrap_or(telegram::URL), token)?)),
    }
}

/// The channels of a running service.
#[derive(Debug)]
pub struct Channels {
    door: FrontDoor,
    folder: PathBuf,
    outputs: Arc<ChatOutputs>,
    notes: Arc<dyn NoteSink>,
    running: Mutex<BTreeMap<String, RunningChannel>>,
    unusable: Mutex<Vec<ChannelView>>,
    /// Held during an exchange.
    exchanging: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct RunningChannel {
    channel: Arc<Channel>,
    token: Secret,
    closing: CancellationToken,
    tasks: Vec<JoinHandle<()>>,
}

impl Channels {
    /// Starts the channels of the present settings. Their chats are the outputs of deliveries from now on.
    pub async fn start(
        door: FrontDoor,
        outputs: Arc<ChatOutputs>,
        notes: Arc<dyn NoteSink>,
        state: PathBuf,
    ) -> Self {
        let settings = door.submitter.settings();
        let channels = Self {
            door,
            folder: state.join(FOLDER),
            outputs,
            notes,
            running: Mutex::default(),
            unusable: Mutex::default(),
            exchanging: tokio::sync::Mutex::default(),
        };
        channels.exchange(&settings).await;
        channels
    }

    /// Exchanges the channels for those of these settings. Channels that are the same go on. One that cannot be used is
    /// noted.
    pub async fn exchange(&self, settings: &RunSettings) {
        let _one_at_a_time = self.exchanging.lock().await;
        let mut earlier = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        let (mut running, mut unusable) = (BTreeMap::new(), Vec::new());
        for (name, section) in &settings.config.channels {
            let known = earlier.remove(name);
            match self.channel(name, section, settings, known).await {
                Ok(channel) => drop(running.insert(name.clone(), channel)),
                Err(error) => {
                    self.notes.note(&format!("channel   {name} is not used: {error}"));
                    unusable.push(unusable_view(name, section, error));
                }
            }
        }
        for (_, ended) in earlier {
            ended.stop().await;
        }
        let output = |running: &RunningChannel| -> Arc<dyn ChatOutput> {
            Arc::new(ChannelOutput(Arc::clone(&running.channel)))
        };
        let outputs = running.iter().map(|(name, running)| (name.as_str().into(), output(running)));
        self.outputs.exchange(outputs.collect());
        *self.running.lock().unwrap_or_else(PoisonError::into_inner) = running;
        *self.unusable.lock().unwrap_or_else(PoisonError::into_inner) = unusable;
    }

    /// A channel that runs: the known one if nothing of it has changed.
    async fn channel(
        &self,
        name: &str,
        section: &ChannelSection,
        settings: &RunSettings,
        known: Option<RunningChannel>,
    ) -> Result<RunningChannel, String> {
        let resolved = resolve_token(name, section, settings);
        if let Some(known) = known {
            let is_same_token =
                |token: &Secret| is_same(token.reveal().as_bytes(), known.token.reveal().as_bytes());
            if known.channel.section == *section && resolved.as_ref().is_ok_and(is_same_token) {
                return Ok(known);
            }
            known.stop().await;
        }
        let kind = section.kind.ok_or("its section is not complete")?;
        let token = resolved?;
        let url = section.url.as_ref().map(|url| url.0.as_str());
        let state = StateFile::open(&self.folder, name).map_err(|error| {
            let path = self.folder.join(format!("{name}.json"));
            format!("{}: {error}; remove the file to begin anew", path.display())
        })?;
        let channel = Arc::new(Channel {
            name: name.into(),
            kind: kind.into(),
            target: format!("{CHANNEL_TARGET}{name}"),
            section: section.clone(),
            transport: transport(kind, url, token.clone())?,
            door: self.door.clone(),
            state,
            replies: ReplyMessages::default(),
            health: Health::new(),
        });
        Ok(RunningChannel::start(channel, token))
    }

    /// The channels as they are shown.
    pub fn views(&self) -> Vec<ChannelView> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let mut views: Vec<ChannelView> = running.values().map(|running| running.channel.view()).collect();
        drop(running);
        views.extend(self.unusable.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned());
        views
    }

    /// Ends the channels. What they were doing is done again by the next process.
    pub async fn stop(&self) {
        let running = std::mem::take(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner));
        for (_, channel) in running {
            channel.stop().await;
        }
    }
}

impl RunningChannel {
    fn start(channel: Arc<Channel>, token: Secret) -> Self {
        let closing = CancellationToken::new();
        let receiving =
            closing.clone().run_until_cancelled_owned(Box::pin(inbound::receive(Arc::clone(&channel))));
        let watching = records::watch(Arc::clone(&channel), closing.clone());
        let receiving = async {
            let _ended = receiving.await;
        };
        let tasks = vec![tokio::spawn(receiving), tokio::spawn(watching)];
        Self { channel, token, closing, tasks }
    }

    async fn stop(self) {
        self.closing.cancel();
        for task in self.tasks {
            if timeout(STOP_TIMEOUT, task).await.is_err() {
                tracing::warn!(channel = &*self.channel.name, "a channel does not end");
            }
        }
    }
}

/// The token of a channel, which becomes known to this process's redaction.
fn resolve_token(name: &str, section: &ChannelSection, settings: &RunSettings) -> Result<Secret, String> {
    let reference = &section.token.as_ref().ok_or("its section is not complete")?.0;
    let token = reference.resolve(&settings.variables).map_err(|missing| format!("token: {missing}"))?;
    redaction::of_process().learn_all([(format!("channels.{name}.token").as_str(), &token)]);
    Ok(token)
}

fn unusable_view(name: &str, section: &ChannelSection, error: String) -> ChannelView {
    ChannelView {
        name: name.to_owned(),
        kind: section.kind.map(<&'static str>::from).unwrap_or_default().to_owned(),
        bot: None,
        state: ChannelStateView::Unusable,
        since: clock::now(),
        error: Some(error),
    }
}

//! Tells hooks of commands of chats. They are no records of a session: each waits in a file of its own, for each hook, until
//! the hook has taken it. So a hook is told at least once, and no chat waits for it.

use std::{
    collections::BTreeSet,
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::{sync::Notify, time::sleep};

use super::{
    configured::ConfiguredHooks,
    hook::Hook,
    names::{HookName, HookRole, ObservedEvent},
    observer_pace::MAX_GIVEN_UP,
};
use crate::files::{self, IoResult as _, off_thread};

/// The folder of the state directory with the events that wait.
const FOLDER: &str = "commands";
/// Size limit of a file: a command has at most 4,096 characters.
const MAX_BYTES: u64 = 1 << 20;
/// Pauses before an event is told again. After the last one it is given up.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The hooks of the present configuration.
type PresentHooks = Box<dyn Fn() -> Arc<ConfiguredHooks> + Send + Sync>;

/// A command of a chat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEvent {
    /// Names it in this store, and sorts it among those of its channel: letters, digits, `-` and `_`.
    pub id: String,
    /// The command without its slash.
    pub command: String,
    /// What stands behind it.
    pub argument: String,
    /// The channel.
    pub channel: String,
    /// The chat.
    pub chat: String,
    /// The id of the person who has sent it.
    pub sender: String,
    /// The key of the session that the chat had then.
    pub session: String,
}

/// The events of commands that wait for their hooks.
pub struct CommandEvents {
    folder: PathBuf,
    hooks: PresentHooks,
    changed: Notify,
}

impl CommandEvents {
    /// Tells the hooks that `hooks` returns. Nothing is told before [`CommandEvents::tell`].
    pub fn new(state: &Path, hooks: impl Fn() -> Arc<ConfiguredHooks> + Send + Sync + 'static) -> Self {
        Self { folder: state.join(FOLDER), hooks: Box::new(hooks), changed: Notify::new() }
    }

    /// Keeps an event for each hook that is told of it. It is durable then; a repeat is the same event.
    pub async fn record(&self, event: CommandEvent) {
        let mut files = Vec::new();
        for hook in (self.hooks)().hooks() {
            for name in hook.on.iter().filter(|name| is_of(name, &event.command)) {
                let folder = self.folder.join(&*hook.name);
                let file = format!("{}-{}.json", event.id, name.name.replace(':', "_"));
                files.push((folder, file, event_json(name, hook, &event).to_string()));
            }
        }
        if files.is_empty() {
            return;
        }
        let written = off_thread(move || {
            files.into_iter().try_for_each(|(folder, file, text)| {
                files::make_folder(&folder)?;
                files::replace(&folder.join(&file), &folder.join(format!(".{file}.part")), text.as_bytes())
            })
        });
        if let Err(error) = written.await {
            tracing::error!(%error, "hooks are not told of a command: it cannot be written");
        }
        self.changed.notify_one();
    }

    /// Tells hooks of what waits, also of earlier processes, for ever.
    pub async fn tell(&self) {
        loop {
            let hooks = (self.hooks)();
            self.forget_others(&hooks).await;
            join_all(hooks.hooks().iter().map(|hook| self.tell_hook(hook))).await;
            self.changed.notified().await;
        }
    }

    async fn tell_hook(&self, hook: &Hook) {
        let folder = self.folder.join(&*hook.name);
        let listed = off_thread(move || files::entries_with_extension(&folder, "json")).await;
        let mut failed_in_row = 0;
        for path in listed.unwrap_or_default() {
            let read = path.clone();
            let text = off_thread(move || files::read_regular(&read, MAX_BYTES)).await;
            let event =
                text.and_then(|text| serde_json::from_slice::<Value>(&text).map_err(io::Error::other));
            match event {
                Ok(event) if !tell_several_times(hook, &event).await => {
                    failed_in_row += 1;
                    // It is told of the others with the next command.
                    if failed_in_row >= MAX_GIVEN_UP {
                        return;
                    }
                    hook.skip_event();
                }
                Ok(_) => failed_in_row = 0,
                Err(error) => {
                    tracing::error!(path = %path.display(), %error, "an event of a command is left out");
                }
            }
            if let Err(error) = off_thread(move || files::remove(&path)).await {
                tracing::error!(%error, "a hook may be told of a command again");
            }
        }
    }

    /// Removes what waits for hooks that are configured no more.
    async fn forget_others(&self, hooks: &ConfiguredHooks) {
        let known: BTreeSet<PathBuf> =
            hooks.hooks().iter().map(|hook| self.folder.join(&*hook.name)).collect();
        let folder = self.folder.clone();
        let removed = off_thread(move || {
            let others = files::entries(&folder).if_exists()?.unwrap_or_default();
            others.into_iter().filter(|path| !known.contains(path)).try_for_each(std::fs::remove_dir_all)
        });
        if let Err(error) = removed.await {
            tracing::warn!(%error, "events of commands for earlier hooks are not removed");
        }
    }
}

async fn tell_several_times(hook: &Hook, event: &Value) -> bool {
    for pause in PAUSES {
        if hook.tell(event).await.is_ok() {
            return true;
        }
        sleep(pause).await;
    }
    hook.tell(event).await.is_ok()
}

/// Whether a hook with this name is told of this command.
fn is_of(name: &HookName, command: &str) -> bool {
    let HookRole::Observes(ObservedEvent::Command(only)) = name.role else { return false };
    only.is_none_or(|only| only.contains(&command))
}

fn event_json(name: &HookName, hook: &Hook, event: &CommandEvent) -> Value {
    let CommandEvent { id, command, argument, channel, chat, sender, session } = event;
    json!({
        "id": format!("{id}/{}", name.name),
        "name": name.name,
        "hook": *hook.name,
        "command": command,
        "argument": argument,
        "channel": channel,
        "chat": chat,
        "sender": sender,
        "session_key": session,
    })
}

impl fmt::Debug for CommandEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandEvents").field("folder", &self.folder).finish_non_exhaustive()
    }
}

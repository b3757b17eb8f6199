//! Pages of the messages of a session. They are rendered from its records; a bounded number of marks remembers where the
//! rendering can begin, so that a page costs its own messages and those of the runs at its edges.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use crate::{
    lock,
    model::{Message, Record, Seq, SessionId},
    persistence::{replay, replay_page},
    runtime::{RunError, Runtime},
    turn::{ConversationMark, ConversationReader},
};

/// Messages between two marks of a session, at least.
const MARKED_MESSAGES: usize = 100;
/// Most marks of all sessions; those of sessions that were not read for the longest time go first.
const MAX_MARKS: usize = 20_000;
/// Most sessions with marks.
const MAX_MARKED_SESSIONS: usize = 2_000;

/// Messages of a conversation.
#[derive(Debug, Default)]
pub struct ConversationPage {
    /// The messages in their order, the imported history included.
    pub messages: Vec<Message>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

/// The end of a conversation.
#[derive(Debug, Default)]
pub struct ConversationEnd {
    /// The newest messages in their order.
    pub messages: Vec<Message>,
    /// Number of all messages.
    pub total: usize,
}

/// The marks of the sessions whose messages were read.
#[derive(Debug, Default)]
pub(crate) struct ConversationMarks(Mutex<SessionMarks>);

#[derive(Debug, Default)]
struct SessionMarks {
    /// By session: its marks in order, and when they were last used.
    sessions: BTreeMap<SessionId, (u64, Vec<ConversationMark>)>,
    /// Number of the marks.
    len: usize,
    /// Number of the uses.
    uses: u64,
}

impl SessionMarks {
    /// The last mark with at most this number of messages before it.
    fn find(&mut self, session: SessionId, messages: usize) -> Option<ConversationMark> {
        let (used, marks) = self.sessions.get_mut(&session)?;
        self.uses += 1;
        *used = self.uses;
        let behind = marks.partition_point(|mark| mark.messages <= messages);
        marks.get(behind.checked_sub(1)?).cloned()
    }

    /// Keeps a mark unless there is one close before it or behind it.
    fn add(&mut self, session: SessionId, mark: ConversationMark) {
        self.uses += 1;
        let (used, marks) = self.sessions.entry(session).or_default();
        *used = self.uses;
        let at = marks.partition_point(|known| known.messages <= mark.messages);
        let before = at.checked_sub(1).map_or(0, |before| marks[before].messages);
        if mark.messages - before < MARKED_MESSAGES {
            return;
        }
        marks.insert(at, mark);
        self.len += 1;
        while self.len > MAX_MARKS || self.sessions.len() > MAX_MARKED_SESSIONS {
            let Some(oldest) = self.sessions.iter().min_by_key(|(_, (used, _))| *used).map(|(id, _)| *id)
            else {
                return;
            };
            self.len -= self.sessions.remove(&oldest).map_or(0, |(_, marks)| marks.len());
        }
    }
}

impl ConversationMarks {
    fn find(&self, session: SessionId, messages: usize) -> Option<ConversationMark> {
        lock(&self.0).find(session, messages)
    }
}

/// Reads records to messages, and keeps marks on the way.
struct MarkingReader<'m> {
    marks: &'m ConversationMarks,
    session: SessionId,
    reader: ConversationReader,
    /// The first record to read.
    from: Seq,
    /// Number of the messages before.
    before: usize,
}

impl<'m> MarkingReader<'m> {
    /// Reads from the last mark with at most this number of messages before it, else from the beginning.
    fn new(marks: &'m ConversationMarks, session: SessionId, messages: usize) -> Self {
        let mark = marks.find(session, messages);
        let reader = match &mark {
            Some(mark) => ConversationReader::at(session, mark),
            None => ConversationReader::new(session),
        };
        let (from, before) = mark.map_or((1, 0), |mark| (mark.seq, mark.messages));
        Self { marks, session, reader, from, before }
    }

    fn read(&mut self, seq: Seq, record: &Record) -> Vec<Message> {
        if let Some(mark) = self.reader.mark_before(seq, record) {
            lock(&self.marks.0).add(self.session, mark);
        }
        self.reader.read(record)
    }
}

impl Runtime {
    /// At most `max` messages of a session behind the `first` first ones. Reads the records of these messages, at most
    /// 100 messages before, and the whole runs at both ends; on the first reading, all records before.
    pub async fn messages_page(
        &self,
        session: SessionId,
        first: usize,
        max: usize,
    ) -> Result<ConversationPage, RunError> {
        let mut reader = MarkingReader::new(&self.parts.conversation_marks, session, first);
        let mut page = PageCollector { skip: first - reader.before, max, page: ConversationPage::default() };
        let mut from = reader.from;
        while !page.page.has_more {
            let records = replay_page(&*self.parts.journal, session, from).await?;
            let Some((last, _)) = records.back() else {
                page.add(reader.reader.rest());
                break;
            };
            from = last + 1;
            for (seq, record) in records {
                page.add(reader.read(seq, &record));
                if page.page.has_more {
                    break;
                }
            }
        }
        Ok(page.page)
    }

    /// The newest messages of a session, at most `max`, also those of a run under way. Costs as
    /// [`Runtime::messages_page`] does.
    pub async fn newest_messages(&self, session: SessionId, max: usize) -> Result<ConversationEnd, RunError> {
        let (journal, marks) = (&*self.parts.journal, &self.parts.conversation_marks);
        let mut reader = MarkingReader::new(marks, session, usize::MAX);
        let (mut total, mut newest) = (reader.before, VecDeque::new());
        let mut add = |messages: Vec<Message>| {
            total += messages.len();
            newest.extend(messages);
            newest.drain(..newest.len().saturating_sub(max));
        };
        replay(journal, session, reader.from, |seq, record| add(reader.read(seq, &record))).await?;
        add(reader.reader.rest());
        let missing = total.min(max) - newest.len();
        let mut messages = Vec::new();
        if missing > 0 {
            // The first reading began behind them.
            let first = total - newest.len() - missing;
            messages = self.messages_page(session, first, missing).await?.messages;
        }
        messages.extend(newest);
        Ok(ConversationEnd { messages, total })
    }
}

/// Collects the messages of a page.
struct PageCollector {
    /// Number of the messages that come first and are before the page.
    skip: usize,
    max: usize,
    page: ConversationPage,
}

impl PageCollector {
    fn add(&mut self, messages: Vec<Message>) {
        let skipped = self.skip.min(messages.len());
        self.skip -= skipped;
        let space = self.max - self.page.messages.len();
        let mut rest = messages.into_iter().skip(skipped);
        self.page.messages.extend(rest.by_ref().take(space));
        self.page.has_more |= rest.next().is_some();
    }
}

//! Finds a run or a session by a part of its id: the end, as lists and trees show it, or the beginning. Ids begin with their
//! time, so a beginning is a range of ids.

use std::collections::BTreeSet;

use hermod_actors::model::{RunId, RunRow, SessionId, SessionRow};

use super::{
    error::RequestError,
    reader::{ResolvedId, StoreReader},
};

/// Characters of an id.
const ID_CHARS: usize = 26;
/// Lengths of an end that names a run or a session, in characters.
const SUFFIX_CHARS: std::ops::Range<usize> = 6..ID_CHARS;
/// The shortest beginning that names a run or a session: ten characters are the time of the id.
const MIN_PREFIX_CHARS: usize = 8;
/// Number of the newest runs, and of the newest sessions, among which an end is searched. The unfinished runs are searched
/// too.
const MAX_SUFFIX_CANDIDATES: usize = 5_000;

impl StoreReader {
    /// The only run or session whose id ends with `part`, else the only one whose id begins with it; an error if there are
    /// several.
    pub(super) async fn find_by_part(&self, part: &str) -> Result<Option<ResolvedId>, RequestError> {
        if !part.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Ok(None);
        }
        if SUFFIX_CHARS.contains(&part.len())
            && let Some(found) = self.by_suffix(part).await?
        {
            return Ok(Some(found));
        }
        self.by_prefix(part).await
    }

    async fn by_suffix(&self, suffix: &str) -> Result<Option<ResolvedId>, RequestError> {
        let mut runs = self.read(|rows| rows.runs(None, MAX_SUFFIX_CANDIDATES)).await?;
        runs.extend(self.read(|rows| rows.open_runs()).await?);
        let mut sessions = self.read(|rows| rows.sessions(MAX_SUFFIX_CANDIDATES)).await?;
        let upper = suffix.to_ascii_uppercase();
        runs.retain(|row| row.id.to_string().ends_with(&upper));
        runs.sort_by_key(|row| row.id);
        runs.dedup_by_key(|row| row.id);
        sessions.retain(|row| row.id.to_string().ends_with(&upper));
        only(runs, sessions, ("end with", suffix))
    }

    async fn by_prefix(&self, prefix: &str) -> Result<Option<ResolvedId>, RequestError> {
        let Some((first, last)) = ids_with_prefix(prefix) else { return Ok(None) };
        let Some(behind) = last.checked_add(1) else { return Ok(None) };
        // Two of each show whether there are several.
        let mut runs = self.read(|rows| rows.runs_before(RunId::from_bits(behind), 2)).await?;
        runs.retain(|row| row.id.bits() >= first);
        let mut sessions = self.read(|rows| rows.sessions_before(SessionId::from_bits(behind), 2)).await?;
        sessions.retain(|row| row.id.bits() >= first);
        only(runs, sessions, ("begin with", prefix))
    }
}

/// The run or the session that is meant. A run and its own session are one conversation, which the run names.
fn only(
    mut runs: Vec<RunRow>,
    mut sessions: Vec<SessionRow>,
    (how, part): (&str, &str),
) -> Result<Option<ResolvedId>, RequestError> {
    let conversations: BTreeSet<SessionId> =
        runs.iter().map(|run| run.session).chain(sessions.iter().map(|session| session.id)).collect();
    match (runs.len(), sessions.len()) {
        (0, 0) => Ok(None),
        (1, 0 | 1) if conversations.len() == 1 => Ok(runs.pop().map(|run| ResolvedId::Run(Box::new(run)))),
        (0, 1) => Ok(sessions.pop().map(ResolvedId::Session)),
        _ => Err(RequestError::usage(format!(
            "several runs or sessions have ids that {how} `{part}`; name one by more of it"
        ))),
    }
}

/// The smallest and the largest id with this beginning; `None` if no id begins so, or if it is too short.
fn ids_with_prefix(prefix: &str) -> Option<(u128, u128)> {
    if !(MIN_PREFIX_CHARS..ID_CHARS).contains(&prefix.len()) {
        return None;
    }
    let padded = |with: &str| {
        let text = prefix.to_ascii_uppercase() + &with.repeat(ID_CHARS - prefix.len());
        // A text of more than 128 bits is parsed to other bits.
        text.parse::<RunId>().ok().filter(|id| id.to_string() == text).map(RunId::bits)
    };
    Some((padded("0")?, padded("Z")?))
}

#[cfg(test)]
mod tests {
    use hermod_actors::model::Timestamp;

    use super::*;

    #[test]
    fn a_beginning_is_a_range_of_ids() {
        let text = |bits| RunId::from_bits(bits).to_string();
        let (first, last) = ids_with_prefix("01M83K9RFSZ").unwrap();
        assert_eq!(text(first), "01M83K9RFSZ000000000000000");
        assert_eq!(text(last), "01M83K9RFSZZZZZZZZZZZZZZZZ");
        assert_eq!(ids_with_prefix("01m83k9rfsz"), Some((first, last)));
        for other in ["01M83K9", "01M83K9RFSZNSS6F81P7NA7B9M", "", "8ZZZZZZZZZZZ", "01M83K9RFSU"] {
            assert_eq!(ids_with_prefix(other), None, "{other}");
        }
    }

    #[test]
    fn a_part_names_one_conversation() {
        let run =
            |id, session| RunRow::new(RunId::from_bits(id), SessionId::from_bits(session), Timestamp(0), 1);
        let session = |id| SessionRow::new(SessionId::from_bits(id), "key", Timestamp(0));
        let check =
            |runs: Vec<RunRow>, sessions: Vec<SessionRow>, expect: Result<Option<(u128, bool)>, &str>| {
                let found = only(runs, sessions, ("end with", "ABCDEF")).map(|found| {
                    found.map(|found| match found {
                        ResolvedId::Run(row) => (row.id.bits(), true),
                        ResolvedId::Session(row) => (row.id.bits(), false),
                    })
                });
                assert_eq!(
                    found.as_ref().map_err(|error| error.text.as_str()),
                    expect.as_ref().map_err(|text| *text)
                );
            };
        let several = "several runs or sessions have ids that end with `ABCDEF`; name one by more of it";
        check(vec![], vec![], Ok(None));
        check(vec![run(1, 2)], vec![], Ok(Some((1, true))));
        check(vec![], vec![session(2)], Ok(Some((2, false))));
        check(vec![run(1, 2)], vec![session(2)], Ok(Some((1, true))));
        check(vec![run(1, 2)], vec![session(3)], Err(several));
        check(vec![run(1, 2), run(3, 2)], vec![], Err(several));
        check(vec![], vec![session(2), session(3)], Err(several));
    }
}

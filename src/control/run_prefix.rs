//! Finds a run by the beginning of its id. Ids begin with their time, so a beginning is a range of ids.

use hermod_actors::model::{RunId, RunRow};

use super::{error::RequestError, reader::StoreReader};

/// Characters of an id.
const ID_CHARS: usize = 26;
/// The shortest beginning that names a run: ten characters are the time of the id.
const MIN_PREFIX_CHARS: usize = 8;

impl StoreReader {
    /// The only run whose id begins with `prefix`; an error if there are several.
    pub(super) async fn run_by_prefix(&self, prefix: &str) -> Result<Option<RunRow>, RequestError> {
        let Some((first, last)) = ids_with_prefix(prefix) else { return Ok(None) };
        let Some(behind) = last.bits().checked_add(1) else { return Ok(None) };
        let mut rows = self.read(|rows| rows.runs_before(RunId::from_bits(behind), 2)).await?;
        rows.retain(|row| row.id >= first);
        if rows.len() > 1 {
            return Err(RequestError::usage(format!(
                "the ids of several runs begin with `{prefix}`; name one by more of it"
            )));
        }
        Ok(rows.pop())
    }
}

/// The smallest and the largest id with this beginning; `None` if no id begins so, or if it is too short.
fn ids_with_prefix(prefix: &str) -> Option<(RunId, RunId)> {
    if !(MIN_PREFIX_CHARS..ID_CHARS).contains(&prefix.len())
        || !prefix.bytes().all(|byte| byte.is_ascii_alphanumeric())
    {
        return None;
    }
    let padded = |with: &str| {
        let text = prefix.to_ascii_uppercase() + &with.repeat(ID_CHARS - prefix.len());
        // A text of more than 128 bits is parsed to other bits.
        text.parse::<RunId>().ok().filter(|id| id.to_string() == text)
    };
    Some((padded("0")?, padded("Z")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_a_range_of_ids() {
        let (first, last) = ids_with_prefix("01M83K9RFSZ").unwrap();
        assert_eq!(first.to_string(), "01M83K9RFSZ000000000000000");
        assert_eq!(last.to_string(), "01M83K9RFSZZZZZZZZZZZZZZZZ");
        assert_eq!(ids_with_prefix("01m83k9rfsz"), Some((first, last)));
        for other in
            ["01M83K9", "01M83K9RFSZNSS6F81P7NA7B9M", "01M83K9-FSZ", "", "8ZZZZZZZZZZZ", "01M83K9RFSU"]
        {
            assert_eq!(ids_with_prefix(other), None, "{other}");
        }
    }
}

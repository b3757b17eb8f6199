//! Bytes that are made of a value once, for all that need them.

use std::sync::Mutex;

use bytes::Bytes;

use crate::lock;

/// Most encodings of one kind of value that are kept; further values are encoded by each reader.
const MAX_ENCODINGS: usize = 64;

/// The bytes of values, made by the first reader that needs them.
#[derive(Debug)]
pub(crate) struct Encodings<T>(Mutex<Vec<(T, Bytes)>>);

impl<T> Default for Encodings<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone + PartialEq> Encodings<T> {
    /// The bytes of `value`. Other readers wait while `encode` makes them.
    pub(crate) fn get<E>(&self, value: &T, encode: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        let mut kept = lock(&self.0);
        if let Some((_, bytes)) = kept.iter().find(|(known, _)| known == value) {
            return Ok(bytes.clone());
        }
        let bytes = encode()?;
        if kept.len() < MAX_ENCODINGS {
            kept.push((value.clone(), bytes.clone()));
        }
        Ok(bytes)
    }

    /// Number of the kept bytes.
    pub(crate) fn size(&self) -> usize {
        lock(&self.0).iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_encoded_once() {
        let (encodings, mut count) = (Encodings::default(), 0);
        let mut get = |value: usize| {
            let bytes = encodings.get(&value, || {
                count += 1;
                Ok::<_, ()>(Bytes::from(value.to_string()))
            });
            assert_eq!(bytes, Ok(Bytes::from(value.to_string())));
        };
        [1, 1, 2, 1, 2].into_iter().for_each(&mut get);
        (3..MAX_ENCODINGS * 2).for_each(&mut get);
        get(1);
        assert_eq!(count, MAX_ENCODINGS * 2 - 1);
        assert_eq!(lock(&encodings.0).len(), MAX_ENCODINGS);
        assert_eq!(Encodings::default().get(&1, || Err("x")), Err("x"));
    }
}

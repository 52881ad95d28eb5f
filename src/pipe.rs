//! What a run and the child of a medium tell each other: the values' bytes in the order of their
//! fields, without names, since both are the same binary. Each message has its length before it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// A value that goes through the pipe.
pub trait Piped: Sized {
    fn put(&self, to: &mut Vec<u8>);
    /// Takes its bytes from the front of `from`; `None` where they are none of it.
    fn take(from: &mut &[u8]) -> Option<Self>;
}

/// The fields of a struct, all of them.
#[macro_export]
macro_rules! piped {
    ($name:ty { $($field:ident),+ $(,)? }) => {
        impl $crate::pipe::Piped for $name {
            fn put(&self, to: &mut Vec<u8>) {
                let Self { $($field),+ } = self;
                $($crate::pipe::Piped::put($field, to);)+
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                Some(Self { $($field: $crate::pipe::Piped::take(from)?),+ })
            }
        }
    };
    // The words of an enum, all of them, in their order.
    ($name:ty [ $($word:ident),+ $(,)? ]) => {
        impl $crate::pipe::Piped for $name {
            fn put(&self, to: &mut Vec<u8>) {
                match self { $(Self::$word => to.push(Self::$word as u8)),+ }
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                let number = $crate::pipe::Piped::take(from)?;
                [$(Self::$word),+].into_iter().find(|word| *word as u8 == number)
            }
        }
    };
}

impl<const N: usize> Piped for [u8; N] {
    fn put(&self, to: &mut Vec<u8>) {
        to.extend_from_slice(self);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let (bytes, rest) = from.split_first_chunk()?;
        *from = rest;
        Some(*bytes)
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Piped for $number {
            fn put(&self, to: &mut Vec<u8>) {
                self.to_le_bytes().put(to);
            }
            fn take(from: &mut &[u8]) -> Option<Self> {
                Piped::take(from).map(Self::from_le_bytes)
            }
        })+
    };
}
numbers!(u8, u32, u64, f64);

impl Piped for bool {
    fn put(&self, to: &mut Vec<u8>) {
        u8::from(*self).put(to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        u8::take(from).map(|byte| byte != 0)
    }
}

fn put_bytes(bytes: &[u8], to: &mut Vec<u8>) {
    (bytes.len() as u32).put(to);
    to.extend_from_slice(bytes);
}

fn take_bytes(from: &mut &[u8]) -> Option<Vec<u8>> {
    let length = u32::take(from)? as usize;
    let (bytes, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(bytes.to_vec())
}

impl Piped for String {
    fn put(&self, to: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        String::from_utf8(take_bytes(from)?).ok()
    }
}

impl Piped for PathBuf {
    fn put(&self, to: &mut Vec<u8>) {
        put_bytes(self.as_os_str().as_bytes(), to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        take_bytes(from).map(|bytes| OsString::from_vec(bytes).into())
    }
}

impl<T: Piped> Piped for Vec<T> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        self.iter().for_each(|one| one.put(to));
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let length = u32::take(from)?;
        // It grows with what is there, not with what was said.
        (0..length).map(|_| T::take(from)).collect()
    }
}

impl<T: Piped> Piped for Option<T> {
    fn put(&self, to: &mut Vec<u8>) {
        self.is_some().put(to);
        if let Some(value) = self {
            value.put(to);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        match bool::take(from)? {
            true => T::take(from).map(Some),
            false => Some(None),
        }
    }
}

impl<A: Piped, B: Piped> Piped for (A, B) {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
        self.1.put(to);
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        Some((A::take(from)?, B::take(from)?))
    }
}

impl Piped for BTreeMap<String, u64> {
    fn put(&self, to: &mut Vec<u8>) {
        (self.len() as u32).put(to);
        for (key, value) in self {
            key.put(to);
            value.put(to);
        }
    }
    fn take(from: &mut &[u8]) -> Option<Self> {
        let pairs: Vec<(String, u64)> = Piped::take(from)?;
        Some(pairs.into_iter().collect())
    }
}

/// The whole of `bytes` as one value.
pub fn decode<T: Piped>(mut bytes: &[u8]) -> Option<T> {
    let value = T::take(&mut bytes)?;
    bytes.is_empty().then_some(value)
}

/// A message with its length before it.
pub fn message<T: Piped>(value: &T) -> Vec<u8> {
    let mut bytes = vec![0; LENGTH];
    value.put(&mut bytes);
    let length = (bytes.len() - LENGTH) as u32;
    bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
    bytes
}

/// Bytes of a message's length.
const LENGTH: usize = 4;

/// Takes the first message out of `pending`; none yet where it is not whole.
pub fn next(pending: &mut Vec<u8>) -> Option<Vec<u8>> {
    let length = u32::take(&mut &pending[..])? as usize;
    if pending.len() < LENGTH + length {
        return None;
    }
    let rest = pending.split_off(LENGTH + length);
    let mut whole = std::mem::replace(pending, rest);
    whole.drain(..LENGTH);
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cut_off_or_too_long_is_nothing() {
        let value = (vec![(1.5, 2u32)], Some("µs".to_string()));
        let mut bytes = Vec::new();
        value.put(&mut bytes);
        assert_eq!(decode(&bytes), Some(value));
        type Value = (Vec<(f64, u32)>, Option<String>);
        for end in 0..bytes.len() {
            assert_eq!(decode::<Value>(&bytes[..end]), None, "{end}");
        }
        bytes.push(0);
        assert_eq!(decode::<Value>(&bytes), None);
        // Four thousand million strings, said in four bytes.
        assert_eq!(decode::<Vec<String>>(&[0xff; 4]), None);
    }

    #[test]
    fn messages_come_in_any_pieces() {
        let both = [message(&7u64), message(&"a".to_string())].concat();
        let (mut pending, mut found) = (Vec::new(), Vec::new());
        for byte in both {
            pending.push(byte);
            found.extend(next(&mut pending));
        }
        assert_eq!(found.len(), 2);
        assert_eq!(decode(&found[0]), Some(7u64));
        assert_eq!(decode(&found[1]), Some("a".to_string()));
    }
}

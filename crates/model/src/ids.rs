//! Identifiers. Each is a kind letter and eight characters of Crockford base 32 (40 bits), short
//! enough to type. The bits come from the caller: this crate draws no randomness. A store refuses
//! a collision and its caller draws again.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Why a text is not an identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseIdError {
    /// The kind of identifier that was expected, as its letter.
    pub expected: char,
}

impl fmt::Display for ParseIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "not an identifier: expected '{}' and eight characters of base 32",
            self.expected
        )
    }
}

impl std::error::Error for ParseIdError {}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $letter:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u64);

        impl $name {
            /// The identifier made of the low 40 bits of `bits`.
            pub const fn from_bits(bits: u64) -> Self {
                Self(bits & 0xff_ffff_ffff)
            }
            /// The 40 bits of the identifier.
            pub const fn bits(self) -> u64 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut text = [$letter; 9];
                for (i, slot) in text[1..].iter_mut().enumerate() {
                    *slot = ALPHABET[(self.0 >> (35 - 5 * i)) as usize & 31];
                }
                f.pad(std::str::from_utf8(&text).unwrap_or_default())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;
            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                let bad = ParseIdError { expected: char::from($letter) };
                let rest = text.strip_prefix(char::from($letter)).ok_or_else(|| bad.clone())?;
                if rest.len() != 8 {
                    return Err(bad);
                }
                let mut bits = 0u64;
                for byte in rest.bytes() {
                    let digit = ALPHABET.iter().position(|&a| a == byte).ok_or_else(|| bad.clone())?;
                    bits = bits << 5 | digit as u64;
                }
                Ok(Self(bits))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = String::deserialize(d)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// A world: one unit of logical state with one durable head generation.
    WorldId, b'w'
);
id!(
    /// A branch context.
    BranchId, b'b'
);
id!(
    /// A checkpoint: an immutable, named generation of a world.
    CheckpointId, b'k'
);
id!(
    /// A commit, which is also the transaction's identity at every participant.
    CommitId, b'c'
);
id!(
    /// An exploration.
    ExplorationId, b'x'
);
id!(
    /// A sealed layer of a disk or of a system root.
    LayerId, b'l'
);
id!(
    /// A sibling group: the branches of one exploration or of one fork with a count.
    GroupId, b'g'
);

/// A generation of a world's head. The first is 0 and each commit adds one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
pub struct Generation(pub u64);

/// The fencing number of a branch. Sealing adds one; what carries an older number is refused.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default,
)]
pub struct Epoch(pub u64);

/// The name of a participant within its world, such as `disk:0`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ParticipantId(pub String);

impl fmt::Display for ParticipantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// A BLAKE3 digest that pins what was staged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_its_text() {
        for bits in [0, 1, 31, 32, 0xff_ffff_ffff, 0x12_3456_789a] {
            let id = BranchId::from_bits(bits);
            assert_eq!(id.to_string().parse::<BranchId>(), Ok(id));
            assert_eq!(id.to_string().len(), 9);
        }
    }

    #[test]
    fn an_id_of_another_kind_is_refused() {
        let id = BranchId::from_bits(7).to_string();
        assert!(id.parse::<WorldId>().is_err());
        assert!("b0000000".parse::<BranchId>().is_err());
        assert!("b0000000u".parse::<BranchId>().is_err());
    }
}

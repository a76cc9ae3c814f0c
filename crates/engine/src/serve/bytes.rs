//! Bytes in JSON: as a text where they are one, else in base64 (RFC 4648, with padding).

use super::request::refused;
use forkpoint_model::Result;
use serde_json::{Value, json};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// What was sent under `name`, or under `name_b64`: one of the two.
pub(super) fn either(name: &str, text: Option<String>, b64: Option<String>) -> Result<Vec<u8>> {
    match (text, b64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(b64)) => {
            decode(b64.as_bytes()).ok_or_else(|| refused(format!("{name}_b64 is no base64")))
        }
        (None, None) => Err(refused(format!("{name} or {name}_b64 is missing"))),
        (Some(_), Some(_)) => Err(refused(format!("{name} and {name}_b64 exclude each other"))),
    }
}

/// The same, where it may be left out.
pub(super) fn maybe(
    name: &str,
    text: Option<String>,
    b64: Option<String>,
) -> Result<Option<Vec<u8>>> {
    match (&text, &b64) {
        (None, None) => Ok(None),
        _ => either(name, text, b64).map(Some),
    }
}

/// Puts bytes into an object, under `name` or `name_b64`. A text of control characters goes in base64:
/// escaped it would be six times as long.
pub(crate) fn put(object: &mut Value, name: &str, bytes: &[u8]) {
    let plain = |b: &u8| *b >= b' ' || b"\n\r\t".contains(b);
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(plain) => object[name] = json!(text),
        _ => object[format!("{name}_b64")] = json!(encode(bytes)),
    }
}

/// What lies in an object under `name` or `name_b64`.
pub(crate) fn get(object: &Value, name: &str) -> Option<Vec<u8>> {
    match object[name].as_str() {
        Some(text) => Some(text.as_bytes().to_vec()),
        None => decode(object[format!("{name}_b64")].as_str()?.as_bytes()),
    }
}

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let mut bits = 0u32;
        for at in 0..3 {
            bits = bits << 8 | u32::from(three.get(at).copied().unwrap_or(0));
        }
        for at in 0..4 {
            let six = (bits >> (18 - 6 * at) & 63) as usize;
            text.push(if at <= three.len() {
                char::from(ALPHABET[six])
            } else {
                '='
            });
        }
    }
    text
}

pub(crate) fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let last = text.len() / 4;
    for (n, four) in text.chunks(4).enumerate() {
        let padding = four.iter().rev().take_while(|&&b| b == b'=').count();
        if four.len() != 4 || padding > 2 || padding > 0 && n + 1 != last {
            return None;
        }
        let mut bits = 0u32;
        for (at, &letter) in four.iter().enumerate() {
            let six = match at < 4 - padding {
                true => value(letter)?,
                false => 0,
            };
            bits = bits << 6 | six;
        }
        // What is left over must be nothing, so that there is one text for each value.
        if bits & ((1 << (8 * padding)) - 1) != 0 {
            return None;
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..4 - padding]);
    }
    Some(bytes)
}

fn value(letter: u8) -> Option<u32> {
    let (from, first) = match letter {
        b'A'..=b'Z' => (b'A', 0),
        b'a'..=b'z' => (b'a', 26),
        b'0'..=b'9' => (b'0', 52),
        b'+' => (b'+', 62),
        b'/' => (b'/', 63),
        _ => return None,
    };
    Some(u32::from(letter - from) + first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rfc_s_own_examples_hold() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
        for bad in [
            "Z", "Zg", "Zg=", "Zh==", "Zm9=", "====", "Zg==Zg==", "Zm 9", "Z===", "Zm9v\n",
        ] {
            assert_eq!(decode(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn what_is_put_into_an_object_is_found_in_it() {
        for bytes in [&b"plain\n"[..], b"", b"\xff\x00", b"\x1b[2J"] {
            let mut object = json!({});
            put(&mut object, "value", bytes);
            assert_eq!(get(&object, "value").as_deref(), Some(bytes), "{object}");
        }
        assert_eq!(get(&json!({}), "value"), None);
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_and_no_text_panics(bytes: Vec<u8>, text: Vec<u8>) {
            prop_assert_eq!(decode(encode(&bytes).as_bytes()), Some(bytes));
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes).into_bytes(), text);
            }
        }
    }
}

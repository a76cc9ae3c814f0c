//! Takes secret values out of a stream of output while it is written down, so that no log ever holds
//! one. A value is found where it stands as it is; one that a command encodes is not.

/// What stands in the place of a secret's value.
pub const MASK: &[u8] = b"[secret]";

/// Finds the values of secrets.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Longest first, so that one that contains another is found whole.
    values: Vec<Vec<u8>>,
}

impl Redactor {
    /// Finds these values.
    pub fn new(values: impl IntoIterator<Item = Vec<u8>>) -> Self {
        // An empty value stands everywhere.
        let mut values: Vec<Vec<u8>> = values.into_iter().filter(|v| !v.is_empty()).collect();
        values.sort_by_key(|v| std::cmp::Reverse(v.len()));
        values.dedup();
        Self { values }
    }

    /// Whether there is nothing to find.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The value that begins at the front of `bytes`.
    fn at_front(&self, bytes: &[u8]) -> Option<usize> {
        self.values
            .iter()
            .find(|v| bytes.starts_with(v))
            .map(Vec::len)
    }

    /// How many bytes at the end of `bytes` may be the beginning of a value.
    fn open_end(&self, bytes: &[u8]) -> usize {
        let longest = self.values.first().map_or(0, Vec::len);
        let most = longest.saturating_sub(1).min(bytes.len());
        (1..=most)
            .rev()
            .find(|&n| {
                let end = &bytes[bytes.len() - n..];
                self.values
                    .iter()
                    .any(|v| v.len() > n && v.starts_with(end))
            })
            .unwrap_or(0)
    }

    /// `bytes` without the values that stand whole in them.
    pub fn clean(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            match self.at_front(&bytes[at..]) {
                Some(length) => {
                    out.extend_from_slice(MASK);
                    at += length;
                }
                None => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        out
    }
}

/// Cleans a stream that comes in pieces: what may be the beginning of a value waits for the rest.
pub struct Cleaner<'a> {
    redactor: &'a Redactor,
    held: Vec<u8>,
}

impl<'a> Cleaner<'a> {
    /// Of one stream.
    pub fn new(redactor: &'a Redactor) -> Self {
        Self {
            redactor,
            held: Vec::new(),
        }
    }

    /// Takes `bytes` in and gives what is sure.
    pub fn push(&mut self, bytes: &[u8], give: &mut dyn FnMut(&[u8])) {
        if self.redactor.is_empty() {
            return give(bytes);
        }
        self.held.extend_from_slice(bytes);
        let mut at = 0;
        let mut sure = Vec::with_capacity(self.held.len());
        // A whole value is replaced before its end could be taken for the beginning of another.
        while at < self.held.len() {
            if let Some(length) = self.redactor.at_front(&self.held[at..]) {
                sure.extend_from_slice(MASK);
                at += length;
            } else if self.redactor.open_end(&self.held[at..]) == self.held.len() - at {
                break;
            } else {
                sure.push(self.held[at]);
                at += 1;
            }
        }
        self.held.drain(..at);
        if !sure.is_empty() {
            give(&sure);
        }
    }

    /// Gives what was held back; the stream is over.
    pub fn end(&mut self, give: &mut dyn FnMut(&[u8])) {
        if !self.held.is_empty() {
            let rest = self.redactor.clean(&std::mem::take(&mut self.held));
            give(&rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn redactor(values: &[&str]) -> Redactor {
        Redactor::new(values.iter().map(|v| v.as_bytes().to_vec()))
    }

    fn streamed(redactor: &Redactor, pieces: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut cleaner = Cleaner::new(redactor);
        for piece in pieces {
            cleaner.push(piece, &mut |b| out.extend_from_slice(b));
        }
        cleaner.end(&mut |b| out.extend_from_slice(b));
        out
    }

    #[test]
    fn a_value_is_found_whole_however_the_stream_is_cut() {
        let redactor = redactor(&["hunter22", "hunter22-long"]);
        let text = b"a hunter22-long b hunter22 c hunter2";
        let clean = b"a [secret] b [secret] c hunter2".to_vec();
        assert_eq!(redactor.clean(text), clean);
        // The shorter one may win where the longer one is cut: what matters is that no value is left.
        for cut in 0..text.len() {
            let out = streamed(&redactor, &[&text[..cut], &text[cut..]]);
            assert!(!String::from_utf8_lossy(&out).contains("hunter22"), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_gives_what_the_whole_gives(
            text in proptest::collection::vec(0u8..3, 0..60),
            cuts in proptest::collection::vec(0usize..60, 0..6),
        ) {
            let text: Vec<u8> = text.iter().map(|n| b'a' + n).collect();
            let redactor = redactor(&["abacab"]);
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|c| *c <= text.len()).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|w| &text[w[0]..w[1]]).collect();
            prop_assert_eq!(streamed(&redactor, &pieces), redactor.clean(&text));
        }
    }
}

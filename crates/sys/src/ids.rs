//! Trees whose owners are stored in a shifted range of ids.
//!
//! Where a file system cannot map ids by its mount, a tree for another user namespace is stored with
//! the ids that namespace really has. While such a tree is worked on, [`unshifted`] makes owners and
//! access lists read as they appear inside; whoever writes into one adds the shift again.

use std::cell::Cell;
use std::ffi::OsStr;

/// A range of ids: 0 to `len - 1` inside are stored as `first` onwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shift {
    /// What 0 is stored as.
    pub first: u32,
    /// How many ids are shifted; others are stored as they are.
    pub len: u32,
}

thread_local! {
    static READING: Cell<Option<Shift>> = const { Cell::new(None) };
}

impl Shift {
    /// As it is stored.
    pub fn stored(self, id: u32) -> u32 {
        match id < self.len {
            true => self.first + id,
            false => id,
        }
    }

    /// As it appears inside.
    pub fn shown(self, id: u32) -> u32 {
        match id.checked_sub(self.first) {
            Some(inside) if inside < self.len => inside,
            _ => id,
        }
    }

    /// The value of an attribute as it is stored: an access list with the ids in it shifted.
    pub fn stored_value(self, key: &OsStr, value: &[u8]) -> Vec<u8> {
        mapped(key, value, |id| self.stored(id))
    }
}

/// Runs `act` with owners and access lists that this thread reads in the shifted range shown as they
/// appear inside. Ids outside the range are shown as they are, so a tree that is not shifted can be
/// read beside one that is.
pub fn unshifted<T>(shift: Shift, act: impl FnOnce() -> T) -> T {
    /// Puts back what was, however `act` is left.
    struct Back(Option<Shift>);
    impl Drop for Back {
        fn drop(&mut self) {
            READING.set(self.0);
        }
    }
    let _back = Back(READING.replace(Some(shift)));
    act()
}

/// An id as this thread is to see it.
pub(crate) fn shown(id: u32) -> u32 {
    READING.get().map_or(id, |shift| shift.shown(id))
}

/// An attribute's value as this thread is to see it.
pub(crate) fn shown_value(key: &OsStr, value: Vec<u8>) -> Vec<u8> {
    match READING.get() {
        None => value,
        Some(shift) => mapped(key, &value, |id| shift.shown(id)),
    }
}

/// Bytes of an access list before its entries, and of an entry (`posix_acl_xattr.h`).
const HEADER: usize = 4;
const ENTRY: usize = 8;
/// Entries that name a user or a group.
const NAMES_USER: u16 = 0x02;
const NAMES_GROUP: u16 = 0x08;

/// Anything but an access list is returned as it is, and so is one that is cut short.
fn mapped(key: &OsStr, value: &[u8], map: impl Fn(u32) -> u32) -> Vec<u8> {
    let mut out = value.to_vec();
    let list = key == "system.posix_acl_access" || key == "system.posix_acl_default";
    if !list || out.len() < HEADER {
        return out;
    }
    for entry in out[HEADER..].chunks_exact_mut(ENTRY) {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        if tag == NAMES_USER || tag == NAMES_GROUP {
            let id = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
            entry[4..].copy_from_slice(&map(id).to_le_bytes());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIFT: Shift = Shift {
        first: 1000,
        len: 10,
    };

    #[test]
    fn ids_go_there_and_back_and_others_stay() {
        for id in [0, 9, 10, 999, 5000] {
            assert_eq!(SHIFT.shown(SHIFT.stored(id)), id);
        }
        assert_eq!((SHIFT.stored(9), SHIFT.stored(10)), (1009, 10));
        assert_eq!(shown(1003), 1003);
        assert_eq!(unshifted(SHIFT, || shown(1003)), 3);
        assert_eq!(shown(1003), 1003, "only while it lasts");
    }

    #[test]
    fn names_in_access_lists_are_mapped_and_nothing_else_is() {
        let mut list = vec![2, 0, 0, 0];
        for (tag, id) in [(1u16, u32::MAX), (2, 3), (8, 4), (0x20, u32::MAX)] {
            list.extend(tag.to_le_bytes());
            list.extend(7u16.to_le_bytes());
            list.extend(id.to_le_bytes());
        }
        let key = OsStr::new("system.posix_acl_access");
        let stored = SHIFT.stored_value(key, &list);
        assert_eq!(stored[16..20], 1003u32.to_le_bytes());
        assert_eq!(stored[24..28], 1004u32.to_le_bytes());
        assert_eq!(unshifted(SHIFT, || shown_value(key, stored.clone())), list);
        assert_eq!(SHIFT.stored_value(OsStr::new("user.x"), &list), list);
        assert_eq!(SHIFT.stored_value(key, &[2, 0]), [2, 0]);
    }
}

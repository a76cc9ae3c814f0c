//! File systems whose data lives elsewhere than in this kernel: others can change it unseen, its times
//! may come from another clock, and a lower layer that changes under a view is undefined.

/// By the name that `/proc/self/mountinfo` has.
const NAMES: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "9p",
    "virtiofs",
    "afs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "ocfs2",
    "gfs2",
    "beegfs",
    "orangefs",
    "pvfs2",
    "coda",
    "ncpfs",
    "vboxsf",
    "vmhgfs",
];

/// By the number that `statfs` gives (`linux/magic.h`, `statfs(2)`, and each file system's source). It
/// also tells where a mount's name is another, such as that of an automounter.
const NUMBERS: &[(u64, &str)] = &[
    (0x6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x517b, "smb"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x6573_5543, "fusectl"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x564c, "ncp"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x7461_636f, "ocfs2"),
    (0x0116_1970, "gfs2"),
    (0x1983_0326, "beegfs"),
    (0x2003_0528, "orangefs"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "vmhgfs"),
];

/// Whether a file system of this name is remote, or in user space.
pub(super) fn by_name(fs_type: &str) -> bool {
    fs_type == "fuse"
        || fs_type.starts_with("fuse.")
        || fs_type == "fuseblk"
        || NAMES.contains(&fs_type)
}

/// Whether one of this number is.
pub(super) fn by_magic(number: u64) -> bool {
    NUMBERS.iter().any(|(known, _)| *known == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_other_machines_are_known_by_name_and_number() {
        for name in ["nfs4", "cifs", "fuse.sshfs", "fuseblk", "ceph", "9p"] {
            assert!(by_name(name), "{name}");
        }
        // From linux/magic.h.
        for number in [
            0x6969,
            0xff53_4d42,
            0xfe53_4d42,
            0x0102_1997,
            0x6573_5546,
            0x00c3_6400,
        ] {
            assert!(by_magic(number), "{number:#x}");
        }
    }

    #[test]
    fn those_of_this_kernel_are_not_remote() {
        for name in [
            "ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs", "bcachefs", "ext2",
        ] {
            assert!(!by_name(name), "{name}");
        }
        // ext, XFS, btrfs, tmpfs, overlay, ZFS, F2FS, squashfs.
        for number in [
            0xef53,
            0x5846_5342,
            0x9123_683e,
            0x0102_1994,
            0x794c_7630,
            0x2fc1_2fc1,
            0xf2f5_2010,
            0x7371_7368,
        ] {
            assert!(!by_magic(number), "{number:#x}");
        }
        let here = super::super::magic(std::path::Path::new("/proc")).expect("a number");
        assert_eq!(here, 0x9fa0);
    }
}

//! The system-call filter of commands inside a branch.
//!
//! Assembled here rather than by a library: calls of a foreign architecture must fail with
//! `ENOSYS` (a library's prologue kills the process), and the filter is small. Everything not
//! listed is allowed: the filter takes away what namespaces and capabilities do not already
//! decide, and never what an ordinary program or a nested sandbox needs. See
//! `docs/design-sandbox.md` for the reason of each line.

use std::io;

/// Refused with `EPERM`, whatever the arguments.
const DENIED: &[libc::c_long] = &[
    // Keys of the user that the session keyring's replacement does not hide.
    libc::SYS_add_key,
    libc::SYS_keyctl,
    libc::SYS_request_key,
    // The kernel itself.
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_syslog,
    libc::SYS_nfsservctl,
    libc::SYS_vhangup,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    // The host's clock.
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    // Files by handle, past every mask.
    libc::SYS_open_by_handle_at,
];

/// Refused with `ENOSYS`, so that programs fall back: an io_uring makes sockets and opens files
/// past this filter.
const MISSING: &[libc::c_long] = &[
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Refused with `EPERM` for one value of the low half of one argument: call, argument, value.
const DENIED_FOR: &[(libc::c_long, u32, u32)] = &[
    // Typing into the terminal that the caller shares with its command.
    (libc::SYS_ioctl, 1, libc::TIOCSTI as u32),
    (libc::SYS_ioctl, 1, libc::TIOCLINUX as u32),
    // Virtual sockets reach the hypervisor's host past the network namespace.
    (libc::SYS_socket, 0, libc::AF_VSOCK as u32),
];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xC000_00B7;

/// Calls of the x32 ABI carry this bit.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const ARGUMENTS: u32 = 16;

const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;

/// Low halves come first.
#[cfg(not(target_endian = "little"))]
compile_error!("the filter reads the low half of an argument");

fn op(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    let code = code as u16;
    libc::sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset, 0, 0)
}

fn give(result: u32) -> libc::sock_filter {
    op(libc::BPF_RET | libc::BPF_K, result, 0, 0)
}

/// Skips `jt` instructions where the loaded word is `k`, else `jf`.
fn equal(k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, k, jt, jf)
}

/// A filter, ready to be installed.
#[derive(Clone)]
pub struct Filter(Vec<libc::sock_filter>);

impl Default for Filter {
    fn default() -> Self {
        Self::new()
    }
}

impl Filter {
    /// Assembles the filter.
    pub fn new() -> Self {
        let (refuse, missing) = (ERRNO | libc::EPERM as u32, ERRNO | libc::ENOSYS as u32);
        let mut code = vec![
            load(ARCH),
            equal(ARCHITECTURE, 1, 0),
            give(missing),
            load(NUMBER),
        ];
        #[cfg(target_arch = "x86_64")]
        code.extend([
            op(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, X32, 0, 1),
            give(missing),
        ]);
        for &number in DENIED {
            code.extend([equal(number as u32, 0, 1), give(refuse)]);
        }
        for &number in MISSING {
            code.extend([equal(number as u32, 0, 1), give(missing)]);
        }
        for &(number, argument, value) in DENIED_FOR {
            code.extend([
                equal(number as u32, 0, 4),
                load(ARGUMENTS + 8 * argument),
                equal(value, 0, 1),
                give(refuse),
                load(NUMBER),
            ]);
        }
        code.push(give(ALLOW));
        Self(code)
    }

    /// Gives up gaining privileges by executing, and installs the filter, for this thread and all
    /// its children.
    pub fn install(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        let len = u16::try_from(self.0.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let program = libc::sock_fprog {
            len,
            filter: self.0.as_ptr().cast_mut(),
        };
        // SAFETY: `program` describes `self.0`, which the kernel only reads during the call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_seccomp,
                libc::SECCOMP_SET_MODE_FILTER,
                0,
                &raw const program,
            )
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the filter as the kernel would: only the instructions that are used here.
    fn run(arch: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let code = Filter::new().0;
        let (mut at, mut word) = (0, 0u32);
        for _ in 0..code.len() {
            let i = code[at];
            at += 1;
            match u32::from(i.code) {
                0x20 => {
                    word = match i.k {
                        NUMBER => number,
                        ARCH => arch,
                        k => arguments[((k - ARGUMENTS) / 8) as usize] as u32,
                    }
                }
                0x15 => at += usize::from(if word == i.k { i.jt } else { i.jf }),
                0x35 => at += usize::from(if word >= i.k { i.jt } else { i.jf }),
                0x06 => return i.k,
                other => panic!("instruction {other:#x}"),
            }
        }
        panic!("the filter does not end")
    }

    const REFUSED: u32 = ERRNO | libc::EPERM as u32;
    const NO_SUCH: u32 = ERRNO | libc::ENOSYS as u32;

    #[test]
    fn the_filter_decides_as_listed() {
        let call = |n: libc::c_long, a| run(ARCHITECTURE, n as u32, a);
        for &n in DENIED {
            assert_eq!(call(n, [0; 6]), REFUSED, "call {n}");
        }
        assert_eq!(call(libc::SYS_io_uring_setup, [0; 6]), NO_SUCH);
        for n in [
            libc::SYS_read,
            libc::SYS_ptrace,
            libc::SYS_mount,
            libc::SYS_clone3,
        ] {
            assert_eq!(call(n, [0; 6]), ALLOW, "call {n}");
        }
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5412, 0, 0, 0, 0]), REFUSED);
        assert_eq!(
            call(libc::SYS_ioctl, [0, 0x1_0000_5412, 0, 0, 0, 0]),
            REFUSED
        );
        assert_eq!(call(libc::SYS_ioctl, [0, 0x5413, 0, 0, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_socket, [40, 0, 0, 0, 0, 0]), REFUSED);
        assert_eq!(call(libc::SYS_socket, [2, 40, 0, 0, 0, 0]), ALLOW);
    }

    #[test]
    fn foreign_calls_do_not_exist() {
        assert_eq!(run(0x4000_0003, libc::SYS_read as u32, [0; 6]), NO_SUCH);
        #[cfg(target_arch = "x86_64")]
        assert_eq!(run(ARCHITECTURE, X32 | 1, [0; 6]), NO_SUCH);
    }
}

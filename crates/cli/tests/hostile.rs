//! What a hostile attempt tries against its user, end to end, as root and as an ordinary user.

mod common;

use common::Lab;
use std::fs::{self, File};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};

fn has(program: &str) -> bool {
    let found = std::process::Command::new(program)
        .arg("--version")
        .output();
    if found.is_err() {
        eprintln!("SKIP: no {program}");
    }
    found.is_ok()
}

/// Every try prints a line if it came through; the last line says that all were made.
const TRIES: &str = r#"
import ctypes, fcntl, os, socket, struct, sys
store, host, name = sys.argv[1:4]
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    r = libc.syscall(number, *args)
    if r < 0: raise OSError(ctypes.get_errno(), 'refused')
    return r
def attempt(what, act):
    try: got = act()
    except Exception: return
    if got is not False: print('ESCAPED', what, got)
def write(path):
    fd = os.open(path, os.O_WRONLY); os.write(fd, b'1'); os.close(fd)
def look(path):
    fd = os.open(path, os.O_RDONLY)
    return path.endswith('ns/mnt') or (os.listdir(fd) if os.path.isdir(path) else os.read(fd, 1))
def tries(where):
    for path in ['/proc/sys/kernel/core_pattern', '/proc/sysrq-trigger', '/proc/sys/vm/drop_caches',
                 '/sys/power/state', '/sys/kernel/uevent_helper', '/proc/irq/default_smp_affinity',
                 '/proc/sys/kernel/modprobe', '/sys/fs/cgroup/cgroup.procs']:
        attempt(where + 'write ' + path, lambda: write(path))
    for dir in ['/etc/ssl/private', '/sys', '/dev', '/run', os.getcwd()]:
        attempt(where + 'umount ' + dir, lambda: call(166, dir.encode(), 2))
    attempt(where + 'remount', lambda: call(165, 0, b'/sys', 0, 0x1020, 0))
    attempt(where + 'bind without what is mounted', lambda: call(165, b'/', b'/mnt', 0, 0x1000, 0))
    attempt(where + 'disk node', lambda: os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)))
    attempt(where + 'node in the base', lambda: os.mknod('disk', 0o60600, os.makedev(8, 0)))
    attempt(where + 'open by handle', lambda: call(304, -100, b'\0' * 64, 0))
    attempt(where + 'keys', lambda: call(250, 0, -4, 0))
    attempt(where + 'vsock', lambda: socket.socket(40, 1))
    attempt(where + 'tiocsti', lambda: fcntl.ioctl(0, 0x5412, b'x'))
    attempt(where + 'io_uring', lambda: call(425, 1, ctypes.create_string_buffer(200)))
    attempt(where + 'bpf', lambda: call(321, 0, ctypes.create_string_buffer(64), 64))
    attempt(where + 'network', lambda: socket.create_connection(('192.0.2.1', 80), 1))
    attempt(where + 'abstract socket', lambda: socket.socket(socket.AF_UNIX).connect('\0' + name))
    attempt(where + 'host file', lambda: write(host))
    attempt(where + 'store', lambda: bool(os.listdir(store)))
for path in ['environ', 'mem', 'maps', 'root/etc', 'cwd', 'fd/3', 'map_files', 'ns/mnt', 'stack']:
    attempt('/proc/1/' + path, lambda: look('/proc/1/' + path))
attempt('trace init', lambda: call(101, 16, 1, 0, 0))
attempt("init's descriptors", lambda: call(438, call(434, 1, 0), 3, 0))
attempt("init's sockets", lambda: name in open('/proc/1/net/unix').read())
tries('')
if os.fork() == 0:
    if libc.unshare(0x10000000 | 0x20000) == 0: tries('as its own root: ')
    os._exit(0)
os.wait()
print('TRIED')
"#;

#[test]
fn law_03_a_hostile_attempt_finds_no_way_out() {
    if !has("python3") {
        return;
    }
    let lab = Lab::new(&[("a", "1\n"), ("dir/b", "2\n")]);
    let host = lab.path("host");
    fs::write(&host, "untouched\n").unwrap();
    fs::set_permissions(&host, PermissionsExt::from_mode(0o666)).unwrap();
    let name = format!("forkpoint-hostile-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = UnixListener::bind_addr(&address).unwrap();
    lab.run(&["fork", ".", "--name", "sibling"]).expect(0);
    lab.run(&["exec", "sibling", "--", "sh", "-c", "echo mine > secret"])
        .expect(0);
    lab.run(&["fork", ".", "--name", "bad"]).expect(0);
    let store = lab.store();
    let (store, host_path) = (store.to_str().unwrap(), host.to_str().unwrap());
    let done = lab
        .run(&[
            "exec", "bad", "--", "python3", "-c", TRIES, store, host_path, &name,
        ])
        .expect(0);
    assert_eq!(done.stdout, "TRIED\n", "{done:#?}");
    lab.run(&["abort", "bad"]).expect(0);
    assert_eq!(fs::read_to_string(&host).unwrap(), "untouched\n");
    assert_eq!(lab.read("a").as_deref(), Some("1\n"));
    let done = lab
        .run(&["exec", "sibling", "--", "cat", "secret"])
        .expect(0);
    assert_eq!(done.stdout, "mine\n");
}

#[test]
fn a_file_as_a_standard_stream_is_not_the_branch_s_to_open_again() {
    let lab = Lab::new(&[]);
    lab.run(&["fork", ".", "--name", "w"]).expect(0);
    let (input, output) = (lab.path("input"), lab.path("output"));
    for path in [&input, &output] {
        fs::write(path, "before\n").unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o666)).unwrap();
    }
    let script = "cat; echo changed > /proc/self/fd/0; true > /proc/self/fd/1; echo after";
    let status = lab
        .command(&["exec", "w", "--", "sh", "-c", script])
        .stdin(File::open(&input).unwrap())
        .stdout(File::options().append(true).open(&output).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(fs::read_to_string(&input).unwrap(), "before\n");
    assert_eq!(
        fs::read_to_string(&output).unwrap(),
        "before\nbefore\nafter\n"
    );
    // Everything that was written has arrived, also a lot of it, and what is left running keeps
    // nobody waiting.
    let status = lab
        .command(&[
            "exec",
            "w",
            "--",
            "sh",
            "-c",
            "sleep 300 & head -c 3000000 /dev/zero",
        ])
        .stdout(File::create(&output).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(0));
    assert_eq!(fs::metadata(&output).unwrap().len(), 3_000_000);
    // What cannot be written is said, and a directory leads out.
    let status = lab
        .command(&["exec", "w", "--", "echo", "x"])
        .stdout(File::open(&input).unwrap())
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(125));
    let done = lab
        .command(&["exec", "w", "--", "ls", "/proc/self/fd/0/"])
        .stdin(File::open(lab.base()).unwrap())
        .output()
        .unwrap();
    assert!(!done.status.success() && done.stdout.is_empty(), "{done:?}");
    lab.run(&["abort", "w"]).expect(0);
}

#[test]
fn a_file_that_runs_with_other_rights_is_withheld_and_listed() {
    let lab = Lab::new(&[]);
    lab.run(&["fork", ".", "--name", "w"]).expect(0);
    let script = "for n in user group plain; do echo '#!/bin/sh' > $n; done; chmod 4755 user; chmod 2755 group";
    lab.run(&["exec", "w", "--", "sh", "-c", script]).expect(0);
    let done = lab.run(&["commit", "w"]).expect(0);
    assert!(done.stderr.contains("withheld: user"), "{done:?}");
    assert!(done.stderr.contains("withheld: group"), "{done:?}");
    assert_eq!((lab.read("user"), lab.read("group")), (None, None));
    assert!(lab.read("plain").is_some());
}

#[test]
fn attributes_of_the_overlay_do_not_reach_the_base() {
    if !has("setfattr") {
        return;
    }
    let lab = Lab::new(&[("a", "1\n"), ("dir/b", "2\n")]);
    lab.run(&["fork", ".", "--name", "w"]).expect(0);
    let script = "setfattr -n user.overlay.metacopy a && setfattr -n user.overlay.redirect -v /dir/b a && \
        setfattr -n user.overlay.opaque -v y dir && mkdir new && touch new/c && \
        setfattr -n user.overlay.opaque -v x new && setfattr -n user.overlay.whiteout new/c && echo 3 > d";
    lab.run(&["exec", "w", "--", "sh", "-c", script]).expect(0);
    let done = lab.run(&["commit", "w"]).expect(0);
    for path in ["a", "dir", "new", "new/c"] {
        assert!(
            done.stderr.contains(&format!("withheld: {path}\n")),
            "{path}: {done:?}"
        );
    }
    assert_eq!(lab.read("d").as_deref(), Some("3\n"));
    lab.run(&["fork", ".", "--name", "v"]).expect(0);
    let done = lab
        .run(&["exec", "v", "--", "cat", "a", "dir/b", "d"])
        .expect(0);
    assert_eq!(done.stdout, "1\n2\n3\n");
}

#[test]
fn a_name_commands_no_terminal() {
    let lab = Lab::new(&[("tests/t", "true\n")]);
    lab.run(&["fork", ".", "--name", "w"]).expect(0);
    let script = "n=$(printf 'x\\033[2J\\nfoo\\007\\233'); echo 1 > \"tests/$n\"; echo 1 > \"$n\"; \
        mkdir -p \"d$n/.git/hooks\"; echo 1 > \"d$n/.git/hooks/h\"; echo 1 > \"e$n\"";
    lab.run(&["exec", "w", "--", "sh", "-c", script]).expect(0);
    let mut all = String::new();
    for args in [
        &["diff", "w"][..],
        &["diff", "w", "--stat"],
        &["verify", "w", "--protect", "tests/**", "--", "true"],
        &["commit", "w", "--exclude", "e*"],
        &["history"],
        &["show", "w"],
        &["list", "--all"],
        &["tree", "--all"],
        &["undo"],
    ] {
        let done = lab.run(args).expect(0);
        all.push_str(&done.stdout);
        all.push_str(&done.stderr);
    }
    assert!(
        all.contains("withheld:") && all.contains("restored") && all.contains("excluded:"),
        "{all}"
    );
    let bad = all.chars().find(|&c| c.is_control() && c != '\n');
    assert_eq!(bad, None, "{all:?}");
    assert!(!all.lines().any(|line| line.starts_with("foo")), "{all}");
}

#[test]
fn a_tree_deeper_than_any_path_holds_up_nobody() {
    if !has("python3") {
        return;
    }
    let lab = Lab::new(&[("a", "1\n")]);
    let dig = "import os\nfor _ in range(5000):\n os.mkdir('d')\n os.chdir('d')\n";
    let deep = format!("python3 -c \"{dig}\"");
    let (report, _) = lab.json(&[
        "explore",
        "--attempt",
        &deep,
        "--attempt",
        "echo 2 > a",
        "--strategy",
        "first-wins",
    ]);
    assert_eq!(report["winner"], 1, "{report:#}");
    assert_eq!(lab.read("a").as_deref(), Some("2\n"));
    lab.run(&["fork", ".", "--name", "w"]).expect(0);
    lab.run(&["exec", "w", "--", "python3", "-c", dig])
        .expect(0);
    let done = lab.run(&["commit", "w"]).expect(2);
    assert!(done.stderr.contains("FP0205"), "{done:?}");
    lab.run(&["abort", "w"]).expect(0);
}

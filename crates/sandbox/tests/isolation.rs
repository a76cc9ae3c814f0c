//! What a hostile command tries, and does not get.

mod common;

use common::{Place, is_root, run, sh, sh_fails, start};
use forkpoint_sandbox::{ExitKind, Network, Sandbox, default_masks};
use std::os::fd::OwnedFd;
use std::path::Path;

fn has(program: &str) -> bool {
    let dirs = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];
    dirs.iter().any(|dir| Path::new(dir).join(program).exists())
}

fn with_home(place: &Place) -> Sandbox {
    let home = place.base.join("home");
    std::fs::create_dir_all(home.join(".ssh")).expect("mkdir");
    std::fs::write(home.join(".ssh/id"), "key\n").expect("write");
    std::fs::write(home.join(".netrc"), "password\n").expect("write");
    let mut spec = place.spec();
    spec.masks = default_masks(&home, &place.store);
    spec.branch_socket = true;
    start(spec)
}

#[test]
fn secrets_and_the_store_are_masked() {
    let place = Place::new();
    let sandbox = with_home(&place);
    let home = place.base.join("home").display().to_string();
    assert_eq!(
        sh(&sandbox, &format!("ls -A {home}/.ssh; cat {home}/.netrc")),
        ""
    );
    sh_fails(&sandbox, &format!("cat {home}/.ssh/id"));
    sh_fails(&sandbox, &format!("echo x > {home}/.ssh/new"));
    sh_fails(&sandbox, &format!("echo x > {home}/.netrc"));
    sh_fails(&sandbox, &format!("cat {}/secret", place.store.display()));
}

#[test]
fn a_mask_cannot_be_taken_away() {
    let place = Place::new();
    let sandbox = with_home(&place);
    let home = place.base.join("home").display().to_string();
    for attempt in [
        format!("umount {home}/.ssh"),
        format!("umount -l {home}/.ssh"),
        format!("umount -l {}", place.base.display()),
        "umount -l /".into(),
        "umount -l /tmp".into(),
        format!("mount -o remount,rw,bind {home}/.ssh && touch {home}/.ssh/x"),
        format!("mv {home}/.ssh {home}/gone"),
        format!("rmdir {home}/.ssh"),
        format!("unshare -Urm umount -l {home}/.ssh"),
        format!("unshare -Urm umount {home}/.netrc"),
        format!(
            "unshare -Urm sh -c 'mkdir -p /tmp/x && mount --bind {home} /tmp/x && cat /tmp/x/.ssh/id'"
        ),
    ] {
        sh_fails(&sandbox, &attempt);
    }
    let seen = sh(&sandbox, &format!("ls -A {home}/.ssh; cat {home}/.netrc"));
    assert_eq!(seen, "");
}

#[test]
fn the_store_is_out_of_reach_by_every_way_round() {
    let place = Place::new();
    let sandbox = place.start();
    let secret = place.store.join("secret").display().to_string();
    let base = place.base.display().to_string();
    for attempt in [
        format!("cat {secret}"),
        format!("cat /proc/1/root{secret}"),
        format!("cat /proc/self/root{secret}"),
        format!("cat /proc/1/cwd{secret}"),
        "readlink /proc/1/fd/3".into(),
        "readlink /proc/1/fd/7".into(),
        "cat /proc/1/fd/4".into(),
        "cat /proc/1/maps".into(),
        "ls -l /proc/1/exe".into(),
        "cat /proc/1/mem".into(),
        "cat /proc/1/environ".into(),
        format!("cat {base}/../store/secret"),
        format!(
            "ln -s {} {base}/out && cat {base}/out/secret",
            place.store.display()
        ),
        format!("chroot /proc/1/root cat {secret}"),
        "nsenter -t 1 -m true".into(),
        "nsenter -t 1 -U true".into(),
        format!("unshare -Ur chroot /proc/1/root cat {secret}"),
    ] {
        sh_fails(&sandbox, &attempt);
    }
    // The mounts may tell its path, which leads to the mask, or nowhere.
    sh_fails(&sandbox, &format!("ls {}/branches", place.store.display()));
}

#[test]
fn what_is_written_to_the_system_stays_inside() {
    let place = Place::new();
    let sandbox = place.start();
    let name = format!("forkpoint-test-{}", std::process::id());
    let mut places = vec!["/var/tmp", "/tmp", "/dev/shm"];
    if is_root() {
        places.extend(["/etc", "/usr/local/bin", "/root", "/"]);
    }
    for dir in places {
        let path = Path::new(dir).join(&name);
        sh(
            &sandbox,
            &format!("echo inside > {p} && cat {p}", p = path.display()),
        );
        assert!(!path.exists(), "{}", path.display());
    }
    if is_root() {
        sh(
            &sandbox,
            "echo changed > /etc/hosts && rm /etc/passwd && chown 33:33 /etc/group",
        );
        assert!(Path::new("/etc/passwd").exists());
        let host = std::fs::read_to_string("/etc/hosts").expect("read");
        assert_ne!(host, "changed\n");
        assert_eq!(
            sh(&sandbox, "stat -c %u:%g /etc/group /etc/hosts"),
            "33:33\n0:0\n"
        );
    }
    sandbox.kill().expect("kill");
    assert!(!Path::new("/var/tmp").join(&name).exists());
}

#[test]
fn root_inside_is_not_root_of_the_host() {
    if !is_root() {
        eprintln!("SKIP: only root's branch has a root");
        return;
    }
    let place = Place::new();
    let sandbox = place.start();
    for attempt in [
        "echo '|/tmp/x' > /proc/sys/kernel/core_pattern",
        "echo h > /proc/sysrq-trigger",
        "echo 1 > /proc/sys/vm/drop_caches",
        "echo 1 > /sys/kernel/mm/ksm/run",
        "mknod /tmp/disk b 254 0 && head -c 1 /tmp/disk",
        "mknod /var/tmp/disk b 254 0 && head -c 1 /var/tmp/disk",
        "mknod /tmp/mem c 1 1 && head -c 1 /tmp/mem",
        "insmod /nonexistent.ko",
        "mount -t ext4 /dev/vda /mnt",
        "hostname x; date -s '2001-01-01'",
        "cat /proc/kcore | head -c 1 | grep -q .",
        "dmesg",
        "swapoff -a && false",
        "test -n \"$(grep -v ':[*]:' /etc/shadow)\"",
        "nice -n -10 true 2>&1 | grep -v cannot",
        "chown 0:0 /proc/1",
        "renice -n -5 -p 1",
        "kill -9 1; kill -0 1",
    ] {
        sh_fails(&sandbox, attempt);
    }
    assert_eq!(sh(&sandbox, "grep -c '^root:[*]:' /etc/shadow"), "1\n");
    // A program that adds users finds the file writable.
    sh(
        &sandbox,
        "echo 'new:!:1::::::' >> /etc/shadow && grep -q new /etc/shadow",
    );
}

#[test]
fn init_can_neither_be_traced_nor_signalled() {
    let place = Place::new();
    let sandbox = place.start();
    for attempt in ["kill -9 1", "kill -STOP 1", "kill -TERM 1"] {
        // Root inside has no capability over init; the kernel refuses, or drops the signal.
        run(&sandbox, &["sh", "-c", attempt], Path::new("/"));
    }
    sh(&sandbox, "true");
    let probe = "import ctypes,sys\nlibc=ctypes.CDLL(None,use_errno=True)\n\
        sys.exit(0 if libc.ptrace(16,1,0,0)==0 else 1)";
    if has("python3") {
        let output = run(&sandbox, &["python3", "-c", probe], Path::new("/"));
        assert_eq!(output.report.status, ExitKind::Code(1), "{output:?}");
    } else {
        eprintln!("SKIP: no python3 to call ptrace");
    }
}

const CALLS: &str = r#"
import ctypes, errno, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *args):
    ctypes.set_errno(0)
    result = libc.syscall(number, *args)
    return 0 if result >= 0 else ctypes.get_errno()
refused = {
    "add_key": (248, b"user", b"x", b"y", 1, -3),
    "keyctl": (250, 0, -3, 0),
    "request_key": (249, b"user", b"x", 0, 0),
    "open_by_handle_at": (304, 3, 0, 0),
    "kexec_load": (246, 0, 0, 0, 0),
    "init_module": (175, 0, 0, b""),
    "bpf": (321, 0, 0, 0),
    "perf_event_open": (298, 0, 0, -1, -1, 0),
    "swapon": (167, b"/x", 0),
    "reboot": (169, 0, 0, 0, 0),
    "settimeofday": (164, 0, 0),
    "vsock": (41, 40, 1, 0),
    "TIOCSTI": (16, 0, 0x5412, b"x"),
}
bad = [name for name, args in refused.items() if call(*args) != errno.EPERM]
if call(425, 1, 0) != errno.ENOSYS: bad.append("io_uring_setup")
if call(39 + 0x40000000) != errno.ENOSYS: bad.append("x32 getpid")
print(" ".join(bad))
"#;

#[test]
#[cfg(target_arch = "x86_64")]
fn the_filter_refuses_what_it_lists() {
    if !has("python3") {
        eprintln!("SKIP: no python3 to make the calls");
        return;
    }
    let place = Place::new();
    let sandbox = place.start();
    let output = run(&sandbox, &["python3", "-c", CALLS], Path::new("/"));
    assert_eq!(output.out, "\n", "{output:?}");
    assert_eq!(
        sh(&sandbox, "grep NoNewPrivs /proc/self/status"),
        "NoNewPrivs:\t1\n"
    );
}

#[test]
fn the_network_is_a_loopback_only() {
    let place = Place::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("addr").port();
    let sandbox = place.start();
    let links = sh(&sandbox, "cat /proc/net/dev");
    assert_eq!(links.lines().count(), 3, "{links}");
    assert!(links.contains("lo:"), "{links}");
    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port}");
    let output = run(&sandbox, &["bash", "-c", &connect], Path::new("/"));
    assert_ne!(
        output.report.status,
        ExitKind::Code(0),
        "the host's port answered"
    );
    if has("python3") {
        let local = "import socket\ns=socket.create_server(('127.0.0.1',0))\n\
            socket.create_connection(s.getsockname()).close(); print('up')";
        let output = run(&sandbox, &["python3", "-c", local], Path::new("/"));
        assert_eq!(output.out, "up\n", "{output:?}");
    }
    let mut spec = Place::new().spec();
    spec.network = Network::Host;
    let place = Place::new();
    spec.disks = place.spec().disks;
    spec.root_upper = place.branch.join("root");
    let open = start(spec);
    let output = run(&open, &["bash", "-c", &connect], Path::new("/"));
    assert_eq!(output.report.status, ExitKind::Code(0), "{output:?}");
}

#[test]
fn no_socket_of_the_host_answers() {
    if !has("python3") {
        eprintln!("SKIP: no python3 to connect");
        return;
    }
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    let place = Place::new();
    let on_disk = place.base.join("sock");
    let _disk = UnixListener::bind(&on_disk).expect("bind");
    let name = format!("forkpoint-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("name");
    let _abstract = UnixListener::bind_addr(&address).expect("bind");
    let sandbox = place.start();
    for path in [format!("'{}'", on_disk.display()), format!("'\\0{name}'")] {
        let connect = format!("import socket\nsocket.socket(socket.AF_UNIX).connect({path})");
        let output = run(&sandbox, &["python3", "-c", &connect], Path::new("/"));
        assert_eq!(output.report.status, ExitKind::Code(1), "{output:?}");
    }
}

#[test]
fn other_sandboxes_work_inside() {
    let place = Place::new();
    let sandbox = place.start();
    assert_eq!(sh(&sandbox, "unshare -Ur id -u"), "0\n");
    if has("bwrap") {
        let bwrap = "bwrap --unshare-all --ro-bind / / --dev /dev --proc /proc --tmpfs /tmp \
            sh -c 'echo in $(ls /proc | grep -c \"^[0-9]\")'";
        assert!(sh(&sandbox, bwrap).starts_with("in "));
    } else {
        eprintln!("SKIP: no bwrap");
    }
    if has("python3") {
        // landlock_create_ruleset with LANDLOCK_CREATE_RULESET_VERSION.
        let probe = "import ctypes,sys\nlibc=ctypes.CDLL(None,use_errno=True)\n\
            r=libc.syscall(444,0,0,1)\nprint('yes' if r>0 or ctypes.get_errno() in (38,95) else ctypes.get_errno())";
        let output = run(&sandbox, &["python3", "-c", probe], Path::new("/"));
        assert_eq!(output.out, "yes\n", "{output:?}");
    }
}

#[test]
fn a_symbolic_link_left_by_a_preparation_leads_nowhere() {
    let place = Place::new();
    // A preparation that replaced a directory the disk lies in, as far as it can.
    let target = place.dir.path().join("victim");
    std::fs::create_dir(&target).expect("mkdir");
    let mut spec = place.spec();
    let link = place.base.join("link");
    std::os::unix::fs::symlink(&target, &link).expect("symlink");
    spec.verify_mounts
        .push((place.base.join("file"), link.join("mounted")));
    let error = Sandbox::start(spec).expect_err("a mount through a link");
    assert_eq!(error.code, "FP0302", "{error}");
    assert!(std::fs::read_dir(&target).expect("list").next().is_none());
}

#[test]
fn verify_mounts_and_the_out_directory_appear() {
    let place = Place::new();
    let (given, out) = (place.dir.path().join("given"), place.dir.path().join("out"));
    std::fs::create_dir(&given).expect("mkdir");
    std::fs::write(given.join("test"), "t\n").expect("write");
    std::fs::create_dir(&out).expect("mkdir");
    let mut spec = place.spec();
    spec.verify_mounts
        .push((given.clone(), "/verify/here".into()));
    spec.verify_mounts
        .push((given.join("test"), place.base.join("one")));
    spec.out_dir = Some(out.clone());
    let sandbox = start(spec);
    let base = place.base.display();
    assert_eq!(
        sh(&sandbox, &format!("cat /verify/here/test {base}/one")),
        "t\nt\n"
    );
    sh_fails(&sandbox, "echo x > /verify/here/test");
    sh_fails(&sandbox, &format!("echo x > {base}/one"));
    sh(&sandbox, "echo result > /run/forkpoint/out/r");
    assert_eq!(
        std::fs::read_to_string(out.join("r")).expect("read"),
        "result\n"
    );
    let mine =
        std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(out.join("r")).expect("stat"));
    assert_eq!(mine, rustix::process::geteuid().as_raw());
}

#[test]
fn closed_standard_streams_of_the_caller_do_no_harm() {
    let place = Place::new();
    let sandbox = place.start();
    let (mut request, _out, _err) = common::request(&["sh", "-c", "echo x"], Path::new("/"));
    let (read, write) = rustix::pipe::pipe().expect("pipe");
    let closed: OwnedFd = read;
    request.stdin = closed;
    drop(write);
    let running = sandbox.exec(request).expect("exec");
    assert_eq!(running.wait().expect("wait").status, ExitKind::Code(0));
}

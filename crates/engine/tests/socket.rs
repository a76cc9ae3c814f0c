//! The branch's socket, from inside real branches.
#![forbid(unsafe_code)]

mod common;

use common::{Place, has, run};
use forkpoint_engine::{AbortOptions, Branch, ExitKind, ForkOptions, Layer, Stream};
use std::io::Read;
use std::time::{Duration, Instant};

/// What every script begins with: `ask(line)` gives the answer's line, `Talk` holds a connection.
const PRELUDE: &str = r#"
import json, os, socket, sys, time
class Talk:
    def __init__(self):
        self.s = socket.socket(socket.AF_UNIX); self.s.connect(os.environ['FORKPOINT_SOCK'])
        self.f = self.s.makefile('rb')
    def send(self, line):
        self.s.sendall(line if isinstance(line, bytes) else (json.dumps(line) + '\n').encode())
    def answer(self):
        line = self.f.readline()
        return json.loads(line) if line else None
    def ask(self, line):
        self.send(line); return self.answer()
def code(answer):
    return answer['error']['code'] if 'error' in answer else 'ok'
"#;

/// Runs a script inside; what it printed. Skipped (`None`) where there is no python3.
#[track_caller]
fn python(branch: &Branch, script: &str) -> Option<String> {
    if !has("python3") {
        common::skip("no python3 to speak to the socket");
        return None;
    }
    let output = branch
        .command("python3")
        .args(["-c", &format!("{PRELUDE}{script}")])
        .output()
        .expect("a command");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.exit.status, ExitKind::Code(0), "{out}{err}");
    Some(out)
}

#[test]
fn a_branch_learns_who_it_is_and_nothing_of_another() {
    let place = Place::new();
    let branches = place.forks(2);
    for branch in &branches {
        let script = "a = Talk().ask({'v': 1, 'id': 'x', 'op': 'info'})\n\
            print(a['id'], a['ok']['branch'], a['ok']['epoch'], a['ok']['layer'], a['ok']['deadline'])";
        let Some(said) = python(branch, script) else {
            return;
        };
        let epoch = branch.record().expect("record").epoch.0;
        assert_eq!(said, format!("x {} {epoch} effect None\n", branch.id()));
    }
}

#[test]
fn a_deadline_is_told() {
    let place = Place::new();
    let branch = place.fork();
    if !has("python3") {
        return common::skip("no python3");
    }
    let script = format!(
        "{PRELUDE}\nleft = Talk().ask({{'op': 'info'}})['ok']['deadline'] - time.time()\n\
         print(0 < left < 51)"
    );
    let output = branch
        .command("python3")
        .args(["-c", &script])
        .limits(forkpoint_engine::Limits {
            wall_ms: Some(50_000),
            ..Default::default()
        })
        .output()
        .expect("a command");
    assert_eq!(output.stdout, b"True\n", "{output:?}");
}

#[test]
fn a_branch_at_the_reasoning_layer_has_no_socket_at_all() {
    let place = Place::new();
    let forked = place.world().fork(&ForkOptions {
        layer: Layer::Reasoning,
        ..ForkOptions::default()
    });
    let branch = forked.expect("fork").remove(0).expect("a branch");
    let script = "echo [${FORKPOINT_SOCK-unset}]; ls -A /run/forkpoint";
    let output = branch.command("sh").args(["-c", script]).output();
    let said = String::from_utf8_lossy(&output.expect("a command").stdout).into_owned();
    assert!(said.starts_with("[unset]\n"), "{said}");
    assert!(!said.contains("sock"), "{said}");
    let branch = place.fork();
    let (code, said) = run(&branch, "echo $FORKPOINT_SOCK; test -S $FORKPOINT_SOCK");
    assert_eq!((code, said.trim()), (0, "/run/forkpoint/sock"));
}

#[test]
fn what_an_attempt_says_of_itself_lies_where_it_would_write_it() {
    let place = Place::new();
    let branch = place.fork();
    let script = "t = Talk()\n\
        open(os.environ['FORKPOINT_OUT'] + '/cost', 'a').write('{\"cost\": 1}\\n')\n\
        print(code(t.ask({'op': 'cost', 'cost': 0.25})))\n\
        open(os.environ['FORKPOINT_OUT'] + '/cost', 'a').write('{\"cost\": 2}\\n')\n\
        print(code(t.ask({'op': 'score', 'score': 7, 'metrics': {'time': 3}})))\n\
        print(code(t.ask({'op': 'progress', 'text': 'half', 'fraction': 0.5})))\n\
        print(code(t.ask({'op': 'cost', 'cost': -1})))";
    let Some(said) = python(&branch, script) else {
        return;
    };
    assert_eq!(said, "ok\nok\nok\nFP0450\n");
    let read = |name: &str| std::fs::read_to_string(branch.out_path().join(name)).expect(name);
    assert_eq!(
        read("cost"),
        "{\"cost\": 1}\n{\"cost\":0.25}\n{\"cost\": 2}\n"
    );
    assert_eq!(read("score"), "{\"score\":7.0,\"time\":3.0}\n");
    assert_eq!(read("progress"), "{\"fraction\":0.5,\"text\":\"half\"}\n");
}

#[test]
fn a_branch_takes_steps_and_checkpoints_of_itself_while_it_runs() {
    let place = Place::new();
    place.write("file", "base");
    let branch = place.fork();
    let script = "t = Talk()\n\
        open('file', 'w').write('one')\n\
        print(t.ask({'op': 'step', 'text': 'after one'})['ok']['step'])\n\
        open('file', 'w').write('two')\n\
        a = t.ask({'op': 'checkpoint', 'name': 'second'}); print(code(a), a['ok']['name'])\n\
        print(code(t.ask({'op': 'checkpoint', 'name': 'step:x:1'})))\n\
        print(code(t.ask({'op': 'checkpoint', 'name': 'second'})))\n\
        open('file', 'w').write('three')\n\
        print([code(t.ask({'op': 'checkpoint'})) for _ in range(16)].count('ok'))";
    let Some(said) = python(&branch, script) else {
        return;
    };
    let name = format!("{}.second", branch.id());
    assert_eq!(said, format!("1\nok {name}\nFP0450\nFP0110\n15\n"));
    let checkpoint = place.engine.checkpoint(&name).expect("the checkpoint");
    let fork = checkpoint.fork(&ForkOptions::default()).expect("fork");
    let (_, text) = run(fork[0].as_ref().expect("a branch"), "cat file");
    assert_eq!(text.trim(), "two");
    let (_, text) = run(&branch, "cat file");
    assert_eq!(text.trim(), "three");
    branch.kill().expect("kill");
    branch.rewind(Some(1)).expect("rewind");
    let (_, text) = run(&branch, "cat file");
    assert_eq!(text.trim(), "one");
}

#[test]
fn bad_requests_are_answered_and_harm_nobody() {
    let place = Place::new();
    let branch = place.fork();
    let script = r#"
t = Talk()
for bad in [b'\n', b'{}\n', b'hello\n', b'\xff\xfe\n', b'[' * 100000 + b'\n', b'{"op":"commit"}\n',
            b'{"op":"info","op":"info"}\n', b'{"op":"info","x":1}\n', b'{"v":9,"op":"info"}\n',
            b'{"op":"cost","cost":"much"}\n', b'{"id":[],"op":"info"}\n']:
    assert code(t.ask(bad)) == 'FP0450', bad
assert code(t.ask({'op': 'info'})) == 'ok'
t.send(b''.join(b'{"op":"info","id":%d}\n' % n for n in range(1000)))
assert [t.answer()['id'] for _ in range(1000)] == list(range(1000)), 'in order'
half = Talk(); half.send(b'{"op":"info"}'); half.s.shutdown(socket.SHUT_WR)
assert code(half.answer()) == 'ok' and half.answer() is None
long = Talk()
try: long.send(b'x' * (3 << 20))
except OSError: pass
assert code(long.answer()) == 'FP0450'
gone = Talk(); gone.send(b'{"op":"info"}\n{"op":"info"}\n'); gone.s.close()
slow = Talk()
try:
    slow.s.settimeout(2)
    for n in range(200): slow.send(b'{"op":"info"}\n' * 1000)
    print('everything was taken')
except OSError: pass
halves = [Talk() for _ in range(6)]
for half in halves:
    half.s.settimeout(10)
    try: half.send(b'x' * (1900 << 10))
    except OSError: pass
assert code(halves[4].answer()) == 'FP0451' and code(halves[5].answer()) == 'FP0451'
assert code(Talk().ask({'op': 'info'})) == 'ok'
all = [Talk() for _ in range(500)]
assert code(all[-1].ask({'op': 'info'})) == 'ok'
assert code(Talk().ask({'op': 'info'})) == 'ok'
print('done')
"#;
    let Some(said) = python(&branch, script) else {
        return;
    };
    assert_eq!(said, "done\n");
}

#[test]
fn one_branch_s_flood_does_not_keep_another_waiting() {
    let place = Place::new();
    let branches = place.forks(2);
    if !has("python3") {
        return common::skip("no python3");
    }
    let flood = format!(
        "{PRELUDE}\nimport threading\n\
         def one():\n  t = Talk()\n  threading.Thread(target=lambda: [t.answer() for _ in iter(int, 1)], daemon=True).start()\n\
         \x20 while True: t.send(b'{{\"op\":\"info\"}}\\n' * 200)\n\
         for _ in range(8): threading.Thread(target=one, daemon=True).start()\n\
         print('floods', flush=True); time.sleep(60)"
    );
    let mut flooding = branches[0].command("python3");
    flooding.args(["-c", &flood]).stdout(Stream::Piped);
    let mut flooding = flooding.spawn().expect("a flood");
    let mut pipe = flooding.stdout.take().expect("a pipe");
    pipe.read_exact(&mut [0; 7]).expect("it floods");
    let script = "t = Talk(); took = []\n\
        for _ in range(200):\n a = time.perf_counter(); t.ask({'op': 'info'}); took.append(time.perf_counter() - a)\n\
        took.sort(); print(took[100], took[-1])";
    let said = python(&branches[1], script).expect("python3 is there");
    let times: Vec<f64> = said
        .split_whitespace()
        .map(|t| t.parse().expect("a time"))
        .collect();
    eprintln!(
        "beside a flood: median {:.0} us, worst {:.0} us",
        times[0] * 1e6,
        times[1] * 1e6
    );
    assert!(times[0] < 0.05, "median {} s", times[0]);
    flooding.kill().expect("kill");
}

#[test]
fn two_processes_serve_one_branch_and_the_end_of_one_leaves_the_other() {
    let place = Place::new();
    let branch = place.fork();
    if !has("python3") {
        return common::skip("no python3");
    }
    let mut holder = branch.command("sleep");
    let mut holder = holder.arg("60").spawn().expect("sleep");
    let other = place.again();
    let same = other.branch_by_id(branch.id()).expect("the branch");
    let script = "print(len([1 for _ in range(50) if code(Talk().ask({'op': 'info'})) == 'ok']))";
    assert_eq!(python(&same, script).expect("python3"), "50\n");
    drop(same);
    drop(other);
    assert_eq!(python(&branch, script).expect("python3"), "50\n");
    holder.kill().expect("kill");
    holder.wait().expect("wait");
}

#[test]
fn what_is_left_behind_waits_until_somebody_serves_again() {
    let place = Place::new();
    let branch = place.fork();
    if !has("python3") {
        return common::skip("no python3");
    }
    // Another engine starts it and goes, as a process does that ends.
    let other = place.again();
    let script = format!(
        "{PRELUDE}\nout = os.environ['FORKPOINT_OUT']\nif os.fork() == 0:\n  \
         while not os.path.exists(out + '/go'): time.sleep(0.01)\n  \
         a = code(Talk().ask({{'op': 'info'}}))\n  \
         open(out + '/new', 'w').write(a); os.rename(out + '/new', out + '/said'); time.sleep(60)"
    );
    let same = other.branch_by_id(branch.id()).expect("the branch");
    let mut command = same.command("python3");
    let left = command.args(["-c", &script]).status().expect("a command");
    assert_eq!(left.left_running, 1);
    drop(command);
    drop(same);
    drop(other);
    std::fs::write(branch.out_path().join("go"), "").expect("go");
    let server = place.again().branch_by_id(branch.id()).expect("the branch");
    let serving = std::thread::spawn(move || server.serve());
    let said = branch.out_path().join("said");
    let begun = Instant::now();
    while !said.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "nobody answered");
        let moment = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        rustix::event::poll(&mut [], Some(&moment)).expect("poll");
    }
    assert_eq!(std::fs::read_to_string(&said).expect("read"), "ok");
    assert!(!branch.serve().expect("serve"), "one is enough");
    branch.abort(&AbortOptions::default()).expect("abort");
    assert!(serving.join().expect("join").expect("serve"), "to the end");
    assert!(!branch.serve().expect("nothing is left to serve"));
}

#[test]
fn events_are_held_through_the_socket_and_seen_by_the_branch_alone() {
    let place = Place::new();
    let branches = place.forks(2);
    let script = "t = Talk()\n\
        print(code(t.ask({'op': 'bus.publish', 'topic': 'a', 'payload': 'one'})))\n\
        print(code(t.ask({'op': 'bus.publish', 'topic': 'a', 'payload_b64': '/w=='})))\n\
        e = t.ask({'op': 'bus.read', 'topic': 'a'})['ok']\n\
        print([x.get('payload', x.get('payload_b64')) for x in e['events']], e['events'][0]['held'])\n\
        print(t.ask({'op': 'bus.read', 'after': e['after']})['ok']['events'])\n\
        e = t.ask({'op': 'bus.read', 'after': e['events'][0]['cursor']})['ok']['events']\n\
        print([x['payload_b64'] for x in e])\n\
        print(code(t.ask({'op': 'bus.publish', 'topic': 'a'})))\n\
        print(code(t.ask({'op': 'bus.read', 'after': 'x'})))";
    let Some(said) = python(&branches[0], script) else {
        return;
    };
    let expected = "ok\nok\n['one', '/w=='] True\n[]\n['/w==']\nFP0450\nFP0450\n";
    assert_eq!(said, expected);
    let script = "print(Talk().ask({'op': 'bus.read'})['ok']['events'])";
    assert_eq!(python(&branches[1], script).expect("python3"), "[]\n");
}

#[test]
fn keys_are_the_branch_s_own_until_it_is_committed() {
    let place = Place::new();
    let branches = place.forks(2);
    let script = "t = Talk()\n\
        put = lambda k, v, **x: t.ask({'op': 'kv.put', 'key': k, 'value': v, **x})['ok']\n\
        print(t.ask({'op': 'kv.get', 'key': 'a'})['ok'])\n\
        print(put('a', 'one')['done'], put('a', 'two', expect=0)['done'])\n\
        a = t.ask({'op': 'kv.get', 'key': 'a'})['ok']; print(a['value'])\n\
        print(put('a', 'three', expect=a['version'])['done'])\n\
        t.ask({'op': 'kv.put', 'key_b64': '/w==', 'value_b64': 'AA=='})\n\
        print([(x.get('key', x.get('key_b64')), x.get('value', x.get('value_b64'))) \
        for x in t.ask({'op': 'kv.list'})['ok']['entries']])\n\
        print(t.ask({'op': 'kv.delete', 'key': 'a'})['ok']['done'], t.ask({'op': 'kv.get', 'key': 'a'})['ok'])\n\
        print(code(t.ask({'op': 'kv.get'})), code(t.ask({'op': 'kv.get', 'key': 'x' * 1025})), \
        code(t.ask({'op': 'kv.put', 'key': 'x', 'value': 'x' * (1 << 20) + 'x'})))\n\
        big = 'x' * (1 << 20)\n\
        for n in range(4): put('big%d' % n, big)\n\
        seen, after = [], {}\n\
        while True:\n\
        \x20 page = t.ask({'op': 'kv.list', 'prefix': 'big', **after})['ok']; seen += page['entries']\n\
        \x20 if 'next' not in page: break\n\
        \x20 after = {'after': page['next']}\n\
        print([x['key'] for x in seen], all(x['value'] == big for x in seen))";
    let Some(said) = python(&branches[0], script) else {
        return;
    };
    let expected = "{'version': 0}\nTrue False\none\nTrue\n[('a', 'three'), ('/w==', 'AA==')]\n\
        True {'version': 0}\nFP0450 FP0114 FP0114\n['big0', 'big1', 'big2', 'big3'] True\n";
    assert_eq!(said, expected);
    let script = "print(Talk().ask({'op': 'kv.list'})['ok']['entries'])";
    assert_eq!(python(&branches[1], script).expect("python3"), "[]\n");
}

#[test]
fn a_branch_that_is_always_at_something_can_be_sealed_and_aborted() {
    if !has("python3") {
        return common::skip("no python3");
    }
    let place = Place::new();
    let script = format!(
        "{PRELUDE}\nimport threading\nopen('big', 'wb').write(os.urandom(8 << 20))\n\
         def one():\n  t = Talk()\n  while True: t.ask({{'op': 'step'}})\n\
         for _ in range(3): threading.Thread(target=one, daemon=True).start()\n\
         print('begun', flush=True); time.sleep(60)"
    );
    for _ in 0..3 {
        let branch = place.fork();
        let mut command = branch.command("python3");
        command.args(["-c", &script]).stdout(Stream::Piped);
        let mut child = command.spawn().expect("a command");
        let mut pipe = child.stdout.take().expect("a pipe");
        pipe.read_exact(&mut [0; 6]).expect("it begins");
        let begun = Instant::now();
        while branch.steps().expect("steps").is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "no step");
        }
        // Each of these needs the branch's lock, which the branch itself has nearly all the time.
        for _ in 0..3 {
            let done = branch
                .command("true")
                .status()
                .expect("a command beside it");
            assert_eq!(done.status, ExitKind::Code(0));
        }
        branch.seal(&Default::default()).expect("seal");
        branch.abort(&AbortOptions::default()).expect("abort");
    }
}

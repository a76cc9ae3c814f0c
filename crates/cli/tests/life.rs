//! The life of one branch by the command: steps and rewinding, summaries, stop, pause and resume,
//! ports, followed logs.

mod common;

use common::{Lab, signal, wait_until};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(30);

fn lab() -> Lab {
    let lab = Lab::new(&[("a", "base\n"), ("b", "base\n")]);
    lab.run(&["fork", ".", "--name", "b1"]).expect(0);
    lab
}

/// What the branch shows of its files.
fn files(lab: &Lab) -> String {
    lab.run(&["exec", "b1", "--", "sh", "-c", "grep -s '' *; true"])
        .expect(0)
        .stdout
}

fn step(lab: &Lab, script: &str) {
    lab.run(&["exec", "b1", "--step", "--", "sh", "-c", script])
        .expect(0);
}

#[test]
fn a_step_is_gone_back_to_and_forward_again() {
    let lab = lab();
    let begun = files(&lab);
    step(&lab, "echo one > a");
    let one = files(&lab);
    step(&lab, "rm b; echo two > c");
    let two = files(&lab);
    assert_eq!(
        (one.as_str(), two.as_str()),
        ("a:one\nb:base\n", "a:one\nc:two\n")
    );
    let (steps, _) = lab.json(&["rewind", "b1", "--list"]);
    let steps = steps["steps"].as_array().unwrap().clone();
    assert_eq!(steps.len(), 2);
    assert_eq!(steps[1]["number"], 2);
    assert_eq!(steps[1]["command"], "sh -c rm b; echo two > c");
    assert_eq!(steps[1]["changed"]["added"], 1);
    assert_eq!(steps[1]["changed"]["removed"], 1);
    assert_eq!(steps[1]["changed"]["modified"], 0);

    lab.run(&["rewind", "b1"]).expect(0);
    assert_eq!(files(&lab), one);
    let back = lab.run(&["rewind", "b1"]).expect(0);
    assert_eq!(files(&lab), begun, "one further back each time");
    assert!(back.stderr.contains("rewind b1 4"), "{back:?}");
    lab.run(&["rewind", "b1", "3"]).expect(0);
    assert_eq!(files(&lab), two, "what the first rewind went back from");
    assert!(lab.run(&["history"]).expect(0).stdout.contains("rewind"));
    let done = lab.run(&["rewind", "b1", "77"]).expect(2);
    assert!(done.stderr.contains("no step 77"), "{done:?}");
    lab.run(&["commit", "b1"]).expect(0);
    assert_eq!(lab.read("c").as_deref(), Some("two\n"));
    lab.run(&["gc"]).expect(0);
    let (steps, _) = lab.json(&["rewind", "b1", "--list"]);
    assert_eq!(
        steps["steps"].as_array().unwrap().len(),
        0,
        "they go with the branch"
    );
}

#[test]
fn many_steps_stay_shallow_and_the_first_are_right() {
    let lab = lab();
    for n in 0..20 {
        step(&lab, &format!("echo {n} > a; echo {n} > new{n}"));
    }
    assert!(files(&lab).contains("a:19\n"));
    lab.run(&["rewind", "b1", "3"]).expect(0);
    assert_eq!(files(&lab), "a:1\nb:base\nnew0:0\nnew1:1\n");
    lab.run(&["rewind", "b1", "21"]).expect(0);
    let all = files(&lab);
    assert!(all.contains("a:19\n") && all.contains("new0:0\n") && all.contains("new19:19\n"));
}

#[test]
fn a_step_of_a_running_branch_is_a_clone_and_rewinding_waits_for_its_end() {
    let lab = lab();
    let mut left = lab.spawn(&[
        "exec",
        "b1",
        "--",
        "sh",
        "-c",
        "echo mine > held; sleep 71.5",
    ]);
    wait_until(PATIENCE, || {
        lab.run(&["diff", "b1"]).stdout.contains("held")
    })
    .unwrap();
    step(&lab, "rm held");
    let refused = lab.run(&["rewind", "b1"]).expect(2);
    assert!(refused.stderr.contains("forkpoint stop"), "{refused:?}");
    lab.run(&["stop", "b1"]).expect(0);
    left.wait().unwrap();
    lab.run(&["rewind", "b1"]).expect(0);
    assert!(files(&lab).contains("held:mine"));
}

#[test]
fn a_summary_tells_what_this_command_changed() {
    let lab = lab();
    let run = |script: &str| {
        let done = lab.run(&["exec", "b1", "--summary", "--", "sh", "-c", script]);
        done.expect(0).stderr
    };
    let first = run("echo x > a; echo x > new");
    assert!(first.contains("changed: 1A 1M"), "{first}");
    assert!(
        first.contains("  M a") && first.contains("  A new"),
        "{first}"
    );
    let second = run("echo y > new; rm b");
    assert!(second.contains("changed: 1M 1D"), "{second}");
    assert!(!second.contains("M a"), "that was before: {second}");
    let third = run("rm new; echo base > b");
    assert!(third.contains("changed: 1A 1D"), "{third}");
    assert_eq!(run("true"), "");
    let done = lab
        .run(&["exec", "--json", "b1", "--summary", "--", "touch", "z"])
        .expect(0);
    let document: serde_json::Value = serde_json::from_str(&done.stderr).unwrap();
    assert_eq!(document["schema"], "forkpoint.changed/1");
    assert_eq!(document["added"], 1);
    assert_eq!(
        lab.run(&["exec", "b1", "--", "touch", "q"])
            .expect(0)
            .stderr,
        ""
    );
}

#[test]
fn a_paused_branch_makes_no_progress_until_it_is_resumed() {
    let lab = lab();
    let script = "n=0; while :; do n=$((n+1)); echo $n > count; sleep 0.02; done";
    let mut left = lab.spawn(&["exec", "b1", "--timeout", "20s", "--", "sh", "-c", script]);
    let count = || lab.run(&["diff", "b1", "--patch"]).stdout;
    wait_until(PATIENCE, || count().contains("+5")).unwrap();
    lab.run(&["pause", "b1"]).expect(0);
    let held = count();
    assert!(lab.run(&["list"]).expect(0).stdout.contains("open, paused"));
    assert_eq!(lab.json(&["show", "b1"]).0["activity"], "paused");
    assert!(lab.run(&["tree"]).expect(0).stdout.contains("paused"));
    // A fork of it is made, and leaves it paused.
    lab.run(&["fork", "b1", "--name", "child"]).expect(0);
    let refused = lab.run(&["exec", "b1", "--", "true"]).expect(125);
    assert!(refused.stderr.contains("forkpoint resume"), "{refused:?}");
    wait_until(Duration::from_millis(300), || false);
    assert_eq!(count(), held);
    lab.run(&["resume", "b1"]).expect(0);
    wait_until(PATIENCE, || count() != held).expect("it goes on");
    assert_eq!(lab.json(&["show", "b1"]).0["activity"], "running");
    lab.run(&["pause", "b1"]).expect(0);
    let stopped = lab.run(&["stop", "b1"]).expect(0);
    assert!(stopped.stdout.contains("b1 is stopped"));
    assert!(!left.wait().unwrap().success());
    assert_eq!(lab.json(&["show", "b1"]).0["activity"], "stopped");
    assert!(
        lab.run(&["stop", "b1"])
            .expect(0)
            .stdout
            .contains("was not running")
    );
    lab.run(&["pause", "b1"]).expect(2);
    // It may have been killed between making the file empty and filling it.
    let left = lab.run(&["diff", "b1"]).expect(0).stdout;
    assert!(left.contains("count"), "the disk stays: {left}");
}

#[test]
fn a_port_leads_into_the_branch_until_interrupted() {
    let lab = lab();
    if std::process::Command::new("python3")
        .arg("--version")
        .output()
        .is_err()
    {
        eprintln!("SKIP: no python3 to listen with");
        return;
    }
    // Answers with everything it got, once the other side has said all it had to say.
    let server = "import socket,sys\n\
        s=socket.create_server((sys.argv[1],7070),family=getattr(socket,sys.argv[2]),backlog=200)\n\
        open('up','w').close()\n\
        while True:\n c,_=s.accept()\n d=b''\n while True:\n  p=c.recv(65536)\n  if not p: break\n  d+=p\n c.sendall(b'got '+d)\n c.close()\n";
    for (address, family) in [("127.0.0.1", "AF_INET"), ("::1", "AF_INET6")] {
        let mut left = lab.spawn(&["exec", "b1", "--", "python3", "-c", server, address, family]);
        wait_until(PATIENCE, || lab.run(&["diff", "b1"]).stdout.contains("up")).unwrap();
        let mut forward = lab.spawn(&["port", "b1", "7070:0"]);
        let mut line = String::new();
        BufReader::new(forward.stdout.as_mut().unwrap())
            .read_line(&mut line)
            .unwrap();
        let place = line.split(' ').next().unwrap().to_owned();
        assert!(
            place.starts_with("127.0.0.1:") && line.contains("-> b1:7070"),
            "{line}"
        );
        let all: Vec<_> = (0..100)
            .map(|n| {
                let place = place.clone();
                std::thread::spawn(move || {
                    let mut stream = TcpStream::connect(place).unwrap();
                    let text = format!("{n} ").repeat(20_000);
                    stream.write_all(text.as_bytes()).unwrap();
                    stream.shutdown(Shutdown::Write).unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    assert!(
                        answer == format!("got {text}"),
                        "{n}: {} bytes",
                        answer.len()
                    );
                })
            })
            .collect();
        for one in all {
            one.join().unwrap();
        }
        signal(&forward, Signal::INT);
        assert_eq!(forward.wait().unwrap().code(), Some(0));
        assert!(
            TcpStream::connect(&place).is_err(),
            "nobody listens any more"
        );
        lab.run(&["stop", "b1"]).expect(0);
        left.wait().unwrap();
        lab.run(&["exec", "b1", "--", "rm", "up"]).expect(0);
    }
    let shown = lab.json(&["show", "b1"]).0;
    assert_eq!(shown["uncaptured"][0], "port 7070");
    let (done, _) = lab.json(&["abort", "b1"]);
    assert_eq!(done["branches"][0]["state"], "abandoned");
}

#[test]
fn a_followed_log_ends_with_the_branch() {
    let lab = Lab::new(&[("a", "x\n")]);
    let script =
        "echo first; until [ -e /run/forkpoint/out/go ]; do sleep 0.05; done; echo last; : > done";
    let mut explore = lab.spawn(&[
        "explore",
        "--keep",
        "all",
        "--no-commit",
        "--",
        "sh",
        "-c",
        script,
    ]);
    let found = || {
        let (list, _) = lab.json(&["list"]);
        list["branches"].get(0)?["branch"]
            .as_str()
            .map(str::to_owned)
    };
    wait_until(PATIENCE, || found().is_some()).unwrap();
    let branch = found().unwrap();
    let mut follow = lab.spawn(&["logs", "-f", &branch]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "first");
    std::fs::write(
        lab.store().join("branches").join(&branch).join("out/go"),
        "",
    )
    .unwrap();
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["last"]);
    assert_eq!(follow.wait().unwrap().code(), Some(0));
    explore.wait().unwrap();
}

/// Whether a process watches a directory.
fn watches(pid: u32) -> bool {
    let Ok(all) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else {
        return false;
    };
    all.flatten()
        .any(|fd| std::fs::read_to_string(fd.path()).is_ok_and(|text| text.contains("inotify wd:")))
}

#[test]
fn a_log_that_is_followed_before_its_attempt_is_started_waits_for_it() {
    let lab = Lab::new(&[("a", "x\n")]);
    let script = "until [ -e /run/forkpoint/out/go ]; do sleep 0.05; done; \
        echo $FORKPOINT_ATTEMPT > done; echo ran $FORKPOINT_ATTEMPT";
    let mut args = vec!["explore", "--no-commit", "--jobs", "1", "-n", "2"];
    args.extend(["--score", "echo 1", "--", "sh", "-c", script]);
    let mut explore = lab.spawn(&args);
    let attempts = || {
        let (list, _) = lab.json(&["list"]);
        let all = list["branches"].as_array().unwrap();
        let mut found: Vec<(u64, String, bool)> = all
            .iter()
            .filter_map(|b| {
                let id = b["branch"].as_str()?.to_owned();
                Some((b["attempt"].as_u64()?, id, b["activity"] == "running"))
            })
            .collect();
        found.sort();
        found
    };
    let begun = || attempts().len() == 2 && attempts()[0].2;
    wait_until(PATIENCE, begun).expect("the first runs");
    let dirs: Vec<_> = attempts()
        .iter()
        .map(|(_, id, _)| lab.store().join("branches").join(id))
        .collect();
    std::fs::create_dir_all(&dirs[1]).unwrap();
    std::fs::write(dirs[1].join("log"), "").unwrap();
    let mut follow = lab.spawn(&["logs", "-f", &attempts()[1].1]);
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    wait_until(PATIENCE, || watches(follow.id())).expect("it looks before the attempt is started");
    for dir in &dirs {
        wait_until(PATIENCE, || dir.join("out").is_dir()).unwrap();
        std::fs::write(dir.join("out/go"), "").unwrap();
    }
    assert_eq!(lines.next().unwrap().unwrap(), "ran 1");
    assert!(follow.wait().unwrap().success());
    assert!(explore.wait().unwrap().success());
}

#[test]
fn shells_that_start_in_one_branch_at_once_all_get_in() {
    let lab = lab();
    let each = |n: usize| {
        let script = format!("echo {n} > from{n}");
        lab.spawn(&["exec", "b1", "--", "sh", "-c", &script])
    };
    let mut shells: Vec<_> = (0..6).map(each).collect();
    for shell in &mut shells {
        assert!(shell.wait().unwrap().success());
    }
    let all = lab
        .run(&["exec", "b1", "--", "sh", "-c", "cat from*"])
        .expect(0);
    assert_eq!(all.stdout, "0\n1\n2\n3\n4\n5\n");
}

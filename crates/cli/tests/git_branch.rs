//! `commit --git-branch`: the winner as a git branch, the work tree, index and HEAD untouched.

mod common;

use common::{Done, Lab};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Repo {
    lab: Lab,
    home: PathBuf,
}

impl Repo {
    /// The base is a repository with one commit.
    fn new(files: &[(&str, &str)]) -> Self {
        let lab = Lab::new(files);
        let home = lab.path("home");
        std::fs::create_dir(&home).unwrap();
        let who = "[user]\n name = Ann\n email = ann@example.org\n[init]\n defaultBranch = main\n";
        std::fs::write(home.join(".gitconfig"), who).unwrap();
        let repo = Self { lab, home };
        repo.git(&["init", "-q"]);
        repo.git(&["add", "-A"]);
        repo.git(&["commit", "-qm", "start"]);
        repo
    }

    fn git_in(&self, dir: &Path, args: &[&str]) -> String {
        let output = Command::new("git")
            .args(args)
            .current_dir(dir)
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned()
    }

    fn git(&self, args: &[&str]) -> String {
        self.git_in(&self.lab.base(), args)
    }

    fn run(&self, args: &[&str]) -> Done {
        let mut command = self.lab.command(args);
        command
            .env("HOME", &self.home)
            .env("GIT_CONFIG_NOSYSTEM", "1");
        Done::of(args, command.output().unwrap())
    }

    fn branch(&self, name: &str, script: &str) {
        self.run(&["fork", ".", "--name", name]).expect(0);
        self.run(&["exec", name, "--", "sh", "-ec", script])
            .expect(0);
    }

    /// HEAD, index, work tree: what must not change.
    fn state(&self) -> (String, Vec<u8>, String) {
        let index = std::fs::read(self.lab.base().join(".git/index")).unwrap();
        (
            self.git(&["symbolic-ref", "HEAD"]),
            index,
            self.git(&["rev-parse", "HEAD"]),
        )
    }
}

#[test]
fn a_branch_becomes_a_git_branch_and_nothing_else_changes() {
    let repo = Repo::new(&[
        ("a", "1\n"),
        ("gone/x", "x\n"),
        ("run", "r\n"),
        (".gitignore", "*.o\n/out/\n"),
    ]);
    let marker = repo.lab.path("ran");
    let filter = format!("touch {}; cat", marker.display());
    repo.git(&["config", "filter.evil.clean", &filter]);
    let hook = repo.lab.base().join(".git/hooks/reference-transaction");
    std::fs::write(&hook, format!("#!/bin/sh\ntouch {}\n", marker.display())).unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    repo.branch(
        "one",
        "printf 'two\\r\\n' > a; rm -r gone; chmod 755 run; mkdir -p out d; echo o > x.o; echo o > out/y; \
         echo '* filter=evil text=auto' > .gitattributes; ln -s a 'd/l \"q'; printf 'b\\0' > d/bin; mkfifo d/pipe",
    );
    let before = repo.state();
    let done = repo
        .run(&[
            "commit",
            "one",
            "--git-branch",
            "try/one",
            "-m",
            "better\n\nbody",
        ])
        .expect(0);
    assert_eq!(repo.state(), before);
    assert!(!marker.exists(), "a hook or a filter ran");
    assert_eq!(repo.lab.read("a").as_deref(), Some("1\n"));
    assert!(
        done.stderr.contains("ignored: out/y") && done.stderr.contains("ignored: x.o"),
        "{done:?}"
    );
    assert!(done.stderr.contains("not for git: d/pipe"), "{done:?}");
    let names = repo.git(&[
        "-c",
        "core.quotePath=false",
        "diff-tree",
        "-r",
        "--name-status",
        "main",
        "try/one",
    ]);
    assert_eq!(
        names,
        "A\t.gitattributes\nM\ta\nA\td/bin\nA\t\"d/l \\\"q\"\nD\tgone/x\nM\trun"
    );
    assert_eq!(repo.git(&["cat-file", "-p", "try/one:a"]), "two");
    assert_eq!(repo.git(&["cat-file", "-s", "try/one:a"]), "5");
    let log = repo.git(&["log", "-1", "--format=%an %ae %B%P", "try/one"]);
    assert_eq!(
        log,
        format!(
            "Ann ann@example.org better\n\nbody\n{}",
            repo.git(&["rev-parse", "main"])
        )
    );
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\nrefs/heads/try/one"
    );
    repo.git(&["fsck", "--strict"]);
    let list = repo.run(&["list", "-a"]).expect(0).stdout;
    assert!(list.contains("committed as git try/one"), "{list}");
    let history = repo.run(&["history"]).expect(0).stdout;
    assert!(history.contains("as git branch try/one"), "{history}");
    // What git could not carry is still there to be looked at, and the base is at its generation.
    let kept = repo.run(&["diff", "one"]).expect(0).stdout;
    assert!(
        kept.contains("A x.o\n") && kept.contains("A d/pipe\n"),
        "{kept}"
    );
    repo.branch("two", "echo 3 > a");
    repo.run(&["commit", "two", "--git-branch", "try/one"])
        .expect(3);
    repo.run(&["commit", "two", "--git-branch", "main", "--force"])
        .expect(3);
    repo.run(&["commit", "two", "--git-branch", "bad..name"])
        .expect(2);
    repo.run(&["commit", "two", "--git-branch", "try"])
        .expect(125);
    repo.run(&["commit", "two", "--git-branch", "try/one", "--force"])
        .expect(0);
    assert_eq!(repo.git(&["show", "try/one:a"]), "3");
}

#[test]
fn siblings_lose_and_independent_branches_stay_fresh() {
    let repo = Repo::new(&[("a", "1\n")]);
    repo.run(&["fork", ".", "--name", "s", "-n", "2"]).expect(0);
    repo.branch("free", "echo f > f");
    for name in ["s-1", "s-2"] {
        repo.run(&["exec", name, "--", "sh", "-c", "echo $FORKPOINT_BRANCH > a"])
            .expect(0);
    }
    repo.run(&["commit", "s-1", "--git-branch", "won"])
        .expect(0);
    let second = repo.run(&["commit", "s-2", "--git-branch", "too"]);
    assert_ne!(second.code(), Some(0), "{second:?}");
    let list = repo.run(&["list", "-a"]).expect(0).stdout;
    assert!(list.contains("rolled back"), "{list}");
    repo.run(&["commit", "free"]).expect(0);
    assert_eq!(repo.lab.read("f").as_deref(), Some("f\n"));
    assert_eq!(
        repo.git(&["branch", "--format=%(refname:short)"]),
        "main\nwon"
    );
}

#[test]
fn a_head_that_does_not_agree_is_a_conflict() {
    let repo = Repo::new(&[("a", "1\n"), ("b", "1\n")]);
    std::fs::write(repo.lab.base().join("a"), "edited\n").unwrap();
    repo.branch("one", "echo more >> a");
    let done = repo.run(&["commit", "one", "--git-branch", "x"]).expect(3);
    assert!(
        done.stderr
            .contains("a: the base has it otherwise than HEAD"),
        "{done:?}"
    );
    assert_eq!(repo.git(&["branch", "--format=%(refname:short)"]), "main");
    // Once it is committed, the branch is too; HEAD as of now is the parent.
    repo.git(&["commit", "-qam", "edited"]);
    repo.run(&["commit", "one", "--git-branch", "x"]).expect(0);
    assert_eq!(repo.git(&["show", "x:a"]), "edited\nmore");
    assert_eq!(
        repo.git(&["rev-parse", "x^"]),
        repo.git(&["rev-parse", "main"])
    );
    // An edit elsewhere is told; an edit of the same path since the fork is a conflict as ever.
    repo.branch("two", "echo two > b");
    std::fs::write(repo.lab.base().join("a"), "dirty\n").unwrap();
    let done = repo.run(&["commit", "two", "--git-branch", "y"]).expect(0);
    assert!(
        done.stderr.contains("may hold uncommitted changes"),
        "{done:?}"
    );
    repo.branch("three", "echo three > b");
    std::fs::write(repo.lab.base().join("b"), "meanwhile\n").unwrap();
    repo.run(&["commit", "three", "--git-branch", "z"])
        .expect(3);
}

#[test]
fn a_subdirectory_and_a_linked_worktree_serve_as_bases() {
    let repo = Repo::new(&[("sub/a", "1\n"), ("top", "t\n"), (".gitignore", "*.o\n")]);
    let sub = repo.lab.base().join("sub");
    repo.run(&["fork", sub.to_str().unwrap(), "--name", "one"])
        .expect(0);
    repo.run(&[
        "exec",
        "one",
        "--",
        "sh",
        "-c",
        "echo 2 > a; echo n > new; echo o > x.o",
    ])
    .expect(0);
    repo.run(&["commit", "one", "--git-branch", "s"]).expect(0);
    let names = repo.git(&["diff-tree", "-r", "--name-status", "main", "s"]);
    assert_eq!(names, "M\tsub/a\nA\tsub/new");
    let tree = repo.lab.path("tree");
    repo.git(&[
        "worktree",
        "add",
        "-q",
        tree.to_str().unwrap(),
        "-b",
        "linked",
    ]);
    repo.run(&["fork", tree.to_str().unwrap(), "--name", "two"])
        .expect(0);
    repo.run(&["exec", "two", "--", "sh", "-c", "echo w > top"])
        .expect(0);
    repo.run(&["commit", "two", "--git-branch", "w"]).expect(0);
    assert_eq!(repo.git(&["show", "w:top"]), "w");
    assert_eq!(
        repo.git(&["rev-parse", "w^"]),
        repo.git(&["rev-parse", "linked"])
    );
    assert_eq!(repo.git_in(&tree, &["status", "--porcelain"]), "");
}

#[test]
fn what_cannot_be_a_git_branch_is_refused_with_a_reason() {
    let repo = Repo::new(&[("a", "1\n")]);
    repo.branch("nested", "mkdir v; git init -q v; echo x > v/x");
    let done = repo
        .run(&["commit", "nested", "--git-branch", "x"])
        .expect(2);
    assert!(done.stderr.contains("repository of its own"), "{done:?}");
    let other = Repo::new(&[("m", "m\n")]);
    let url = other.lab.base();
    let url = url.to_str().unwrap();
    repo.git(&[
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "--quiet",
        "add",
        url,
        "mod",
    ]);
    repo.git(&["commit", "-qm", "module"]);
    repo.branch("module", "echo changed > mod/m");
    let done = repo
        .run(&["commit", "module", "--git-branch", "x"])
        .expect(2);
    assert!(done.stderr.contains("mod is a submodule"), "{done:?}");
    repo.branch("same", "touch a; echo i > .git/extra");
    repo.run(&["commit", "same", "--git-branch", "x"]).expect(1);
    std::fs::write(repo.home.join(".gitconfig"), "").unwrap();
    repo.branch("who", "echo 2 > a");
    let done = repo.run(&["commit", "who", "--git-branch", "x"]).expect(2);
    assert!(
        done.stderr.contains("git does not know who you are"),
        "{done:?}"
    );
    let plain = Lab::new(&[("a", "1\n")]);
    plain.run(&["fork", ".", "--name", "p"]).expect(0);
    let done = plain.run(&["commit", "p", "--git-branch", "x"]).expect(2);
    assert!(done.stderr.contains("FP0430"), "{done:?}");
}

#[test]
fn a_kill_after_the_decision_is_finished_by_the_next_command() {
    let repo = Repo::new(&[("a", "1\n")]);
    repo.branch("one", "echo 2 > a");
    // A git that dies with its caller at the very step between the decision and the reference.
    let bin = repo.lab.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let real = std::env::var("PATH").unwrap();
    let script = "#!/bin/sh\ncase \"$*\" in *update-ref*--stdin*)\n echo 'start: ok'; echo 'prepare: ok'\n \
                  while read line; do [ \"$line\" = commit ] && kill -9 $PPID; done; exit 0;; esac\n\
                  PATH=$REAL exec git \"$@\"\n";
    std::fs::write(bin.join("git"), script).unwrap();
    std::fs::set_permissions(
        bin.join("git"),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut command = repo.lab.command(&["commit", "one", "--git-branch", "x"]);
    command
        .env("HOME", &repo.home)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("REAL", &real);
    command.env("PATH", format!("{}:{real}", bin.display()));
    assert_eq!(
        command.output().unwrap().status.code(),
        None,
        "it was killed"
    );
    let next = repo.run(&["list", "-a"]).expect(0);
    assert!(
        next.stderr.contains("one became the git branch x"),
        "{next:?}"
    );
    assert!(next.stdout.contains("committed as git x"), "{next:?}");
    assert_eq!(repo.git(&["show", "x:a"]), "2");
    assert_eq!(
        repo.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\nrefs/heads/x"
    );
    assert!(!repo.run(&["list"]).expect(0).stderr.contains("recovered"));
}

#[test]
fn what_stands_on_a_branch_that_became_a_git_branch_does_not_bring_it_into_the_base() {
    let repo = Repo::new(&[("a", "1\n")]);
    repo.branch("one", "echo 2 > a");
    repo.run(&["fork", "one", "--name", "below"]).expect(0);
    repo.run(&["exec", "below", "--", "sh", "-c", "echo x > own"])
        .expect(0);
    repo.run(&["commit", "one", "--git-branch", "try/one"])
        .expect(0);
    let done = repo.run(&["commit", "below"]).expect(2);
    assert!(done.stderr.contains("FP0405"), "{done:?}");
    assert_eq!(repo.lab.read("a").as_deref(), Some("1\n"));
    assert_eq!(repo.lab.read("own"), None);
}

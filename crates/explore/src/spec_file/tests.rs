//! Tests of the specification file: places of mistakes, what it comes to, the schema.

use super::*;
use crate::spec::*;
use serde_json::Value;

fn read(text: &str) -> Result<ExploreSpec> {
    parse(text, "s.toml", Path::new("/spec"), false)
}

#[track_caller]
fn refused(text: &str, message: &str) -> String {
    let error = read(text).expect_err(text);
    assert_eq!(error.code, "FP0510");
    assert!(!error.hint.is_empty(), "{text}");
    assert_eq!(error.message, format!("s.toml:{message}"), "{}", error.hint);
    error.hint
}

#[test]
fn a_whole_file_is_what_the_flags_would_say() {
    let spec = read(
        r#"
        base = "../src"
        jobs = 3
        timeout = "10m"
        run = "make"
        secrets = ["TOKEN"]
        hide = ["private", "/etc/x"]
        pass-env = ["LANG"]
        [env]
        B = "2"
        A = 1
        [params]
        opt = ["-O1", "-O2"]
        jobs = [1, 2]
        [[params.list]]
        cc = "gcc"
        flag = "-a"
        [[params.list]]
        cc = "clang"
        flag = "-b"
        [[params.exclude]]
        cc = "clang"
        jobs = 2
        [[attempt]]
        name = "plain"
        [[attempt]]
        name = "one"
        run = ["make", "-B"]
        params = { opt = "-O3" }
        env = { C = true }
        timeout = 5
        limits = { memory = "1G" }
        repeat = 2
        [prepare]
        run = "fetch"
        inputs = ["lock"]
        network = "host"
        [verify]
        run = "test"
        repeat = 2
        exclusive = true
        mounts = [{ source = "hidden", dest = "/hidden" }]
        [score]
        run = "bench"
        direction = "minimize"
        [strategy]
        name = "beam"
        width = 3
        [limits]
        pids = 64
        disk = "1M"
        [budget]
        cpu = "2h"
        cost = 1.5
        [commit]
        prepare = false
        exclude = ["*.log"]
        "#,
    )
    .unwrap();
    assert_eq!(spec.base, "/spec/../src".into());
    assert_eq!(spec.hide, ["/spec/private".into(), "/etc/x".into()]);
    let names: Vec<&str> = spec.env.iter().map(|v| v.name.as_str()).collect();
    assert_eq!(names, ["LANG", "B", "A"]);
    let trials = spec.expand().unwrap();
    // plain: 2 flags × (gcc 2 + clang 1); one: its own flag, twice.
    assert_eq!(trials.len(), 2 * 3 + 3 * 2);
    let first = &trials[0].params;
    assert_eq!(
        (first["opt"].as_str(), first["jobs"].as_str()),
        ("-O1", "1")
    );
    let one = trials
        .iter()
        .find(|t| t.name.as_deref() == Some("one"))
        .unwrap();
    assert_eq!(one.params["opt"], "-O3");
    assert_eq!(one.limits.memory, "1G".parse().ok());
    assert_eq!(
        (one.limits.pids, one.env[0].value.clone()),
        (Some(64), Some("true".into()))
    );
    assert_eq!(one.timeout, "5s".parse().ok());
    let verify = spec.verify.unwrap();
    assert_eq!((verify.repeat, verify.exclusive), (2, true));
    assert_eq!(verify.mounts[0].source, "/spec/hidden".into());
    assert_eq!(spec.prepare.unwrap().network, NetworkSpec::Host);
    assert_eq!(spec.search.width, Some(3));
    assert_eq!(spec.budget.cost, "1.5".parse().ok());
    assert!(spec.exclude_prepared && !spec.no_commit);
}

#[test]
fn short_forms_mean_their_tables() {
    let short =
        "run = \"x\"\nverify = \"t\"\nscore = [\"b\"]\nprepare = \"p\"\nstrategy = \"best-of-n\"\n";
    let long = "[[attempt]]\nrun = \"x\"\n[verify]\nrun = \"t\"\n[score]\nrun = [\"b\"]\n[prepare]\n\
                run = \"p\"\n[strategy]\nname = \"best-of-n\"\n";
    assert_eq!(read(short).unwrap(), read(long).unwrap());
}

#[test]
fn an_unknown_key_is_told_with_its_place_and_what_was_meant() {
    let hint = refused(
        "run = \"x\"\n\n[verify]\nrun = \"t\"\n    verfy = 1\n",
        "5:5: unknown key \"verfy\" in [verify]",
    );
    assert!(hint.contains("keys in [verify] are"), "{hint}");
    let hint = refused(
        "run = \"x\"\n[verify]\nrun = \"t\"\nrepaet = 2\n",
        "4:1: unknown key \"repaet\" in [verify]",
    );
    assert!(hint.contains("did you mean 'repeat'?"), "{hint}");
    let hint = refused(
        "run = \"x\"\nmemory = \"1G\"\n",
        "2:1: unknown key \"memory\" at the top of the file",
    );
    assert!(hint.contains("stands in [limits]"), "{hint}");
    let hint = refused(
        "[[attempt]]\ncommand = \"x\"\n",
        "2:1: unknown key \"command\" in [[attempt]]",
    );
    assert!(hint.contains("'run'"), "{hint}");
}

#[test]
fn wrong_types_and_bounds_are_told_with_their_place() {
    let head = "run = \"x\"\n";
    for (line, message) in [
        (
            "timeout = true",
            "2:11: timeout is true or false, and must be a time, as in \"90s\" or \"1h30m\"",
        ),
        (
            "jobs = \"4\"",
            "2:8: jobs is text, and must be a whole number",
        ),
        ("jobs = 0", "2:8: jobs is 0"),
        ("jobs = -1", "2:8: jobs is -1"),
        ("count = 0", "2:9: count is 0"),
        ("count = 0x1000000000", "2:9: count is 0x1000000000"),
        ("keep = \"loser\"", "2:8: keep \"loser\" is not known"),
        (
            "protect = \"x\"",
            "2:11: protect is text, and must be a list, as in [\"a\", \"b\"]",
        ),
        (
            "protect = [\"../x\"]",
            "2:12: protect \"../x\" is no glob of paths in the base",
        ),
        (
            "protect = [\"a\", \"[\"]",
            "2:17: protect \"[\" is not a glob",
        ),
        ("limits = { pids = -3 }", "2:19: pids is -3"),
        ("attempt = []", "2:11: attempt is an empty list"),
        (
            "secrets = [\"A=B\"]",
            "2:12: secrets \"A=B\" is no variable that can be given",
        ),
        (
            "env = { FORKPOINT_SEED = 1 }",
            "2:9: \"FORKPOINT_SEED\" is no variable that can be given",
        ),
        ("params = { a = [] }", "2:16: the parameter a has no value"),
        (
            "params = { a = [1, 1] }",
            "2:20: the parameter a has the value 1 twice",
        ),
        (
            "params = { 1a = [1] }",
            "2:12: \"1a\" is no name for a parameter",
        ),
        (
            "params = { list = 3 }",
            "2:19: list is a number, and must be a list of tables: [[params.list]]",
        ),
        ("prepare = \" \"", "2:11: prepare is an empty command"),
        ("prepare = []", "2:11: prepare is an empty command"),
        (
            "verify = { repeat = 2 }",
            "2:10: run is missing in [verify]",
        ),
        (
            "verify = { run = \"t\", mounts = [{ source = \"a\", dest = \"b\" }] }",
            "2:56: dest \"b\" is no place inside a branch",
        ),
        (
            "verify = { run = \"t\", mounts = [{ source = \"a\", dest = \"/b/../c\" }] }",
            "2:56: dest \"/b/../c\" is no place inside a branch",
        ),
        (
            "strategy = \"best\"",
            "2:12: strategy \"best\" is not known",
        ),
        (
            "strategy = { name = \"beam\", width = 99 }",
            "2:37: width is 99",
        ),
        ("budget = { cost = 0 }", "2:19: cost: "),
    ] {
        let error = read(&format!("{head}{line}\n")).expect_err(line);
        let told = error
            .message
            .strip_prefix("s.toml:")
            .unwrap_or_default()
            .to_owned();
        assert!(told.starts_with(message), "{line}: {told}");
    }
    refused(
        "[[attempt]]\nname = \"a/../b\"\nrun = \"x\"\n",
        "2:8: name \"a/../b\" is no name for an attempt",
    );
    for limit in [
        "timeout = -5",
        "timeout = \"-5s\"",
        "total-timeout = 0",
        "limits = { memory = -1 }",
    ] {
        let error = read(&format!("{head}{limit}\n")).expect_err(limit);
        assert!(error.message.starts_with("s.toml:2:"), "{limit}: {error}");
    }
}

#[test]
fn contradictions_are_told_where_they_stand() {
    refused("", "1:1: there is nothing to attempt");
    refused(
        "[verify]\nrun = \"t\"\n",
        "1:1: there is nothing to attempt",
    );
    assert!(parse("jobs = 1\n", "s", Path::new("/"), true).is_ok());
    refused(
        "run = \"x\"\n[[attempt]]\nrun = \"y\"\n",
        "1:1: run at the top is used by no attempt",
    );
    refused(
        "[[attempt]]\nname = \"a\"\n",
        "1:1: an attempt has no run in [[attempt]]",
    );
    refused(
        "run = \"x\"\n[[attempt]]\nname = \"a\"\n[[attempt]]\nname = \"a\"\n",
        "5:1: two attempts have the name a",
    );
    refused(
        "run = \"x\"\nexpose = [\"a\"]\nhide = [\"a\"]\n",
        "3:1: /spec/a is both exposed and hidden",
    );
    refused(
        "run = \"x\"\nscore = \"s\"\nstrategy = \"first-wins\"\n",
        "3:1: first-wins commits the first attempt that passes and never scores any",
    );
    refused(
        "run = \"x\"\ncount = 3\nparams = { a = [1, 2] }\n",
        "2:1: 3 attempts cannot be 2 combinations equally often",
    );
    let text = "run = \"x\"\n[params]\na = [1]\n[[params.exclude]]\na = 1\n";
    refused(
        text,
        "4:10: every combination of the parameters is excluded",
    );
    let text = "run = \"x\"\n[params]\na = [1]\n[[params.exclude]]\na = 2\n";
    refused(
        text,
        "4:10: an exclusion names a = '2', which no attempt has",
    );
    let text = "run = \"x\"\n[params]\na = [1]\n[[params.list]]\na = 2\n";
    refused(
        text,
        "4:10: the parameter 'a' has a list of values and is in a list of combinations",
    );
    let text = "run = \"x\"\ncount = 2\n[[attempt]]\nrepeat = 2\n";
    refused(
        text,
        "2:1: the number of attempts is given twice: as a whole and by an attempt's repeat",
    );
    let text = "run = \"x\"\nlimits = { memory = \"2G\" }\nbudget = { memory = \"1G\" }\n";
    refused(
        text,
        "3:1: one attempt may use 2G of memory, more than the 1G of all together",
    );
}

#[test]
fn broken_toml_is_told_with_its_place() {
    assert!(
        read("run = \"x\n")
            .unwrap_err()
            .message
            .starts_with("s.toml:1:")
    );
    assert!(
        read("run = \"x\"\nrun = \"y\"\n")
            .unwrap_err()
            .message
            .starts_with("s.toml:2:1: duplicate key")
    );
    assert!(
        read("ä = 1\nrun = [1,\n")
            .unwrap_err()
            .message
            .starts_with("s.toml:")
    );
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("s.toml");
    std::fs::write(&file, b"run = \"x\"\n# \xff\n").unwrap();
    assert!(
        load(&file, false)
            .unwrap_err()
            .message
            .contains("s.toml:2:3: this byte is not UTF-8")
    );
    for missing in [dir.path().to_owned(), dir.path().join("none.toml")] {
        assert_eq!(load(&missing, false).unwrap_err().code, "FP0510");
    }
    let many = "a = 1\nb = 2\nrun = \"x\"\n";
    assert!(
        read(many)
            .unwrap_err()
            .hint
            .contains("more mistakes in line 2")
    );
}

/// A value that a schema takes, as TOML in one line.
fn example(root: &Value, schema: &Value) -> String {
    if let Some(path) = schema["$ref"].as_str() {
        let target = path.strip_prefix("#/").unwrap().split('/');
        return example(root, target.fold(root, |v, part| &v[part]));
    }
    if let Some(any) = schema["anyOf"].as_array() {
        return example(root, any.last().unwrap());
    }
    if let Some(names) = schema["enum"].as_array() {
        return names[0].to_string();
    }
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str().unwrap(),
        kind => kind.as_str().unwrap(),
    };
    match kind {
        "object" => table(root, schema),
        "array" => format!("[{}]", example(root, &schema["items"])),
        "boolean" => "true".into(),
        "integer" | "number" => schema["minimum"].as_u64().unwrap_or(2).to_string(),
        _ if schema["examples"].is_array() => schema["examples"][0].to_string(),
        _ if schema["pattern"] == "^/" => "\"/x\"".into(),
        _ => "\"x\"".into(),
    }
}

/// A table with every key of its schema.
fn table(root: &Value, schema: &Value) -> String {
    let known = schema["properties"].as_object().into_iter().flatten();
    let mut all: Vec<String> = known
        .map(|(name, schema)| format!("{name} = {}", example(root, schema)))
        .collect();
    let patterns = schema["patternProperties"]
        .as_object()
        .into_iter()
        .flatten();
    all.extend(patterns.map(|(_, schema)| format!("p = {}", example(root, schema))));
    if schema["additionalProperties"].is_object() {
        all.push("V = \"x\"".into());
    }
    format!("{{ {} }}", all.join(", "))
}

#[test]
fn every_key_of_the_schema_is_accepted_and_every_accepted_key_is_in_the_schema() {
    let schema = schema();
    let mut tables = vec![(&shape::ROOT, &schema)];
    tables.extend(
        shape::ALL[1..]
            .iter()
            .map(|s| (*s, &schema["$defs"][s.name])),
    );
    for (shape, schema_of) in tables {
        let properties = schema_of["properties"].as_object().unwrap();
        let mut in_schema: Vec<&str> = properties.keys().map(String::as_str).collect();
        let mut accepted: Vec<&str> = shape.keys.iter().map(|k| k.name).collect();
        in_schema.sort_unstable();
        accepted.sort_unstable();
        assert_eq!(in_schema, accepted, "{}", shape.name);
        assert_eq!(schema_of["additionalProperties"], false);
    }
    // Each key at the top with an example that has every key below it: no mistake but a contradiction.
    for (name, of) in schema["properties"].as_object().unwrap() {
        let text = format!("{name} = {}\n", example(&schema, of));
        let table = DeTable::parse(&text).unwrap_or_else(|e| panic!("{text}{e}"));
        let mut checker = read::Checker::new(shape::ALL);
        checker.table(&shape::ROOT, table.get_ref(), 0..0);
        assert!(checker.mistakes.is_empty(), "{text}{:?}", checker.mistakes);
    }
}

#[test]
fn the_schema_in_docs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/spec.schema.json");
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("FORKPOINT_UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "FORKPOINT_UPDATE=1 cargo test -p forkpoint-explore spec_file"
    );
}

#[test]
fn docs_spec_names_every_key() {
    let page = include_str!("../../../../docs/spec.md");
    for shape in shape::ALL {
        for key in shape.keys {
            assert!(
                page.contains(&format!("`{}`", key.name)),
                "{} of [{}]",
                key.name,
                shape.name
            );
        }
    }
}

#[test]
fn every_example_is_read() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/specs");
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|e| e == "toml") {
            let spec = load(&path, false).unwrap_or_else(|e| panic!("{e}"));
            assert!(!spec.expand().unwrap().is_empty());
            seen += 1;
        }
    }
    assert!(seen >= 8, "{seen} examples");
}

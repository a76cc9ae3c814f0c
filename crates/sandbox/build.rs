//! Builds `forkpoint-init`, a static executable, by a cargo of its own, to be carried inside the
//! library. Its target directory is this crate's, so no lock of the outer cargo is waited for.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The crates that init is made of.
const SOURCES: &[&str] = &["init", "fs", "sys", "model"];

fn main() {
    let manifest = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    let out = PathBuf::from(var("OUT_DIR"));
    let crates = manifest
        .parent()
        .expect("this crate lies beside the others");
    for name in SOURCES {
        for part in ["src", "Cargo.toml"] {
            println!(
                "cargo::rerun-if-changed={}",
                crates.join(name).join(part).display()
            );
        }
    }
    println!("cargo::rerun-if-changed=build.rs");
    let built = build(&crates.join("init/Cargo.toml"), &out.join("init"));
    let image = fs::read(&built).expect("read the built init");
    println!("cargo::rustc-env=FORKPOINT_INIT_HASH={:016x}", hash(&image));
    fs::write(out.join("forkpoint-init"), image).expect("keep the built init");
}

/// Tells one build of init from another (FNV-1a).
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|e| panic!("{name}: {e}"))
}

fn build(manifest: &Path, target_dir: &Path) -> PathBuf {
    let target = var("TARGET");
    let mut cargo = Command::new(var("CARGO"));
    // What the outer cargo, or clippy through it, set for its own compilations.
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        let inherited = [
            "CARGO_CFG_",
            "CARGO_FEATURE_",
            "CARGO_PKG_",
            "CARGO_MANIFEST_",
            "CLIPPY_",
            "DEP_",
        ];
        if inherited.iter().any(|prefix| text.starts_with(prefix)) {
            cargo.env_remove(&name);
        }
    }
    for name in [
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_TARGET_DIR",
        "CARGO_BUILD_TARGET_DIR",
        "OPT_LEVEL",
        "DEBUG",
        "PROFILE",
    ] {
        cargo.env_remove(name);
    }
    let status = cargo
        .env("RUSTFLAGS", "-C target-feature=+crt-static")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "0")
        .env("CARGO_PROFILE_RELEASE_LTO", "thin")
        .args(["build", "--quiet", "--release", "--bin", "forkpoint-init"])
        .args(["--target", &target])
        .arg("--manifest-path")
        .arg(manifest)
        .arg("--target-dir")
        .arg(target_dir)
        .status()
        .expect("start cargo");
    assert!(status.success(), "forkpoint-init does not build");
    target_dir.join(target).join("release/forkpoint-init")
}

#!/bin/sh
# The preparation, and the only step that may use the network: brings every version that will be tried into cargo's cache.
set -e
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/src"
: > "$work/src/lib.rs"
for version in "$@"; do
    sed "s/^heck = .*/heck = \"=$version\"/" "$here/Cargo.toml" > "$work/Cargo.toml"
    case $version in
        0.4.*) printf '[features]\nall = ["heck/unicode"]\n' >> "$work/Cargo.toml" ;;
    esac
    rm -f "$work/Cargo.lock"
    cargo fetch --quiet --manifest-path "$work/Cargo.toml"
done
cargo fetch --quiet

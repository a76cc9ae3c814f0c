#!/bin/sh
# One attempt: asks for the version it was given, follows the renaming that version 0.4 made, and builds.
set -e
version=$FORKPOINT_PARAM_VERSION
case $FORKPOINT_PARAM_FEATURES in
    none) wanted="\"=$version\"" ;;
    *) wanted="{ version = \"=$version\", features = [\"$FORKPOINT_PARAM_FEATURES\"] }" ;;
esac
sed -i "s/^heck = .*/heck = $wanted/" Cargo.toml
case $version in
    0.3.*) ;;
    *) sed -i -e 's/heck::{CamelCase, SnakeCase}/heck::{ToSnakeCase, ToUpperCamelCase}/' \
        -e 's/to_camel_case/to_upper_camel_case/' src/lib.rs ;;
esac
cargo build --quiet --offline

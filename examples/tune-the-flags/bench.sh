#!/bin/sh
# Prints how many milliseconds the statistics of a million readings take, twenty times over.
cd "$(dirname "$0")" || exit 1
begun=$(date +%s%N)
build/stats 20 < build/readings > /dev/null || exit 1
ended=$(date +%s%N)
echo $(((ended - begun) / 1000000))

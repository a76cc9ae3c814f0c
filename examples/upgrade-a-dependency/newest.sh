#!/bin/sh
# The score: the version that is locked, as a number that grows with it (0.4.1 is 401).
awk '/^name = "heck"/ { getline; gsub(/[^0-9.]/, ""); split($0, v, "."); print (v[1] * 100 + v[2]) * 100 + v[3] }' Cargo.lock

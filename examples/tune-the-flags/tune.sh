#!/bin/sh
# One attempt: writes the flags it was given into the Makefile, and builds with them.
set -e
flags=$FORKPOINT_PARAM_LEVEL
if [ "$FORKPOINT_PARAM_MATH" != exact ]; then
    flags="$flags $FORKPOINT_PARAM_MATH"
fi
sed "s/^CFLAGS = .*/CFLAGS = $flags/" Makefile > Makefile.new
mv Makefile.new Makefile
make -s build/stats

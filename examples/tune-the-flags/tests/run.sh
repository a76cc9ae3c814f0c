#!/bin/sh
# The gate: answers that are known to the last digit, and a refusal of what is no number. Prints every case.
cd "$(dirname "$0")/.." || exit 1
failed=0

check() { # name, what came, what is right
    if [ "$2" = "$3" ]; then
        echo "ok   $1"
    else
        echo "FAIL $1: came: $2; right: $3"
        failed=1
    fi
}

check small "$(printf '1\n2\n3\n4\n' | build/stats | tr '\n' ' ')" \
    'n 4 mean 2.500000000 deviation 1.290994449 median 2.000000000 '
check far "$(awk -f tests/readings.awk 100000 | build/stats | tr '\n' ' ')" \
    'n 100000 mean 100000000.500175834 deviation 0.288177939 median 100000000.499217004 '
check words "$(printf 'one\n' | build/stats 2>&1)" 'stats: line 1 is not a number'

exit $failed

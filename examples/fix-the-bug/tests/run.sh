# Builds tally and compares its output with what is expected, case by case. Exit status 0 when all agree.
set -u
cd "$(dirname "$0")/.." || exit 2
make -s || exit 2

passed=0
failed=0
out=$(mktemp) || exit 2
trap 'rm -f "$out"' EXIT
for input in tests/cases/*.in; do
    name=$(basename "$input" .in)
    if build/tally 100 < "$input" > "$out" && cmp -s "$out" "tests/cases/$name.out"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED $name"
        diff "tests/cases/$name.out" "$out"
    fi
done
echo "$passed cases passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]

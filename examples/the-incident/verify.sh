# The gate: no plan may spend more than was there before anybody planned.
set -eu
test "$(forkpoint kv get plan/budget)" -le 100

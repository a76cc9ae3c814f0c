# Passes if every city is visited once.
test "$(sort tour)" = "$(cut -d' ' -f1 cities | sort)"

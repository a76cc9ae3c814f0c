# From the city it is told, always to the nearest that was not visited yet.
awk -v at="$FORKPOINT_PARAM_START" '
    { x[$1] = $2; y[$1] = $3; n++ }
    END {
        while (n-- > 0) {
            print at; seen[at] = 1; best = -1
            for (c in x) if (!(c in seen)) {
                d = (x[c] - x[at]) ^ 2 + (y[c] - y[at]) ^ 2
                if (best < 0 || d < best) { best = d; next_city = c }
            }
            at = next_city
        }
    }' cities > .tour.new && mv .tour.new tour

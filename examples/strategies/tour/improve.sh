# Turns N random parts of the trip around, and keeps what makes it shorter.
awk -v seed="$FORKPOINT_SEED$(date +%N)" -v moves="$1" '
    function d(a, b) { return sqrt((x[a] - x[b]) ^ 2 + (y[a] - y[b]) ^ 2) }
    NR == FNR { x[$1] = $2; y[$1] = $3; next }
    { t[n++] = $1 }
    END {
        srand(seed % 2147483647)
        for (m = 0; m < moves; m++) {
            i = int(rand() * n); j = int(rand() * n)
            if (i >= j) continue
            before = t[(i + n - 1) % n]; after = t[(j + 1) % n]
            if (before == t[j] || after == t[i]) continue
            if (d(before, t[j]) + d(t[i], after) >= d(before, t[i]) + d(t[j], after)) continue
            while (i < j) { swap = t[i]; t[i++] = t[j]; t[j--] = swap }
        }
        for (i = 0; i < n; i++) print t[i]
    }' cities tour > .tour.new && mv .tour.new tour

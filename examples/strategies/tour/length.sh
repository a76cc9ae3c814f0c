# The length of the round trip, in degrees.
awk 'NR == FNR { x[$1] = $2; y[$1] = $3; next }
     { t[n++] = $1 }
     END { for (i = 0; i < n; i++) { a = t[i]; b = t[(i + 1) % n]
             sum += sqrt((x[a] - x[b]) ^ 2 + (y[a] - y[b]) ^ 2) }
           printf "%.4f\n", sum }' cities "${1:-tour}"

# Says which of two trips is the shorter one.
left=$(sh length.sh "$FORKPOINT_LEFT/tour") right=$(sh length.sh "$FORKPOINT_RIGHT/tour")
echo "$left $right" | awk '{ print ($1 < $2) ? "left" : ($1 > $2) ? "right" : "tie" }'

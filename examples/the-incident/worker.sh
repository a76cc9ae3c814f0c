# One speculative worker: plans a trip from what the shared scratch store says, and tells the others.
# It knows nothing of Forkpoint but two commands: kv and bus.
set -eu
case $1 in
A)
    forkpoint kv put plan/hotel "inn, 80"
    forkpoint bus publish booked hotel
    ;;
B)
    # It goes wrong here: it plans with money that is not there, and says that it is booked.
    forkpoint kv put plan/hotel "palace, 900"
    forkpoint kv put plan/budget 1000
    forkpoint bus publish booked palace
    ;;
C)
    # It has begun, and takes its time: until somebody lets it go on, or the wait is over.
    touch /tmp/begun
    n=0
    while test ! -e /tmp/go && test $n -lt 600; do n=$((n + 1)); sleep 0.1; done
    budget=$(forkpoint kv get plan/budget)
    hotel=$(forkpoint kv get plan/hotel || echo none)
    {
        echo "budget $budget"
        echo "hotel $hotel"
        echo "keys $(forkpoint kv list plan/ | wc -l)"
        echo "events $(forkpoint bus read booked | wc -l)"
        echo "trains for $((budget / 10))"
    } > trip.txt
    forkpoint kv put plan/trains "$((budget / 10))"
    ;;
esac

#!/bin/sh
# The gate: as many orders as the export's last line says, the same total to the cent, and no customer that nobody knows.
cd "$(dirname "$0")/.." || exit 1
total=$(tail -n 1 export.csv | tr -d '\r')
want_rows=$(echo "$total" | cut -d ';' -f 2)
want_cents=$(echo "$total" | cut -d ';' -f 4 | tr -d ',.')

ask() { sqlite3 -batch orders.db "$1" || echo 'no answer'; }

failed=0
same() { # what, came, wanted
    if [ "$2" = "$3" ]; then
        echo "ok   $1: $2"
    else
        echo "FAIL $1: came $2, wanted $3"
        failed=1
    fi
}
same orders "$(ask 'SELECT count(*) FROM orders')" "$want_rows"
same cents "$(ask 'SELECT sum(cents) FROM orders')" "$want_cents"
same integrity "$(ask 'PRAGMA integrity_check')" ok
# A line break within a name counts as a space.
strangers=$(ask "SELECT DISTINCT replace(customer, char(10), ' ') FROM orders" | grep -avxFf tests/customers | head -n 3)
same strangers "$strangers" ''
exit $failed

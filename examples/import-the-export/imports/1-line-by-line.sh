# Every line is a row and every semicolon ends a field. It was true of the last export.
set -e
iconv -f ISO-8859-1 -t UTF-8 export.csv | tr -d '\r' | awk -F ';' -v q="'" '
    BEGIN { print ".read schema.sql"; print "BEGIN;" }
    NR > 1 && $1 !~ /^#/ {
        gsub(q, q q, $2)
        gsub(/[.,]/, "", $4)
        printf "INSERT OR IGNORE INTO orders VALUES (%d, %s, %s, %d);\n", $1, q $2 q, q $3 q, $4
    }
    END { print "COMMIT;" }' | sqlite3 orders.db

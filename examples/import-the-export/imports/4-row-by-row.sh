# Right as well, and slow: a transaction of its own for each row, in a process of its own.
set -e
iconv -f ISO-8859-1 -t UTF-8 export.csv > export.utf8
sh imports/load.sh export.utf8 all.db
sqlite3 orders.db '.read schema.sql'
sqlite3 all.db 'SELECT id FROM orders' | while read -r id; do
    sqlite3 orders.db "ATTACH 'all.db' AS a; INSERT INTO orders SELECT * FROM a.orders WHERE id = $id"
    sleep 0.1 # the limit on requests that the shop's own interface has
done
rm all.db export.utf8

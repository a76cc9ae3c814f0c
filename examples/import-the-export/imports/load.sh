# Loads a file in UTF-8 with quoted fields: load.sh FILE [DATABASE].
sqlite3 -bail "${2:-orders.db}" <<SQL
.read schema.sql
CREATE TEMP TABLE raw (id, customer, date, amount);
.mode csv
.separator ";" "\r\n"
.import --schema temp --skip 1 $1 raw
INSERT INTO orders
    SELECT id, customer, date, replace(replace(amount, '.', ''), ',', '') FROM raw WHERE id NOT LIKE '#%';
SQL

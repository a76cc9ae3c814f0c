# What one types first: the file as it is, and the decimal comma read by the database.
sqlite3 -bail orders.db <<'SQL'
.read schema.sql
CREATE TEMP TABLE raw (id, customer, date, amount);
.mode csv
.separator ;
.import --schema temp --skip 1 export.csv raw
INSERT INTO orders SELECT id, customer, date, round(amount * 100) FROM raw WHERE id NOT LIKE '#%';
SQL

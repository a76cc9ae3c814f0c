-- What the rest of the shop reads: one row for each order, the amount in cents.
CREATE TABLE orders (
    id       INTEGER PRIMARY KEY,
    customer TEXT NOT NULL,
    date     TEXT NOT NULL CHECK (date GLOB '????-??-??'),
    cents    INTEGER NOT NULL
);

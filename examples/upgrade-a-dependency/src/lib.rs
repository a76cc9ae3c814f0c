//! Names for the columns of a table: what a person typed as a heading becomes an identifier.
#![forbid(unsafe_code)]

use heck::{CamelCase, SnakeCase};

/// The column of a heading: `Net price (EUR)` becomes `net_price_eur`.
pub fn column(heading: &str) -> String {
    heading.to_snake_case()
}

/// The type that holds a table's rows: `order lines` becomes `OrderLines`.
pub fn type_name(table: &str) -> String {
    table.to_camel_case()
}

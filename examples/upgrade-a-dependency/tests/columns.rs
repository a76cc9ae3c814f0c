use columns::{column, type_name};

#[test]
fn words_and_humps_are_told_apart() {
    assert_eq!(column("Net price (EUR)"), "net_price_eur");
    assert_eq!(column("deliveryDate"), "delivery_date");
    assert_eq!(type_name("order lines"), "OrderLines");
}

#[test]
fn letters_of_any_language_are_letters() {
    assert_eq!(column("Größe"), "größe");
}

/// Headings pasted from some systems hold an accent as a character of its own. The columns that exist were named so.
#[test]
fn an_accent_of_its_own_does_not_end_a_word() {
    assert_eq!(column("Cafe\u{301} total"), "cafe\u{301}_total");
}

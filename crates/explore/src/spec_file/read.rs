//! Checks a parsed file against the shapes: unknown keys, wrong types, values out of bounds, each with
//! the place where it stands. Nothing is turned into anything yet.

use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::meant::{distance, meant};
use super::shape::{Key, Kind, Shape};
use crate::cost::Cost;
use crate::params;
use crate::spec::valid_label;
use crate::units::{Size, Time};

/// A value and where it stands.
pub(crate) type Value<'a> = Spanned<DeValue<'a>>;

/// Something wrong with the file.
#[derive(Debug)]
pub(crate) struct Mistake {
    /// Where it begins, in bytes.
    pub(crate) at: usize,
    pub(crate) what: String,
    pub(crate) hint: String,
}

/// The most mistakes that are looked for.
const MOST: usize = 20;

pub(crate) struct Checker {
    /// Every table of the file's kind, for hints.
    all: &'static [&'static Shape],
    pub(crate) mistakes: Vec<Mistake>,
}

/// A number, a truth or a text as the text that a parameter or a variable takes.
pub(crate) fn scalar(value: &DeValue<'_>) -> Option<String> {
    match value {
        DeValue::String(text) => Some(text.to_string()),
        DeValue::Integer(number) if number.radix() == 10 => Some(number.as_str().to_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .map(|n| n.to_string()),
        DeValue::Float(number) => Some(number.as_str().to_owned()),
        DeValue::Boolean(truth) => Some(truth.to_string()),
        _ => None,
    }
}

impl Checker {
    pub(crate) fn new(all: &'static [&'static Shape]) -> Self {
        Self {
            all,
            mistakes: Vec::new(),
        }
    }

    pub(crate) fn wrong(
        &mut self,
        at: Range<usize>,
        what: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if self.mistakes.len() < MOST {
            self.mistakes.push(Mistake {
                at: at.start,
                what: what.into(),
                hint: hint.into(),
            });
        }
    }

    pub(crate) fn table(&mut self, shape: &Shape, table: &DeTable<'_>, at: Range<usize>) {
        for (name, value) in table.iter() {
            match shape.key(name.get_ref()) {
                Some(key) => self.value(&key.kind, key.name, value),
                None => {
                    let name_text = name.get_ref();
                    let what = format!("unknown key \"{name_text}\" {}", shape.place());
                    let hint = meant(self.all, shape, name_text).unwrap_or_else(|| known(shape));
                    self.wrong(name.span(), what, hint);
                }
            }
        }
        let missing = |k: &&Key| k.required && !table.contains_key(k.name);
        for key in shape.keys.iter().filter(missing) {
            let what = format!("{} is missing {}", key.name, shape.place());
            self.wrong(at.clone(), what, format!("{} {}", key.name, says(key.help)));
        }
    }

    /// Says that `value` is of the wrong type.
    fn wrong_type(&mut self, name: &str, value: &Value<'_>, wanted: &str) {
        let found = match value.get_ref() {
            DeValue::String(_) => "text",
            DeValue::Integer(_) | DeValue::Float(_) => "a number",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        let what = format!("{name} is {found}, and must be {wanted}");
        self.wrong(value.span(), what, format!("write {wanted}"));
    }

    fn text<'v>(&mut self, name: &str, value: &'v Value<'_>, wanted: &str) -> Option<&'v str> {
        let text = value.get_ref().as_str();
        match text {
            None => self.wrong_type(name, value, wanted),
            Some(text) if text.contains('\0') => {
                self.wrong(
                    value.span(),
                    format!("{name} holds a zero byte"),
                    "take it out",
                );
                return None;
            }
            Some(_) => {}
        }
        text
    }

    fn value(&mut self, kind: &Kind, name: &str, value: &Value<'_>) {
        match kind {
            Kind::Path => {
                if self.text(name, value, "a text").is_some_and(str::is_empty) {
                    self.wrong(
                        value.span(),
                        format!("{name} is empty"),
                        "leave it out, or say which",
                    );
                }
            }
            Kind::Inside | Kind::Glob | Kind::Label | Kind::Variable => {
                self.special(kind, name, value)
            }
            Kind::Bool => {
                if value.get_ref().as_bool().is_none() {
                    self.wrong_type(name, value, "true or false");
                }
            }
            Kind::Count(low, high) => self.count(name, value, *low, *high),
            Kind::Time => self.parsed::<Time>(name, value, "a time, as in \"90s\" or \"1h30m\""),
            Kind::Size => self.parsed::<Size>(name, value, "a size, as in \"512M\" or \"2G\""),
            Kind::Cost => self.parsed::<Cost>(name, value, "an amount, as in 2.5"),
            Kind::Choice(names) => self.choice(name, value, names),
            Kind::Command => self.command(name, value),
            Kind::List(kind) => match value.get_ref().as_array() {
                Some(list) => list.iter().for_each(|item| self.value(kind, name, item)),
                None => self.wrong_type(name, value, "a list, as in [\"a\", \"b\"]"),
            },
            Kind::Table(shape) => match value.get_ref().as_table() {
                Some(table) => self.table(shape, table, value.span()),
                None => self.wrong_type(name, value, "a table"),
            },
            Kind::Tables(shape) => self.tables(shape, name, value),
            Kind::Section(shape) => match value.get_ref() {
                DeValue::Table(table) => self.table(shape, table, value.span()),
                _ => self.command(name, value),
            },
            Kind::Strategy(names, shape) => match value.get_ref() {
                DeValue::Table(table) => self.table(shape, table, value.span()),
                _ => self.choice(name, value, names),
            },
            Kind::Variables => self.variables(name, value),
            Kind::Params | Kind::ParamsAndLists | Kind::Values => self.params(kind, name, value),
        }
    }

    fn tables(&mut self, shape: &Shape, name: &str, value: &Value<'_>) {
        let Some(list) = value.get_ref().as_array() else {
            return self.wrong_type(
                name,
                value,
                &format!("a list of tables: [[{}]]", shape.name),
            );
        };
        if list.is_empty() {
            self.wrong(
                value.span(),
                format!("{name} is an empty list"),
                "leave it out, or give one",
            );
        }
        for item in list.iter() {
            match item.get_ref().as_table() {
                Some(table) => self.table(shape, table, item.span()),
                None => self.wrong_type(name, item, "a table"),
            }
        }
    }

    fn special(&mut self, kind: &Kind, name: &str, value: &Value<'_>) {
        let Some(text) = self.text(name, value, "a text") else {
            return;
        };
        let dots = std::path::Path::new(text)
            .components()
            .any(|c| c == std::path::Component::ParentDir);
        let (bad, what, hint) = match kind {
            Kind::Label => (
                !valid_label(text),
                "is no name for an attempt",
                "use letters, digits, '.', '_' and '-', at most 64; no '..'",
            ),
            Kind::Variable => (
                text.is_empty() || text.contains('=') || text.starts_with("FORKPOINT_"),
                "is no variable that can be given",
                "write its name alone; names that begin with FORKPOINT_ are set by Forkpoint",
            ),
            Kind::Inside => (
                !text.starts_with('/') || dots,
                "is no place inside a branch",
                "write an absolute path without '..'",
            ),
            _ => (
                text.is_empty() || text.starts_with('/') || dots,
                "is no glob of paths in the base",
                "write it relative to the base, without '..'; '**' stands for any directories",
            ),
        };
        if bad {
            self.wrong(value.span(), format!("{name} \"{text}\" {what}"), hint);
        } else if let (Kind::Glob, Some(why)) = (kind, crate::globs::input_fault(text)) {
            self.wrong(
                value.span(),
                format!("{name} \"{text}\" is not a glob: {why}"),
                crate::globs::HINT,
            );
        }
    }

    fn count(&mut self, name: &str, value: &Value<'_>, low: u32, high: u32) {
        let DeValue::Integer(number) = value.get_ref() else {
            return self.wrong_type(name, value, "a whole number");
        };
        let number_is = i128::from_str_radix(number.as_str(), number.radix());
        if !number_is.is_ok_and(|n| (i128::from(low)..=i128::from(high)).contains(&n)) {
            let what = format!("{name} is {number}");
            let hint = match high {
                u32::MAX => format!("give a number of at least {low}"),
                _ => format!("give a number from {low} to {high}"),
            };
            self.wrong(value.span(), what, hint);
        }
    }

    fn parsed<T: FromStr<Err = String>>(&mut self, name: &str, value: &Value<'_>, wanted: &str) {
        let text = match value.get_ref() {
            DeValue::Boolean(_) => None,
            other => scalar(other),
        };
        let Some(text) = text else {
            return self.wrong_type(name, value, wanted);
        };
        if let Err(why) = text.parse::<T>() {
            self.wrong(
                value.span(),
                format!("{name}: {why}"),
                format!("write {wanted}"),
            );
        }
    }

    fn choice(&mut self, name: &str, value: &Value<'_>, names: &[&str]) {
        let list = names.join(", ");
        let Some(text) = self.text(name, value, &format!("one of {list}")) else {
            return;
        };
        if !names.contains(&text) {
            let near = names.iter().map(|n| (distance(text, n), n)).min();
            let hint = match near {
                Some((d, n)) if d <= 2 => format!("did you mean \"{n}\"? It is one of {list}"),
                _ => format!("it is one of {list}"),
            };
            self.wrong(
                value.span(),
                format!("{name} \"{text}\" is not known"),
                hint,
            );
        }
    }

    fn command(&mut self, name: &str, value: &Value<'_>) {
        let wanted = "a command: a line for the shell, or a list of a program and its arguments";
        let empty = match value.get_ref() {
            DeValue::String(line) => line.trim().is_empty(),
            DeValue::Array(words) => {
                words.iter().for_each(|w| {
                    self.text(name, w, "a list of texts");
                });
                words
                    .iter()
                    .next()
                    .is_none_or(|w| w.get_ref().as_str() == Some(""))
            }
            _ => return self.wrong_type(name, value, wanted),
        };
        if empty {
            self.wrong(
                value.span(),
                format!("{name} is an empty command"),
                format!("write {wanted}"),
            );
        } else if value.get_ref().is_str() {
            self.text(name, value, wanted);
        }
    }

    fn variables(&mut self, name: &str, value: &Value<'_>) {
        let Some(table) = value.get_ref().as_table() else {
            return self.wrong_type(name, value, "a table of variables");
        };
        for (variable, value) in table.iter() {
            let text = variable.get_ref();
            if text.is_empty() || text.contains(['=', '\0']) || text.starts_with("FORKPOINT_") {
                let what = format!("\"{text}\" is no variable that can be given");
                self.wrong(
                    variable.span(),
                    what,
                    "names that begin with FORKPOINT_ are set by Forkpoint",
                );
            }
            self.scalar(text, value);
        }
    }

    fn scalar(&mut self, name: &str, value: &Value<'_>) {
        match scalar(value.get_ref()) {
            None => self.wrong_type(name, value, "a text or a number"),
            Some(text) if text.contains('\0') => {
                self.wrong(
                    value.span(),
                    format!("{name} holds a zero byte"),
                    "take it out",
                );
            }
            Some(_) => {}
        }
    }

    fn params(&mut self, kind: &Kind, name: &str, value: &Value<'_>) {
        let Some(table) = value.get_ref().as_table() else {
            return self.wrong_type(name, value, "a table of parameters");
        };
        for (param, value) in table.iter() {
            let text = param.get_ref().as_ref();
            if matches!(kind, Kind::ParamsAndLists) && matches!(text, "list" | "exclude") {
                self.param_tables(text, value);
                continue;
            }
            if !params::valid_name(text) {
                let what = format!("\"{text}\" is no name for a parameter");
                self.wrong(
                    param.span(),
                    what,
                    "use letters, digits, '_' and '-', a letter first",
                );
            }
            match (kind, value.get_ref()) {
                (Kind::Params | Kind::ParamsAndLists, DeValue::Array(list)) => {
                    self.param_list(text, list, value.span());
                }
                _ => self.scalar(text, value),
            }
        }
    }

    fn param_list(&mut self, name: &str, list: &DeArray<'_>, at: Range<usize>) {
        if list.is_empty() {
            self.wrong(
                at,
                format!("the parameter {name} has no value"),
                "give it one, or leave it out",
            );
        }
        let mut seen = Vec::new();
        for item in list.iter() {
            self.scalar(name, item);
            let text = scalar(item.get_ref());
            if text.is_some() && seen.contains(&text) {
                let what = format!(
                    "the parameter {name} has the value {} twice",
                    text.unwrap_or_default()
                );
                self.wrong(
                    item.span(),
                    what,
                    "take one of them out; repeat and count make attempts again",
                );
            } else {
                seen.push(text);
            }
        }
    }

    fn param_tables(&mut self, name: &str, value: &Value<'_>) {
        let Some(list) = value.get_ref().as_array() else {
            return self.wrong_type(name, value, &format!("a list of tables: [[params.{name}]]"));
        };
        if list.is_empty() {
            self.wrong(
                value.span(),
                format!("params.{name} is empty"),
                "leave it out, or give one",
            );
        }
        for item in list.iter() {
            self.params(&Kind::Values, &format!("params.{name}"), item);
            if item.get_ref().as_table().is_some_and(|t| t.is_empty()) {
                self.wrong(
                    item.span(),
                    format!("a table of params.{name} is empty"),
                    "name a parameter",
                );
            }
        }
    }
}

fn known(shape: &Shape) -> String {
    let names: Vec<&str> = shape.keys.iter().map(|k| k.name).collect();
    format!("keys {} are {}", shape.place(), names.join(", "))
}

/// A key's help as the end of a sentence.
fn says(help: &str) -> String {
    let mut chars = help.trim_end_matches('.').chars();
    match chars.next() {
        Some(first) => format!("says {}{}", first.to_lowercase(), chars.as_str()),
        None => String::new(),
    }
}

//! Parameters: `--param k=a,b,c`, and the product of several. A value that holds a comma, a space at
//! its ends or a quote is quoted as in CSV: `k="a,b",c` has two values, and `""` inside quotes is one
//! quote.

use forkpoint_model::Result;
use serde::{Deserialize, Serialize};

use crate::codes;

/// A name and the values it takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Letters, digits, `_` and `-`, not beginning with a digit.
    pub name: String,
    /// At least one.
    pub values: Vec<String>,
}

/// What an attempt gives a parameter: one value, or several to be made with each.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Values {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Values {
    /// As a list.
    pub fn list(&self) -> Vec<String> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::Many(values) => values.clone(),
        }
    }
}

/// The most values one parameter may have, and the most attempts a product may make.
pub const MAX_ATTEMPTS: usize = 10_000;

/// Whether `name` can be a parameter's name, and so the end of an environment variable's.
pub fn valid_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|b| b.is_ascii_alphabetic() || b == b'_')
        && name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// The environment variable that carries parameter `name`: upper case, `-` as `_`.
pub fn variable(name: &str) -> String {
    format!(
        "FORKPOINT_PARAM_{}",
        name.to_ascii_uppercase().replace('-', "_")
    )
}

/// Reads `name=value,value…`.
///
/// # Errors
/// `FP0501` for a bad name, no value, or a quote that is not closed.
pub fn parse(text: &str) -> Result<Param> {
    let bad = |why: &str| {
        codes::SPEC
            .error(format!("the parameter '{text}' {why}"))
            .hint("write --param name=value,value; quote a value that holds a comma: 'name=\"a,b\",c'")
    };
    let (name, list) = text.split_once('=').ok_or_else(|| bad("has no '='"))?;
    if !valid_name(name) {
        return Err(bad(
            "needs a name of letters, digits, '_' and '-' before its '='",
        ));
    }
    let values = split_list(list).map_err(bad)?;
    if values.len() > MAX_ATTEMPTS {
        return Err(bad("has more than 10000 values"));
    }
    for (i, value) in values.iter().enumerate() {
        if values[..i].contains(value) {
            return Err(bad(&format!("has the value '{value}' twice")));
        }
    }
    Ok(Param {
        name: name.to_owned(),
        values,
    })
}

/// Splits at commas that are not quoted.
fn split_list(list: &str) -> std::result::Result<Vec<String>, &'static str> {
    let mut values = Vec::new();
    let mut rest = list;
    loop {
        if let Some(quoted) = rest.strip_prefix('"') {
            let (value, after) = unquote(quoted)?;
            values.push(value);
            if after.is_empty() {
                return Ok(values);
            }
            rest = after
                .strip_prefix(',')
                .ok_or("has text after a closing quote")?;
            continue;
        }
        let (value, after) = match rest.split_once(',') {
            Some((value, after)) => (value, Some(after)),
            None => (rest, None),
        };
        if value.is_empty() {
            return Err("has an empty value; write \"\" for one that is meant to be empty");
        }
        if value.contains('"') {
            return Err("has a quote inside a value that does not begin with one");
        }
        values.push(value.to_owned());
        match after {
            Some(after) => rest = after,
            None => return Ok(values),
        }
    }
}

/// Reads up to the closing quote: the value, and what follows the quote.
fn unquote(text: &str) -> std::result::Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest
            .split_once('"')
            .ok_or("has a quote that is not closed")?;
        value.push_str(part);
        match after.strip_prefix('"') {
            Some(more) => {
                value.push('"');
                rest = more;
            }
            None => return Ok((value, after)),
        }
    }
}

/// Every combination of the parameters' values, the last parameter varying fastest. One empty
/// combination where there is no parameter.
///
/// # Errors
/// `FP0501` for a name given twice, one without values, or a product of more than
/// [`MAX_ATTEMPTS`].
pub fn product(params: &[Param]) -> Result<Vec<Vec<(String, String)>>> {
    let mut all: Vec<Vec<(String, String)>> = vec![Vec::new()];
    for (i, param) in params.iter().enumerate() {
        let same = |other: &Param| variable(&other.name) == variable(&param.name);
        if params[..i].iter().any(same) {
            return Err(codes::SPEC
                .error(format!("the parameter '{}' is given twice", param.name))
                .hint("give all its values in one list"));
        }
        if param.values.is_empty() {
            return Err(codes::SPEC.error(format!("the parameter '{}' has no value", param.name)));
        }
        if all.len().saturating_mul(param.values.len()) > MAX_ATTEMPTS {
            return Err(codes::SPEC
                .error(format!(
                    "the parameters make more than {MAX_ATTEMPTS} combinations"
                ))
                .hint("give fewer values, or explore in steps"));
        }
        all = all
            .iter()
            .flat_map(|combination| {
                param.values.iter().map(move |value| {
                    let mut next = combination.clone();
                    next.push((param.name.clone(), value.clone()));
                    next
                })
            })
            .collect();
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_at_commas_that_are_not_quoted() {
        let values = |text: &str| parse(text).map(|p| p.values).map_err(|e| e.message);
        assert_eq!(
            values("k=a,b,c"),
            Ok(vec!["a".into(), "b".into(), "c".into()])
        );
        assert_eq!(values("k=\"a,b\",c"), Ok(vec!["a,b".into(), "c".into()]));
        assert_eq!(
            values("k=\"say \"\"hi\"\"\""),
            Ok(vec!["say \"hi\"".into()])
        );
        assert_eq!(values("k=\"\",x=y"), Ok(vec![String::new(), "x=y".into()]));
        for bad in [
            "k", "=a", "k=", "k=a,,b", "k=a,", "k=\"a", "k=\"a\"b", "1k=a", "k k=a", "k=a\"b",
            "k=a,a",
        ] {
            assert!(values(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_product_varies_the_last_fastest() {
        let params = [parse("a=1,2").unwrap(), parse("b=x,y").unwrap()];
        let texts: Vec<String> = product(&params)
            .unwrap()
            .iter()
            .map(|c| c.iter().map(|(k, v)| format!("{k}{v}")).collect())
            .collect();
        assert_eq!(texts, ["a1bx", "a1by", "a2bx", "a2by"]);
        assert_eq!(product(&[]).unwrap().len(), 1);
    }

    #[test]
    fn names_that_collide_in_the_environment_are_one_name() {
        let params = [parse("a-b=1").unwrap(), parse("A_B=2").unwrap()];
        assert!(product(&params).is_err());
    }

    #[test]
    fn a_product_is_bounded() {
        let wide = |name: &str| Param {
            name: name.into(),
            values: (0..200).map(|i| i.to_string()).collect(),
        };
        assert!(product(&[wide("a"), wide("b")]).is_err());
    }
}

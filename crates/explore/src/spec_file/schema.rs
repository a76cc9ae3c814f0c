//! The JSON Schema of a specification file, made from the shapes. Editors complete and check TOML by it.

use serde_json::{Map, Value, json};

use super::shape::{ALL, Kind, ROOT, Shape};

/// The schema as a document (draft 2020-12).
pub fn schema() -> Value {
    let mut document = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A Forkpoint exploration",
        "description": "What `forkpoint explore SPEC.toml` reads; docs/spec.md says more.",
    });
    merge(&mut document, of_shape(&ROOT));
    let definitions: Map<String, Value> = ALL
        .iter()
        .filter(|s| !s.name.is_empty())
        .map(|s| (s.name.to_owned(), of_shape(s)))
        .collect();
    document["$defs"] = Value::Object(definitions);
    document
}

fn merge(into: &mut Value, from: Value) {
    if let (Value::Object(into), Value::Object(from)) = (into, from) {
        into.extend(from);
    }
}

fn of_shape(shape: &Shape) -> Value {
    let mut properties = Map::new();
    for key in shape.keys {
        let mut value = of_kind(&key.kind);
        value["description"] = json!(key.help);
        properties.insert(key.name.to_owned(), value);
    }
    let required: Vec<&str> = shape
        .keys
        .iter()
        .filter(|k| k.required)
        .map(|k| k.name)
        .collect();
    let mut all =
        json!({"type": "object", "additionalProperties": false, "properties": properties});
    if !required.is_empty() {
        all["required"] = json!(required);
    }
    all
}

fn reference(shape: &Shape) -> Value {
    json!({"$ref": format!("#/$defs/{}", shape.name)})
}

fn of_kind(kind: &Kind) -> Value {
    let scalar = || json!({"type": ["string", "number", "boolean"]});
    let name = "^[A-Za-z_][A-Za-z0-9_-]*$";
    match kind {
        Kind::Path | Kind::Glob => json!({"type": "string", "minLength": 1}),
        Kind::Inside => json!({"type": "string", "pattern": "^/"}),
        Kind::Label => json!({"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$"}),
        Kind::Variable => json!({"type": "string", "pattern": "^[^=]+$"}),
        Kind::Bool => json!({"type": "boolean"}),
        Kind::Count(low, u32::MAX) => json!({"type": "integer", "minimum": low}),
        Kind::Count(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
        Kind::Cost => json!({"type": ["number", "string"], "exclusiveMinimum": 0}),
        Kind::Time => {
            json!({"type": ["string", "number"], "exclusiveMinimum": 0, "examples": ["90s", "1h30m"]})
        }
        Kind::Size => {
            json!({"type": ["string", "integer"], "exclusiveMinimum": 0, "examples": ["512M", "2G"]})
        }
        Kind::Choice(names) => json!({"enum": names}),
        Kind::Command => json!({"anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string"}, "minItems": 1},
        ]}),
        Kind::List(kind) => json!({"type": "array", "items": of_kind(kind)}),
        Kind::Table(shape) => reference(shape),
        Kind::Tables(shape) => json!({"type": "array", "items": reference(shape), "minItems": 1}),
        Kind::Section(shape) => json!({"anyOf": [of_kind(&Kind::Command), reference(shape)]}),
        Kind::Strategy(names, shape) => json!({"anyOf": [{"enum": names}, reference(shape)]}),
        Kind::Variables => json!({"type": "object", "additionalProperties": scalar()}),
        Kind::Values => json!({
            "type": "object", "minProperties": 1, "additionalProperties": false,
            "patternProperties": {name: scalar()},
        }),
        Kind::Params => json!({
            "type": "object", "additionalProperties": false,
            "patternProperties": {name: value_or_values()},
        }),
        Kind::ParamsAndLists => json!({
            "type": "object", "additionalProperties": false,
            "properties": {
                "list": {"type": "array", "items": of_kind(&Kind::Values), "minItems": 1,
                    "description": "Values of several parameters that belong together."},
                "exclude": {"type": "array", "items": of_kind(&Kind::Values), "minItems": 1,
                    "description": "Combinations that are left out."},
            },
            "patternProperties": {"^(?!(list|exclude)$)[A-Za-z_][A-Za-z0-9_-]*$": value_or_values()},
        }),
    }
}

fn value_or_values() -> Value {
    let scalar = json!({"type": ["string", "number", "boolean"]});
    json!({"anyOf": [scalar, {"type": "array", "items": scalar, "minItems": 1, "uniqueItems": true}]})
}

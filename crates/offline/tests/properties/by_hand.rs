//! What somebody's hand can do to what the planners wrote.
//! In: objects as people gave them and as they are. Out: each of the latter without one of its fields, or with another value.
//! Invariant: nothing that people said themselves is changed.
//! Not here: keys that somebody adds, which stay as `kubectl apply` leaves them.

use offline::Objects;
use serde_json::Value;

/// What an API server sets where it is absent (defaults of the schema): nothing is left to write.
const DEFAULTED: &str = "mode";

/// One change: its kind and name, where in it, and the object; none where it is deleted.
pub(crate) struct Change {
    pub(crate) key: (String, String),
    pub(crate) place: String,
    pub(crate) object: Option<Value>,
}

/// All changes of what is in `settled` and not in `given`.
pub(crate) fn changes(given: &Objects, settled: &Objects) -> Vec<Change> {
    let mut out = Vec::new();
    for (key, object) in settled.iter() {
        let mut change = |place: &str, object: Option<Value>| {
            let (key, place) = (key.clone(), place.to_owned());
            out.push(Change { key, place, object });
        };
        match given.get(&key.0, &key.1) {
            Some(given) if given == object => {}
            // What was written into it is taken out again.
            Some(given) => change("all that was written", Some(given.clone())),
            None => {
                change("all of it", None);
                for part in ["/spec", "/metadata/labels", "/metadata/annotations"] {
                    places(object.pointer(part), part, &mut |place| {
                        let (parent, key) = place.rsplit_once('/').unwrap();
                        let mut without = object.clone();
                        match without.pointer_mut(parent) {
                            Some(Value::Object(map)) => drop(map.remove(&key.replace("~1", "/"))),
                            Some(Value::Array(list)) => drop(list.remove(key.parse().unwrap())),
                            _ => return,
                        }
                        if key != DEFAULTED {
                            change(&format!("without {place}"), Some(without));
                        }
                        let mut other = object.clone();
                        let value = other.pointer_mut(place).unwrap();
                        if !value.is_object() && !value.is_array() {
                            *value = another(value);
                            change(&format!("with another {place}"), Some(other));
                        }
                    });
                }
            }
        }
    }
    out
}

/// Every place in a value, as JSON pointers.
fn places(value: Option<&Value>, at: &str, found: &mut impl FnMut(&str)) {
    let mut inside = |key: &str, value: &Value| {
        let place = format!("{at}/{}", key.replace('/', "~1"));
        found(&place);
        places(Some(value), &place, found);
    };
    match value {
        Some(Value::Object(map)) => map.iter().for_each(|(key, value)| inside(key, value)),
        Some(Value::Array(list)) => {
            (0..)
                .zip(list)
                .for_each(|(at, value): (usize, _)| inside(&at.to_string(), value));
        }
        _ => {}
    }
}

fn another(value: &Value) -> Value {
    match value {
        Value::Number(number) => (number.as_i64().unwrap() + 1).into(),
        Value::Bool(is) => (!is).into(),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => "another".into(),
    }
}

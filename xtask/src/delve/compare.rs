//! A value as delve has it beside the same value as gospect has it.

use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// What comparing came to; numbers of values, of which those inside others count too.
#[derive(Debug, Default, Serialize)]
pub struct Tally {
    /// The same in both.
    pub agree: u64,
    /// Delve says that it cannot read them.
    pub unread_by_delve: u64,
    /// gospect says that it cannot read them, and why.
    pub unread_by_gospect: BTreeMap<String, u64>,
    /// Where one of them shows less: behind so many pointers, after so many elements, or in
    /// words instead of fields (times, network addresses, URLs).
    pub not_compared: u64,
    /// What differs.
    pub differ: Vec<String>,
}

/// Bit of a delve variable that is a result (`service/api`, `VariableReturnArgument`).
pub const IS_RESULT: u64 = 1 << 4;

impl Tally {
    /// Compares one value. Addresses are those of different processes.
    pub fn value(&mut self, delve: &Value, gospect: &Value, path: &str) {
        let inner = &gospect["value"]["unavailable"];
        if let Some(reason) = gospect["unavailable"].as_str().or(inner.as_str()) {
            *self.unread_by_gospect.entry(reason.to_owned()).or_default() += 1;
            return;
        }
        if !delve["unreadable"].as_str().unwrap_or_default().is_empty() {
            self.unread_by_delve += 1;
            return;
        }
        let is_written = ["time.Time", "time.Duration", "net.IP", "net/url.URL", "math/big.Int"]
            .contains(&delve["type"].as_str().unwrap_or_default())
            || delve["type"].as_str().is_some_and(|ty| ty.starts_with("sync/atomic."));
        if is_written || is_address(gospect) {
            self.not_compared += 1;
            return;
        }
        let own = ["value", "bytes_hex"].iter().any(|name| gospect.get(*name).is_some());
        let value = if own && gospect.get("dyn").is_none() { &gospect["value"] } else { gospect };
        match delve["kind"].as_u64().unwrap_or(0) {
            1 => {
                let is_same = delve["value"].as_str() == Some(value.to_string().as_str());
                self.check(is_same, delve, gospect, path);
            }
            2..=12 => self.check(number(delve) == plain(value), delve, gospect, path),
            13 | 14 => self.check(is_float(delve, value), delve, gospect, path),
            15 | 16 => {
                let parts = || delve["children"].as_array().into_iter().flatten().enumerate();
                let is_same = parts().all(|(at, part)| is_float(part, &value[at]));
                self.check(is_same && parts().count() == 2, delve, gospect, path);
            }
            17 | 23 => self.list(delve, gospect, value, path),
            18 => {
                // Its children are the fields of a runtime.hchan.
                let fields = delve["children"].as_array().map_or(&[][..], Vec::as_slice);
                let is_same = match fields {
                    [count, size, ..] => {
                        number(count) == plain(&value["len"])
                            && number(size) == plain(&value["cap"])
                    }
                    _ => value.is_null(),
                };
                self.check(is_same, delve, gospect, path);
            }
            19 => {
                let name = delve["value"].as_str().unwrap_or_default();
                let is_same = value.as_str().unwrap_or_default() == name;
                self.check(is_same || value.is_null() && name.is_empty(), delve, gospect, path);
            }
            20 => self.interface(delve, gospect, value, path),
            21 => self.map(delve, value, gospect, path),
            22 => self.pointer(delve, gospect, path),
            24 => self.text(delve, gospect, path),
            25 => self.structure(delve, value, path),
            _ => self.not_compared += 1,
        }
    }

    fn check(&mut self, is_same: bool, delve: &Value, gospect: &Value, path: &str) {
        match is_same {
            true => self.agree += 1,
            false => self.differ.push(format!("{path}: gospect {gospect}, delve {delve}")),
        }
    }

    fn list(&mut self, delve: &Value, gospect: &Value, value: &Value, path: &str) {
        let children = delve["children"].as_array().map_or(&[][..], Vec::as_slice);
        let is_bytes = children.first().is_some_and(|child| child["kind"] == 8);
        let Some(items) = value.as_array().filter(|_| !is_bytes) else {
            let bytes = children.iter().map(|child| number(child).parse().unwrap_or(0));
            let bytes: Vec<u8> = bytes.collect();
            let shown = match gospect["bytes_hex"].as_str() {
                Some(hex) => hex.to_owned(),
                None => to_hex(value.as_str().unwrap_or_default().as_bytes()),
            };
            // Delve loads fewer of them.
            let is_same = shown.starts_with(&to_hex(&bytes));
            return self.check(is_same, delve, gospect, path);
        };
        let len = delve["len"].as_u64().unwrap_or(0);
        let shown = items.len() as u64 + gospect["cut"].as_u64().unwrap_or(0);
        self.check(shown == len, delve, gospect, path);
        for (at, (child, item)) in children.iter().zip(items).enumerate() {
            self.value(child, item, &format!("{path}[{at}]"));
        }
    }

    fn text(&mut self, delve: &Value, gospect: &Value, path: &str) {
        let text = delve["value"].as_str().unwrap_or_default();
        let bare = gospect.as_str().or(gospect["value"].as_str());
        let Some(shown) = bare else {
            // No UTF-8, which its JSON does not carry.
            return self.not_compared += 1;
        };
        let cut = gospect["cut"].as_u64().unwrap_or(0);
        let is_same = text.starts_with(shown) || shown.starts_with(text);
        let len = delve["len"].as_u64().unwrap_or(0);
        self.check(is_same && shown.len() as u64 + cut == len, delve, gospect, path);
    }

    fn structure(&mut self, delve: &Value, value: &Value, path: &str) {
        for child in delve["children"].as_array().into_iter().flatten() {
            let name = child["name"].as_str().unwrap_or_default();
            match value.get(name) {
                Some(field) => self.value(child, field, &format!("{path}.{name}")),
                None => self.not_compared += 1,
            }
        }
    }

    fn pointer(&mut self, delve: &Value, gospect: &Value, path: &str) {
        let target = &delve["children"][0];
        let value = gospect.get("value").unwrap_or(gospect);
        if target["addr"] == 0 {
            return self.check(value.is_null(), delve, gospect, path);
        }
        if target["onlyAddr"] == true {
            self.not_compared += 1;
            return;
        }
        // What a pointer leads to stands in its place, but nil, which is told from a pointer that is nil.
        if value.is_null() {
            return self.check(false, delve, gospect, path);
        }
        let path = format!("*{path}");
        match value.get("*") {
            Some(inner) => self.value(target, &json!({ "value": inner }), &path),
            None => self.value(target, gospect, &path),
        }
    }

    fn map(&mut self, delve: &Value, value: &Value, gospect: &Value, path: &str) {
        if value.is_null() {
            let is_nil = delve["base"] == 0 && delve["len"] == 0;
            return self.check(is_nil || delve["len"] == 0, delve, gospect, path);
        }
        self.check(value["len"] == delve["len"], delve, gospect, path);
        let children = delve["children"].as_array().map_or(&[][..], Vec::as_slice);
        let entries = value["entries"].as_array().map_or(&[][..], Vec::as_slice);
        if value["len"] != entries.len() || children.len() != 2 * entries.len() {
            return self.not_compared += 1;
        }
        for entry in entries {
            let fits = |pair: &&[Value]| {
                let mut trial = Self::default();
                trial.value(&pair[0], &entry[0], path);
                trial.value(&pair[1], &entry[1], path);
                trial.differ.is_empty()
            };
            let is_there = children.chunks(2).any(|pair| fits(&pair));
            self.check(is_there, delve, entry, path);
        }
    }

    fn interface(&mut self, delve: &Value, gospect: &Value, value: &Value, path: &str) {
        let held = &delve["children"][0];
        if held["kind"] == 0 || held.is_null() {
            return self.check(value.is_null(), delve, gospect, path);
        }
        // One writes whole import paths.
        let name =
            |ty: &Value| ty.as_str().map(|ty| ty.rsplit(['/', '*']).next().map(str::to_owned));
        let object = if gospect.get("dyn").is_some() { gospect } else { value };
        self.check(name(&object["dyn"]) == name(&held["type"]), delve, gospect, path);
        let mut inner = object.clone();
        if let Some(members) = inner.as_object_mut() {
            members.remove("dyn");
            members.remove("error");
        }
        if is_address(&object["value"]) {
            inner = object["value"].clone();
        }
        self.value(held, &inner, &format!("{path}.()"));
    }
}

fn is_address(gospect: &Value) -> bool {
    gospect["addr"].is_string()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An integer; of a named constant what stands in brackets behind the name.
fn number(delve: &Value) -> String {
    let text = delve["value"].as_str().unwrap_or_default();
    text.rsplit('(').next().unwrap_or(text).trim_end_matches(')').trim().to_owned()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn is_float(delve: &Value, value: &Value) -> bool {
    let parse = |text: &str| {
        let number: f64 = text.parse().ok()?;
        Some(if delve["kind"] == 13 { (number as f32).to_bits().into() } else { number.to_bits() })
    };
    let (own, other) = (parse(delve["value"].as_str().unwrap_or_default()), parse(&plain(value)));
    // The JSON parser of this task reads large numbers less exactly than they are written.
    own.zip(other).is_some_and(|(own, other): (u64, u64)| own.abs_diff(other) <= 4)
}

//! A traced value beside the whole of it, as the program that has it logged it.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What comparing came to.
#[derive(Debug, Default)]
pub struct Tally {
    /// Numbers, texts, lengths, names and addresses that are right.
    pub right: u64,
    /// Where a trace says that it shows a part.
    pub cut: u64,
    /// Pointers and interfaces that were not followed, with the right address.
    pub not_followed: u64,
    /// How often there is no value, by the reason.
    pub unavailable: BTreeMap<String, u64>,
    /// What is wrong, and where.
    pub wrong: Vec<String>,
}

impl Tally {
    fn check(&mut self, is_right: bool, path: &str, got: &Value, want: &Value) {
        match is_right {
            true => self.right += 1,
            false => self.wrong.push(format!("{path}: {got}, the program has {want}")),
        }
    }

    /// Compares `got`, which has the members of a value, with `want`.
    pub fn value(&mut self, want: &Value, got: &Value, path: &str) {
        let members = members(got);
        if let Some(reason) = members.get("unavailable").and_then(Value::as_str) {
            *self.unavailable.entry(reason.to_owned()).or_default() += 1;
            return;
        }
        if members.contains_key("cut") {
            self.cut += 1;
        }
        let value = members.get("value").unwrap_or(&Value::Null);
        match want["k"].as_str().expect("a kind") {
            "bool" => self.check(value == &want["v"], path, got, want),
            "int" => self.check(is_integer(value, &want["v"]), path, got, want),
            "float" => self.check(is_float(value, &want["v"], &want["bits"]), path, got, want),
            "complex" => {
                let is_right = [0, 1].into_iter().all(|part| {
                    value.as_array().is_some_and(|parts| parts.len() == 2)
                        && is_float(&value[part], &want["v"][part], &want["bits"])
                });
                self.check(is_right, path, got, want);
            }
            "func" if members.contains_key("addr") => {
                self.not_followed += 1;
                self.check(members["addr"] == want["addr"], path, got, want);
            }
            "func" => {
                let name = want["v"].as_str().expect("a name");
                let is_right = value.as_str().unwrap_or_default() == name;
                self.check(is_right && value.is_null() == name.is_empty(), path, got, want);
            }
            "text" => self.text(&want["hex"], &members, path, got),
            "pointer" => self.pointer(want, &members, path, got),
            "list" => self.list(want, &members, path, got),
            "struct" => self.structure(want, &members, path, got),
            "map" => self.map(want, &members, path, got),
            "chan" => self.chan(want, &members, path, got),
            "interface" => self.interface(want, &members, path, got),
            kind => panic!("no kind {kind}"),
        }
    }

    fn text(&mut self, hex: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        let hex = hex.as_str().expect("text in hexadecimal");
        let shown = match (members.get("value"), members.get("bytes_hex")) {
            (Some(Value::String(text)), None) => to_hex(text.as_bytes()),
            // A nil or empty list of bytes.
            (Some(Value::Array(items)), None) if items.is_empty() => String::new(),
            (None, Some(Value::String(hex))) => hex.clone(),
            _ => "?".to_owned(),
        };
        let missing = (hex.len() as u64 - (shown.len() as u64).min(hex.len() as u64)) / 2;
        let is_right = hex.starts_with(&shown)
            && number(members.get("cut")) == missing
            && members.get("len").is_none_or(|len| number(Some(len)) == hex.len() as u64 / 2);
        self.check(is_right, path, got, &hex.into());
    }

    fn pointer(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        if let Some(address) = members.get("addr") {
            self.not_followed += 1;
            return self.check(is_on_the_way(address, want), path, got, want);
        }
        match &want["to"] {
            Value::Null => self.check(members.get("value") == Some(&Value::Null), path, got, want),
            behind if leads_to_nil(behind) => match members.get("value").map(|value| &value["*"]) {
                Some(shown) if members["value"].get("*").is_some() => {
                    self.value(behind, shown, &format!("*{path}"));
                }
                _ => self.check(false, path, got, want),
            },
            behind => self.value(behind, got, &format!("*{path}")),
        }
    }

    fn list(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        let items = want["items"].as_array().expect("items");
        if want["bytes"] == true {
            let bytes: Option<Vec<u8>> = items.iter().map(byte).collect();
            let hex = to_hex(&bytes.expect("bytes"));
            let is_text =
                !matches!(members.get("value"), Some(Value::Array(items)) if !items.is_empty());
            if is_text {
                return self.text(&hex.into(), members, path, got);
            }
        }
        let Some(Value::Array(shown)) = members.get("value") else {
            return self.check(false, path, got, want);
        };
        let missing = items.len() as u64 - (shown.len() as u64).min(items.len() as u64);
        let is_right = shown.len() <= items.len()
            && number(members.get("cut")) == missing
            && members.get("len").is_none_or(|len| number(Some(len)) == items.len() as u64)
            && members.get("cap").is_none_or(|cap| *cap == want["cap"]);
        self.check(is_right, path, got, want);
        for (index, (want, got)) in items.iter().zip(shown).enumerate() {
            self.value(want, got, &format!("{path}[{index}]"));
        }
    }

    fn structure(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        let all = want["members"].as_array().expect("members");
        let Some(Value::Object(shown)) = members.get("value") else {
            return self.check(false, path, got, want);
        };
        let mut found = 0;
        // What blank fields hold is nobody's matter.
        let named = all.iter().filter(|member| member[0] != "_");
        let blank = all.len() - named.clone().count();
        for (place, member) in named.enumerate() {
            let name = member[0].as_str().expect("a name");
            if let Some(value) = shown.get(name) {
                self.check(found == place, path, got, want);
                found += 1;
                self.value(&member[1], value, &format!("{path}.{name}"));
            }
        }
        let blank_shown = usize::from(shown.contains_key("_"));
        let sum = found as u64 + number(members.get("cut"));
        let is_whole = sum <= all.len() as u64 && sum + blank as u64 >= all.len() as u64;
        self.check(is_whole && shown.len() - blank_shown == found, path, got, want);
    }

    fn map(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        if let Some(address) = members.get("addr") {
            self.not_followed += 1;
            return self.check(*address == want["addr"], path, got, want);
        }
        let value = &members["value"];
        if want["addr"] == "0x0" {
            return self.check(value.is_null(), path, got, want);
        }
        let all = want["entries"].as_array().expect("entries");
        let empty = Vec::new();
        let shown = value["entries"].as_array().unwrap_or(&empty);
        self.check(number(value.get("len")) == all.len() as u64, path, got, want);
        let cut = number(value.get("cut"));
        self.cut += u64::from(cut > 0);
        self.check(shown.len() as u64 + cut == all.len() as u64, path, got, want);
        let mut left: Vec<&Value> = all.iter().collect();
        for entry in shown {
            // In no order: each is one of those that are there, and none is there twice.
            let fits = |want: &&Value| {
                let mut trial = Self::default();
                trial.value(&want[0], &entry[0], "");
                trial.value(&want[1], &entry[1], "");
                trial.wrong.is_empty()
            };
            match left.iter().position(fits) {
                None => self.wrong.push(format!("{path}: {entry} is not in {want}")),
                Some(index) => {
                    let want = left.remove(index);
                    self.value(&want[0], &entry[0], &format!("{path} key"));
                    self.value(&want[1], &entry[1], &format!("{path} value"));
                }
            }
        }
    }

    fn chan(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        if let Some(address) = members.get("addr") {
            self.not_followed += 1;
            return self.check(*address == want["addr"], path, got, want);
        }
        let value = &members["value"];
        let is_right = match want["addr"] == "0x0" {
            true => value.is_null(),
            false => ["len", "cap", "closed"].iter().all(|name| value[*name] == want[*name]),
        };
        self.check(is_right, path, got, want);
    }

    fn interface(&mut self, want: &Value, members: &Map<String, Value>, path: &str, got: &Value) {
        // Inside others it stands bare, and then its own members are those found.
        let object = match members.contains_key("dyn") {
            true => got,
            false => members.get("value").unwrap_or(&Value::Null),
        };
        if want["dyn"] == "" {
            return self.check(object.is_null(), path, got, want);
        }
        self.check(object["dyn"] == want["dyn"], path, got, want);
        if let Some(message) = object.get("error").and_then(Value::as_str) {
            let all = want["error"].as_str().unwrap_or("none");
            let is_right = is_message(message, all, number(object.get("error_cut")) as usize);
            self.check(is_right, &format!("{path} error"), got, want);
        }
        let held = &want["value"];
        if let Some(address) = object["value"]["addr"].as_str().or(object["addr"].as_str()) {
            self.not_followed += 1;
            let address = address.into();
            // Unless it is a pointer in itself, what holds it has an address.
            let is_right = want["data"] == address || is_on_the_way(&address, held);
            return self.check(is_right, path, got, want);
        }
        let mut bare = object.clone();
        if let Some(parts) = bare.as_object_mut() {
            for own in ["dyn", "error", "error_cut"] {
                parts.remove(own);
            }
        }
        if object["value"]["unavailable"].is_string() {
            bare = object["value"].clone();
        }
        self.value(held, &bare, &format!("{path}.({})", want["dyn"].as_str().unwrap_or("?")));
    }
}

/// The members of a value: a bare one is its own value.
fn members(got: &Value) -> Map<String, Value> {
    let marks = ["value", "unavailable", "addr", "bytes_hex"];
    match got {
        Value::Object(object) if marks.iter().any(|mark| object.contains_key(*mark)) => {
            object.clone()
        }
        bare => Map::from_iter([("value".to_owned(), bare.clone())]),
    }
}

/// Whether a value is nil, or a pointer to such a one.
fn leads_to_nil(want: &Value) -> bool {
    match want["k"].as_str().expect("a kind") {
        "pointer" => want["addr"] == "0x0" || want["to"].is_object() && leads_to_nil(&want["to"]),
        "map" | "chan" => want["addr"] == "0x0",
        "func" => want["v"] == "",
        "interface" => want["dyn"] == "",
        _ => false,
    }
}

/// Whether it is the address in `want`, or, that being followed, the one behind it: a pointer is shown as
/// what it leads to.
fn is_on_the_way(address: &Value, want: &Value) -> bool {
    want["addr"] == *address || want["to"].is_object() && is_on_the_way(address, &want["to"])
}

fn number(value: Option<&Value>) -> u64 {
    value.and_then(Value::as_u64).unwrap_or(0)
}

fn byte(item: &Value) -> Option<u8> {
    let value: i64 = item["v"].as_str()?.parse().ok()?;
    Some(value as u8)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Integers beyond 2^53 are strings, as JSON has it.
fn is_integer(got: &Value, want: &Value) -> bool {
    let want = want.as_str().expect("an integer");
    let value: i128 = want.parse().expect("an integer");
    match value.unsigned_abs() > 1 << 53 {
        true => got == want,
        false => got.as_i64().map(i128::from) == Some(value),
    }
}

/// Every bit, but for what kind of NaN it is.
fn is_float(got: &Value, want: &Value, bits: &Value) -> bool {
    let want = want.as_str().expect("a float");
    let got = match got {
        Value::String(text) if ["NaN", "+Inf", "-Inf", "Inf"].contains(&text.as_str()) => {
            text.clone()
        }
        Value::Number(number) => number.to_string(),
        _ => return false,
    };
    let parse = |text: &str| match bits == 32 {
        true => text.parse::<f32>().ok().map(|it| u64::from(it.to_bits())),
        false => text.parse::<f64>().ok().map(f64::to_bits),
    };
    parse(&got).is_some() && parse(&got) == parse(want)
}

/// Whether an error's message is what `hex` begins with, `cut` bytes being left out.
fn is_message(message: &str, hex: &str, cut: usize) -> bool {
    let digits: Vec<u8> =
        hex.bytes().filter_map(|digit| char::from(digit).to_digit(16)).map(|it| it as u8).collect();
    let bytes: Vec<u8> =
        digits.chunks(2).map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | digit)).collect();
    let shown = &bytes[..bytes.len().saturating_sub(cut)];
    String::from_utf8_lossy(shown) == message
}

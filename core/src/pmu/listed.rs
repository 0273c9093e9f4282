// SPDX-License-Identifier: GPL-2.0-or-later
//! Vendors' event lists, in the form of the kernel's `tools/perf/pmu-events`: JSON files of objects
//! with `EventName`, `EventCode`, `UMask` and such, all of them strings.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::parse;
use crate::text::plain;

/// Events of all lists together, at most.
pub const MOST_LISTED: usize = 8192;
/// Characters of a name, at most.
const LONGEST_NAME: usize = 200;

/// An event of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEvent {
    /// The vendor's name.
    pub name: String,
    /// The PMU that counts it, on machines with several; `None` is every one.
    pub unit: Option<String>,
    /// As the PMU's `format/` takes it: `event=0xd1,umask=0x8`.
    pub terms: String,
}

/// What is in lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VendorLists {
    /// Those that can be counted by a code alone, in the order of the lists.
    pub events: Vec<ListedEvent>,
    /// How many events are left out, by the reason.
    pub left_out: BTreeMap<&'static str, usize>,
}

impl VendorLists {
    /// Of the texts of files, each with what to call it in errors. Entries without an event, such as
    /// metrics, are passed over. An event that ARM's lists name by `ArchStdEvent` alone has its code in
    /// another of the files.
    ///
    /// # Errors
    /// Which file, which entry of it, and what is wrong there.
    pub fn parse(files: &[(String, String)]) -> Result<Self> {
        let mut entries = Vec::new();
        for (file, text) in files {
            let of_file = of_file(text).with_context(|| format!("cannot use the list {file}"))?;
            entries.extend(of_file);
            ensure!(
                entries.len() <= MOST_LISTED,
                "the lists have more than {MOST_LISTED} events: give those of this CPU only"
            );
        }
        let codes: BTreeMap<&str, &Entry> = entries
            .iter()
            .filter(|entry| entry.architectural.is_none())
            .map(|entry| (entry.name.as_str(), entry))
            .collect();
        let mut lists = Self::default();
        for entry in &entries {
            let of = match &entry.architectural {
                None => entry,
                Some(name) => match codes.get(name.as_str()) {
                    Some(of) => of,
                    None => {
                        lists.leave_out("its code is in another file");
                        continue;
                    }
                },
            };
            match of.terms() {
                Ok(terms) => lists.events.push(ListedEvent {
                    name: entry.name.clone(),
                    unit: entry.unit.clone(),
                    terms,
                }),
                Err(why) => lists.leave_out(why),
            }
        }
        Ok(lists)
    }

    fn leave_out(&mut self, why: &'static str) {
        *self.left_out.entry(why).or_default() += 1;
    }
}

/// An object of a file, as it stands there.
#[derive(Debug)]
struct Entry {
    name: String,
    architectural: Option<String>,
    unit: Option<String>,
    values: BTreeMap<&'static str, String>,
}

/// Keys of an entry, and the terms that they become.
const TERMS: [(&str, &str); 5] = [
    ("EventCode", "event"),
    ("UMask", "umask"),
    ("CounterMask", "cmask"),
    ("Invert", "inv"),
    ("EdgeDetect", "edge"),
];
/// Further keys that are looked at.
const FURTHER: [&str; 3] = ["MSRIndex", "Deprecated", "Counter"];

fn of_file(text: &str) -> Result<Vec<Entry>> {
    let value = parse::json(text)?;
    let objects = match value {
        Value::Array(objects) => objects,
        // What groups of metrics mean (metricgroups.json).
        Value::Object(groups) if !groups.is_empty() && groups.values().all(Value::is_string) => {
            return Ok(Vec::new());
        }
        _ => bail!("it is no list of events: a file of perf's pmu-events is an array of objects"),
    };
    let mut entries = Vec::new();
    for (number, object) in objects.iter().enumerate() {
        let entry = Entry::of(object).with_context(|| format!("its entry {}", number + 1))?;
        entries.extend(entry);
    }
    Ok(entries)
}

impl Entry {
    /// `None` if it names no event.
    fn of(object: &Value) -> Result<Option<Self>> {
        ensure!(object.is_object(), "it is no object");
        let text = |key: &str| -> Result<Option<String>> {
            match object.get(key) {
                None | Some(Value::Null) => Ok(None),
                Some(Value::String(text)) => Ok(Some(text.trim().to_string())),
                Some(Value::Number(number)) => Ok(Some(number.to_string())),
                Some(_) => bail!("its {key} is neither text nor a number"),
            }
        };
        let architectural = text("ArchStdEvent")?;
        let Some(name) = text("EventName")?.or_else(|| architectural.clone()) else {
            return Ok(None);
        };
        ensure!(
            !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(in_a_name),
            "'{}' is no event's name: letters, digits and ._-:+{{}} make one, up to {LONGEST_NAME} of them",
            plain(&name).chars().take(LONGEST_NAME).collect::<String>()
        );
        let mut values = BTreeMap::new();
        let keys = TERMS.iter().map(|(key, _)| *key).chain(FURTHER);
        for key in keys {
            values.extend(text(key)?.map(|value| (key, value)));
        }
        let entry = Self {
            architectural: architectural.filter(|_| !values.contains_key("EventCode")),
            unit: text("Unit")?,
            name,
            values,
        };
        for (key, _) in TERMS {
            let Some(value) = entry.values.get(key) else {
                continue;
            };
            ensure!(
                value.split(',').all(|one| number(one).is_some()),
                "'{}' is no number, as {key} of {}",
                plain(value),
                entry.name
            );
        }
        Ok(Some(entry))
    }

    /// What [`super::format::terms`] takes, or why that cannot be had.
    fn terms(&self) -> Result<String, &'static str> {
        let get = |key: &str| self.values.get(key).map(String::as_str);
        let set = |key: &str| get(key).and_then(number).is_some_and(|value| value != 0);
        if set("Deprecated") {
            return Err("deprecated");
        }
        if set("MSRIndex") || get("MSRIndex").is_some_and(|value| value.contains(',')) {
            return Err("needs a register of its own");
        }
        match get("EventCode") {
            None => return Err("has no code of this kind"),
            Some(codes) if codes.contains(',') => return Err("needs a register of its own"),
            // Intel's fixed counters have a code that only the kernel makes.
            Some(code) if number(code) == Some(0) && fixed(get("Counter")) => {
                return Err("has a fixed counter, which counts instructions, cycles or slots");
            }
            Some(_) => (),
        }
        let terms = TERMS.iter().filter_map(|(key, term)| {
            let value = get(key).and_then(number)?;
            (value != 0 || *term == "event").then(|| format!("{term}={value:#x}"))
        });
        Ok(terms.collect::<Vec<_>>().join(","))
    }
}

fn in_a_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || "._-:+{}".contains(letter)
}

fn fixed(counter: Option<&str>) -> bool {
    counter.is_some_and(|text| {
        let first = text
            .split(',')
            .next()
            .and_then(|one| one.trim().parse().ok());
        text.starts_with("Fixed") || first.is_some_and(|number: u32| number >= 32)
    })
}

fn number(text: &str) -> Option<u64> {
    super::format::number(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<VendorLists, String> {
        VendorLists::parse(&[("a.json".into(), text.into())]).map_err(|e| format!("{e:#}"))
    }

    #[test]
    fn events_become_terms_and_what_has_no_code_is_counted() {
        let lists = parse(
            r#"[
            {"EventName": "MEM_LOAD_RETIRED.L1_MISS", "EventCode": "0xd1", "UMask": "0x08",
             "Counter": "0,1,2,3", "Unit": "cpu_core", "BriefDescription": "..."},
            {"EventName": "STALLS", "EventCode": "0xa3", "UMask": "0x5", "CounterMask": "5",
             "Invert": "1", "EdgeDetect": "1", "MSRIndex": "0x00"},
            {"EventName": "OCR.X", "EventCode": "0x2A,0x2B", "UMask": "0x1", "MSRIndex": "0x1a6,0x1a7"},
            {"EventName": "OLD", "EventCode": "0x10", "Deprecated": "1"},
            {"EventName": "INST_RETIRED.ANY", "EventCode": "0x0", "UMask": "0x1", "Counter": "Fixed counter 0"},
            {"EventName": "L2_REQUEST.ALL", "EventCode": "0x24"},
            {"MetricName": "tma", "MetricExpr": "a / b"}
            ]"#,
        )
        .unwrap();
        let terms: Vec<_> = lists
            .events
            .iter()
            .map(|event| event.terms.as_str())
            .collect();
        assert_eq!(
            terms,
            [
                "event=0xd1,umask=0x8",
                "event=0xa3,umask=0x5,cmask=0x5,inv=0x1,edge=0x1",
                "event=0x24"
            ]
        );
        assert_eq!(lists.events[0].unit.as_deref(), Some("cpu_core"));
        let left_out: Vec<_> = lists.left_out.into_values().collect();
        assert_eq!(left_out, [1, 1, 1], "one of each kind");
    }

    #[test]
    fn arms_events_have_their_code_in_another_file() {
        let cpu = r#"[{"ArchStdEvent": "L1I_CACHE_REFILL"}, {"ArchStdEvent": "NOWHERE"}]"#;
        let common = r#"[{"EventName": "L1I_CACHE_REFILL", "EventCode": "0x01"}]"#;
        let files = [cpu, common].map(|text| ("a.json".to_string(), text.to_string()));
        let lists = VendorLists::parse(&files).unwrap();
        assert_eq!(lists.events[0].terms, "event=0x1");
        assert_eq!(lists.left_out["its code is in another file"], 1);
    }

    #[test]
    fn broken_lists_are_explained() {
        let error = |text: &str| parse(text).unwrap_err();
        assert!(error("nothing").contains("a.json: line 1, column 2: it is damaged, or no JSON"));
        assert!(error("{}").contains("array of objects"));
        let groups = parse(r#"{"Backend": "Metrics of what waits"}"#);
        assert_eq!(groups, Ok(VendorLists::default()));
        assert!(error("[1]").contains("its entry 1: it is no object"));
        let escape = error(r#"[{"EventName": "a\u001b[31m", "EventCode": "1"}]"#);
        assert!(escape.contains("is no event's name") && !escape.contains('\u{1b}'));
        assert!(
            error(r#"[{"EventName": "A", "EventCode": "ten"}]"#).contains("'ten' is no number")
        );
        assert!(error(r#"[{"EventName": "A", "EventCode": ["1"]}]"#).contains("neither text"));
        assert!(error(r#"[{"EventName": "", "EventCode": "1"}]"#).contains("no event's name"));
        let many = vec![r#"{"EventName": "A", "EventCode": "1"}"#; MOST_LISTED + 1].join(",");
        assert!(error(&format!("[{many}]")).contains("more than 8192"));
    }
}

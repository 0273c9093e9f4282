// SPDX-License-Identifier: GPL-2.0-only

use std::cell::RefCell;
use std::rc::Rc;

use super::*;

#[derive(Clone, Default)]
struct Sink(Rc<RefCell<Vec<u8>>>);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn events(names: &[&str]) -> Vec<Event> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn row(counts: &[Option<f64>], share: f64) -> OutputRow {
    let values = counts.iter().map(|&count| Value { count, share });
    OutputRow {
        core_type: "LITTLE".into(),
        run_ns: 2e9,
        values: values.collect(),
        instructions: 4e9,
        cycles: 2e9,
        joules: None,
    }
}

const LABEL: fn() -> Label = || Label {
    time: Some(86399.5),
    tid: Some(4_000_000),
    name: Some("a-name,of-15-ch".into()),
    cpu: Some(255),
};

fn printed(format: Format, scaled: bool, print: impl FnOnce(&mut PmcReport)) -> String {
    let sink = Sink::default();
    let events = events(&["llc-misses", "event=1,umask=2"]);
    let mut report = PmcReport::new(Box::new(sink.clone()), format, &events, &[false, scaled]);
    print(&mut report);
    String::from_utf8(sink.0.take()).unwrap()
}

#[test]
fn every_table_of_the_default_events_fits_a_terminal() {
    let names = ["instructions", "cycles", "branches", "branch-misses"];
    let events = events(&[&names[..], &["llc-references", "llc-misses"]].concat());
    let sink = Sink::default();
    let out = Box::new(sink.clone());
    let mut report = PmcReport::new(out, Format::Table, &events, &[false; 6]);
    report.with_joules();
    let row = row(&[Some(123_456_789_012.0); 6], 1.0);
    let nobody = Label {
        time: Some(86399.5),
        ..Label::default()
    };
    for kind in [
        LineKind::Interval,
        LineKind::Sample,
        LineKind::Thread,
        LineKind::Total,
    ] {
        report.row(kind, &LABEL(), &row, 4e9).unwrap();
        report.row(kind, &nobody, &row, 4e9).unwrap();
    }
    report.rates(&[row]).unwrap();
    let text = String::from_utf8(sink.0.take()).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    assert!(text.contains("50.0%") && text.contains("123.5G"), "{text}");
}

#[test]
fn csv_has_one_header_and_quotes_what_needs_it() {
    let text = printed(Format::Csv, true, |report| {
        for _ in 0..2 {
            let row = row(&[Some(1234.4), None], 0.5);
            report.row(LineKind::Thread, &LABEL(), &row, 4e9).unwrap();
        }
    });
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines[0],
        "kind,time_s,tid,name,cpu,core_type,run_ns,share,llc-misses,\"event=1,umask=2\",\
         \"event=1,umask=2 counted share\",ipc,value,unit"
    );
    assert_eq!(
        lines[1],
        "thread,86399.500000,4000000,\"a-name,of-15-ch\",255,LITTLE,2000000000,0.5000,1234,,\
         0.5000,2.0000,,"
    );
    assert_eq!(lines.len(), 3);
}

#[test]
fn joules_have_a_column_a_unit_and_a_name() {
    let print = |report: &mut PmcReport| {
        let mut row = row(&[Some(1234.4), None], 1.0);
        row.joules = Some(12.3456);
        report.with_joules();
        report
            .row(LineKind::Total, &Label::default(), &row, 2e9)
            .unwrap();
    };
    let table = printed(Format::Table, false, print);
    assert!(table.contains(" 12.35"), "{table}");
    assert!(printed(Format::Csv, false, print).ends_with("2.0000,12.345600,J\n"));
    assert!(printed(Format::Json, false, print).contains("\"joules\":12.3456"));
}

#[test]
fn json_has_what_is_known() {
    let text = printed(Format::Json, true, |report| {
        let row = row(&[Some(1e6), None], 0.5);
        report
            .row(LineKind::Total, &Label::default(), &row, 2e9)
            .unwrap();
    });
    let line: Json = serde_json::from_str(&text).unwrap();
    assert_eq!(
        line["counts"],
        json!({"llc-misses": 1_000_000, "event=1,umask=2": null})
    );
    assert_eq!(line["counted_share"], json!({"event=1,umask=2": 0.5}));
    assert_eq!(line["btr_bytes_per_s"], json!(32e6));
    assert_eq!(line.get("tid"), None);
}

#[test]
fn a_table_marks_what_was_scaled_and_what_was_not_counted() {
    let text = printed(Format::Table, true, |report| {
        let mut row = row(&[Some(1e6), Some(5e7)], 1.0);
        row.values[1].share = 0.5;
        report
            .row(LineKind::Total, &Label::default(), &row, 2e9)
            .unwrap();
        row.values[1].count = None;
        report
            .row(LineKind::Total, &Label::default(), &row, 2e9)
            .unwrap();
    });
    assert!(text.contains("50.00M (50%)"), "{text}");
    assert!(text.lines().last().unwrap().contains(" - "), "{text}");
}

// SPDX-License-Identifier: GPL-2.0-only

use std::os::unix::fs::PermissionsExt;

use super::*;
use hetero_core::knowledge::KeptCompany;

#[test]
fn what_is_kept_is_there_when_it_is_opened_again_and_is_for_its_owner_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/knowledge.db");
    let program = StoredProgram {
        key: ProgramKey {
            image: "build:ab".into(),
            args: u32::MAX,
            unit: "a.service".into(),
            uid: 1000,
        },
        name: "cc1".into(),
        runs: 3,
        seen: (10, 20),
        ..StoredProgram::default()
    };
    let mut store = KnowledgeStore::open(&path, "m").unwrap();
    let ids = store.save(&[&program], 30).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
    let folder_of_it = path.parent().unwrap();
    assert_eq!((mode(&path), mode(folder_of_it)), (0o600, 0o700));
    drop(store);
    let mut store = KnowledgeStore::open(&path, "m").unwrap();
    let kept = store.load().unwrap();
    assert_eq!(
        kept,
        [StoredProgram {
            id: ids[0],
            ..program.clone()
        }]
    );
    let other = KnowledgeStore::open(&path, "another machine").unwrap();
    assert!(other.load().unwrap().is_empty());
    // What another process forgets is not written again.
    assert!(store.has_changed().unwrap());
    let mut other = KnowledgeStore::open(&path, "m").unwrap();
    assert_eq!(other.forget(&[ids[0].unwrap()]).unwrap(), 1);
    assert!(store.has_changed().unwrap());
    assert_eq!(store.save(&[&kept[0]], 30).unwrap(), [None]);
    assert!(store.load().unwrap().is_empty());
}

/// As the first version wrote it.
fn of_schema_1(path: &Path) {
    let old = Connection::open(path).unwrap();
    old.execute_batch(&format!(
        "CREATE TABLE machine (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);
         CREATE TABLE program (
           id INTEGER PRIMARY KEY AUTOINCREMENT, machine INTEGER NOT NULL, image TEXT NOT NULL,
           args INTEGER NOT NULL, unit TEXT NOT NULL, uid INTEGER NOT NULL, name TEXT NOT NULL,
           runs INTEGER NOT NULL, first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL,
           known TEXT NOT NULL, UNIQUE (machine, image, args, unit, uid));
         INSERT INTO machine (name) VALUES ('m');
         PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;"
    ))
    .unwrap();
    let mut known = serde_json::to_value(ProgramKnowledge::default()).unwrap();
    known["threads"] = 7.into();
    known.as_object_mut().unwrap().remove("company").unwrap();
    old.execute(
        "INSERT INTO program (machine, image, args, unit, uid, name, runs, first_seen, last_seen, known)
         VALUES (1, 'build:ab', 1, '', 0, 'cc1', 3, 10, 20, ?1)",
        [known.to_string()],
    )
    .unwrap();
    drop(old);
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(path, private).unwrap();
}

#[test]
fn what_an_older_version_has_written_is_taken_over() {
    let folder = tempfile::tempdir().unwrap();
    for (nth, read) in [false, true].into_iter().enumerate() {
        let path = folder.path().join(format!("{nth}.db"));
        of_schema_1(&path);
        let mut store = match read {
            true => KnowledgeStore::open_existing(&path, "m", true)
                .unwrap()
                .unwrap(),
            false => KnowledgeStore::open(&path, "m").unwrap(),
        };
        let kept = store.load().unwrap();
        assert_eq!((kept[0].name.as_str(), kept[0].known.threads), ("cc1", 7));
        assert_eq!(store.machine().unwrap(), StoredMachine::default());
        let told = StoredMachine {
            calibrated: "x\u{1b}".repeat(TOLD),
            events: "P: instructions".into(),
        };
        store.tell(&told).unwrap();
        drop(store);
        let store = KnowledgeStore::open_existing(&path, "m", true)
            .unwrap()
            .unwrap();
        let machine = store.machine().unwrap();
        assert_eq!(machine.events, told.events);
        assert_eq!(machine.calibrated.chars().count(), TOLD);
        assert!(!machine.calibrated.contains('\u{1b}'));
        assert_eq!(store.load().unwrap(), kept);
        let version = number(&store.connection, "user_version").unwrap();
        assert_eq!(version, SCHEMA);
        assert!(!path.with_extension("db.damaged").exists());
    }
}

#[test]
fn curves_have_a_schema_that_older_versions_leave_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let mut store = KnowledgeStore::open(&path, "m").unwrap();
    store
        .connection
        .pragma_update(None, "user_version", 2)
        .unwrap();
    let mut program = StoredProgram::default();
    let mut found = hetero_core::knowledge::ThreadProfile::default();
    found.curves[1] = [hetero_core::knowledge::Sure::of_factor(12.0, 0.01); 8];
    program.known.take(&found, false);
    store.save(&[&program], 30).unwrap();
    drop(store);
    // As one of schema 2 it is brought to the present one, with all that is in it.
    let store = KnowledgeStore::open(&path, "m").unwrap();
    assert_eq!(number(&store.connection, "user_version").unwrap(), SCHEMA);
    let kept = store.load().unwrap();
    let [kept, was] = [&kept[0].known, &program.known].map(|of| of.curve(1));
    assert!(was.iter().all(Option::is_some));
    for (kept, was) in kept.iter().zip(was) {
        let apart = kept.unwrap().factor() - was.unwrap().factor();
        assert!(apart.abs() < 1e-9, "{apart}");
    }
    // One that makes no sense is no reason to forget others, and is not gone by.
    let spoil = "UPDATE program SET known = replace(known, '\"eighths\":8', '\"eighths\":9')";
    assert_eq!(store.connection.execute(spoil, []).unwrap(), 1);
    assert!(store.load().unwrap().is_empty());
}

fn of_user(uid: u32, nth: usize, seen: i64) -> StoredProgram {
    let mut program = StoredProgram::default();
    (program.key.uid, program.key.image) = (uid, nth.to_string());
    program.seen = (seen, seen);
    program
}

#[test]
fn a_clock_that_is_ahead_has_nothing_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.db");
    let now = 2 * OLDEST;
    let programs = [now - OLDEST / 2, now].map(|seen| of_user(0, seen as usize, seen));
    let open = || KnowledgeStore::open(&path, "m").unwrap();
    let mut store = open();
    store.save(&programs.each_ref(), now).unwrap();
    let mut store = open();
    let later = of_user(0, 1, now + 2 * OLDEST);
    for _ in 0..2 {
        store.save(&[&later], now + 2 * OLDEST).unwrap();
        assert_eq!(store.load().unwrap().len(), 3);
    }
    // Once it is right again, what is old goes.
    let then = now + OLDEST / 2 + 10;
    open().save(&[], then).unwrap();
    assert_eq!(store.load().unwrap().len(), 2);
}

#[test]
fn a_clock_that_is_ahead_again_or_behind_has_nothing_forgotten_either() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.db");
    let open = || KnowledgeStore::open(&path, "m").unwrap();
    let now = 50 * OLDEST;
    // Ahead when there was nothing yet, then right, then ahead again.
    for (nth, now) in [2 * now, now, now + DAY, 2 * now + DAY]
        .into_iter()
        .enumerate()
    {
        let mut store = open();
        store.save(&[&of_user(0, nth, now)], now).unwrap();
        assert_eq!(store.load().unwrap().len(), nth + 1);
    }
    let mut store = open();
    let mut late = of_user(0, 9, 7);
    late.id = store.save(&[&late], 7).unwrap()[0];
    store.save(&[], now + 2 * DAY).unwrap();
    late.seen.1 = now + 2 * DAY;
    assert_eq!(store.save(&[&late], late.seen.1).unwrap(), [late.id]);
    assert_eq!(store.load().unwrap().len(), 5);
    // What was seen with no more than a year between is still of an age.
    let years = (0..4).map(|nth| of_user(1, nth, now + nth as i64 * OLDEST));
    for of in years {
        store.save(&[&of], of.seen.1).unwrap();
    }
    let kept = store.load().unwrap();
    let seen = kept.iter().filter(|of| of.key.uid == 1);
    assert_eq!(seen.count(), 2);
}

fn contains(path: &Path, text: &str) -> bool {
    let bytes = fs::read(path).unwrap();
    bytes
        .windows(text.len())
        .any(|part| part == text.as_bytes())
}

fn beside(name: &str) -> ProgramKnowledge {
    let mut known = ProgramKnowledge::default();
    let loss = hetero_core::knowledge::ThreadLoss {
        alone_s: 2.0,
        lost_s: 1.0,
        ..Default::default()
    };
    known.company.lose(name, &loss);
    known
}

#[test]
fn what_is_forgotten_or_written_anew_is_nowhere_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.db");
    let mut store = KnowledgeStore::open(&path, "m").unwrap();
    let mut program = of_user(0, 1, 1);
    program.name = "the-name-before".into();
    program.known = beside("secret-tool");
    program.id = store.save(&[&program], 1).unwrap()[0];
    assert!(contains(&path, "the-name-before"));
    program.name = "of-now".into();
    store.save(&[&program], 2).unwrap();
    assert!(contains(&path, "of-now") && !contains(&path, "the-name-before"));
    // Another machine's is no more private.
    let mut other = KnowledgeStore::open(&path, "other").unwrap();
    program.id = None;
    other.save(&[&program], 1).unwrap();
    assert!(store.forget_beside(|_| false).unwrap().is_empty());
    let gone = store.forget_beside(|name| name == "secret-tool").unwrap();
    assert!(gone.len() == 1 && !contains(&path, "secret-tool"));
    let kept = [store.load().unwrap(), other.load().unwrap()].concat();
    assert_eq!(kept.len(), 2);
    for of in kept {
        assert!(of.known.company.beside.is_empty() && of.known.company != KeptCompany::default());
    }
}

#[test]
fn all_that_is_forgotten_is_all_that_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("k.db");
    let aside = path.with_extension("db.damaged");
    fs::write(&aside, "secret-tool").unwrap();
    let mut store = KnowledgeStore::open(&path, "m").unwrap();
    let mut program = of_user(0, 1, 1);
    program.name = "secret-tool".into();
    let mut other = KnowledgeStore::open(&path, "other").unwrap();
    for of in [&mut other, &mut store] {
        of.save(&[&program], 1).unwrap();
        let (calibrated, events) = ("secret-limits".into(), String::new());
        of.tell(&StoredMachine { calibrated, events }).unwrap();
    }
    store.save(&[&of_user(0, 2, 1)], 1).unwrap();
    let spoil = "UPDATE program SET known = '{}' WHERE image = '2'";
    assert_eq!(store.connection.execute(spoil, []).unwrap(), 1);
    assert_eq!(store.load().unwrap().len(), 1);
    assert_eq!(store.forget_all().unwrap(), 3);
    assert!(!contains(&path, "secret") && !aside.exists());
    // One that runs goes on in the same file, for the same machine.
    other.save(&[&program], 2).unwrap();
    drop((store, other));
    let of = |name| {
        KnowledgeStore::open(&path, name)
            .unwrap()
            .load()
            .unwrap()
            .len()
    };
    assert_eq!((of("other"), of("m")), (1, 0));
    KnowledgeStore::open(&path, "m")
        .unwrap()
        .forget_all()
        .unwrap();
}

#[test]
fn what_a_user_has_beyond_a_quarter_goes_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = KnowledgeStore::open(&folder.path().join("k.db"), "m").unwrap();
    let roots = (0..OF_A_USER + 5).map(|nth| of_user(0, nth, 1));
    // One that takes on its subordinate ids is no other user each time.
    count_users(&store.connection, CountedUsers::of_lines("a:1000:8")).unwrap();
    let theirs = (0..PROGRAMS).map(|nth| of_user(1000 + nth as u32 % 8, nth, 100 + nth as i64));
    let all: Vec<_> = roots.chain(theirs).collect();
    store.save(&all.iter().collect::<Vec<_>>(), 3000).unwrap();
    let kept = store.load().unwrap();
    let of = |uid| kept.iter().filter(|of| of.key.uid == uid).count();
    assert_eq!(of(0), OF_A_USER + 5);
    assert_eq!(kept.len(), PROGRAMS);
    assert_eq!(kept[0].key.image, (PROGRAMS - 1).to_string());
}

#[test]
fn the_number_of_programs_is_bounded_and_those_seen_long_ago_and_seldom_go_first() {
    let folder = tempfile::tempdir().unwrap();
    let mut store = KnowledgeStore::open(&folder.path().join("k.db"), "m").unwrap();
    let now = 2 * OLDEST;
    let programs: Vec<StoredProgram> = (0..PROGRAMS as i64 + 3)
        .map(|nth| {
            let mut program = StoredProgram::default();
            program.key.image = nth.to_string();
            program.seen = (0, now - nth);
            program.runs = 1;
            program
        })
        .collect();
    let mut programs = programs;
    programs[0].seen.1 = now - OLDEST - 1;
    programs.last_mut().unwrap().runs = 40;
    let all: Vec<&StoredProgram> = programs.iter().collect();
    store.save(&all, now).unwrap();
    let kept = store.load().unwrap();
    let has = |nth: usize| kept.iter().any(|of| of.key.image == nth.to_string());
    assert_eq!(kept.len(), PROGRAMS);
    assert!(!has(0) && has(1) && has(PROGRAMS + 2) && !has(PROGRAMS + 1));
    // At the longest that one can be, too, the file has room for all.
    let size = fs::metadata(&store.path).unwrap().size();
    assert!(size < LARGEST / 4, "{size}");
}

// SPDX-License-Identifier: GPL-2.0-only
use super::*;
use hetero_core::interference::InterferenceClass;
use hetero_core::knowledge::{Sure, ThreadLoss};
use hetero_core::testing::task;

/// Where the one that is to be killed keeps what it finds.
const SERVE: &str = "SCX_HETERO_TEST_KNOWLEDGE";

fn found(sf: f64, last: bool) -> ThreadFinding {
    let mut found = ThreadFinding {
        last,
        ..ThreadFinding::default()
    };
    found.profile.sf[1] = Sure::of_factor(sf, 0.005);
    found
}

fn thread(tgid: u32) -> Task {
    Task {
        tgid,
        ..task(0, 0, 0)
    }
}

#[test]
fn what_was_found_of_a_process_is_told_to_the_next_that_runs_the_same_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    assert_eq!(service.known_of(own, 100), None);
    service.take(&thread(own), &found(2.0, true), 100);
    let sf = |known: Option<ThreadProfile>| known.unwrap().sf[1].unwrap();
    assert!((sf(service.known_of(own, 101)).factor() - 2.0).abs() < 1e-9);
    service.save(200, 200);
    let mut next = KnowledgeService::open(&path, "m");
    let sure = sf(next.known_of(own, 300));
    assert!((sure.factor() - 2.0).abs() < 1e-9);
    // With other options it is only like it.
    let key = next.processes[&own].clone();
    let other = ProgramKey {
        args: !key.args,
        ..key.clone()
    };
    assert!(sf(next.recollect(&other)).variance > 3.0 * sure.variance);
    let another_users = ProgramKey {
        uid: !key.uid,
        ..key
    };
    assert!(next.recollect(&another_users).is_none());
    let runs: Vec<u64> = next.programs.values().map(|of| of.program.runs).collect();
    assert_eq!(runs, [3]);
    // What another process forgets is not told, nor written again.
    next.take(&thread(own), &found(2.0, false), 300);
    let mut other = KnowledgeStore::open(&path, "m").unwrap();
    let ids: Vec<i64> = other
        .load()
        .unwrap()
        .iter()
        .filter_map(|of| of.id)
        .collect();
    other.forget(&ids).unwrap();
    next.save(400, 400);
    assert!(next.recollect(&next.processes[&own]).is_none());
    assert!(other.load().unwrap().is_empty());
}

#[test]
fn what_is_no_longer_in_memory_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    for run in 1..=3 {
        // As when there were too many.
        service.programs.clear();
        let known = service.known_of(own, run);
        assert_eq!(known.is_some(), run > 1);
        let thread = Task {
            tid: run as u32,
            ..thread(own)
        };
        service.take(&thread, &found(2.0, true), run);
        service.save(run, run);
    }
    let kept = KnowledgeStore::open(&path, "m").unwrap().load().unwrap();
    assert_eq!(kept.len(), 1);
    assert_eq!((kept[0].runs, kept[0].known.threads), (3, 3));
    assert_eq!(kept[0].seen, (1, 3));
}

#[test]
fn a_thread_that_lives_on_is_written_each_minute_and_counts_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    service.known_of(own, 0);
    let stored = || KnowledgeStore::open(&path, "m").unwrap().load().unwrap();
    for minute in 1..10 {
        service.take(
            &thread(own),
            &found(1.0 + 0.1 * minute as f64, false),
            60 * minute,
        );
        service.save(60 * minute, 60 * minute);
        let known = &stored()[0].known;
        assert_eq!((known.threads, known.sf[1].values), (1, 1.0));
        assert_eq!(service.living, 1);
    }
    assert!((stored()[0].known.sf[1].mean - 1.9f64.ln()).abs() < 1e-9);
    // It ends, which is not heard of; and another one comes.
    service.save(60 * 9 + SILENT + 1, 60 * 9 + SILENT + 1);
    assert_eq!(service.living, 0);
    let other = Task {
        tid: 7,
        ..thread(own)
    };
    service.take(&other, &found(1.9, true), 900);
    service.save(900, 900);
    assert_eq!(stored()[0].known.threads, 2);
}

#[test]
fn threads_live_on_whatever_becomes_of_the_clock() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    service.known_of(own, 1000);
    service.take(&thread(own), &found(2.0, false), 60);
    // A suspend of an hour, or a clock that is set.
    for now in [4600, 10, 1000] {
        service.save(now, 61);
        assert_eq!(service.living, 1);
        service.known_of(own, now);
    }
    let stored = KnowledgeStore::open(&path, "m").unwrap().load().unwrap();
    assert_eq!(stored[0].known.threads, 1);
    let program = &service.programs[&service.processes[&own]].program;
    assert_eq!(program.seen, (1000, 4600));
}

#[test]
fn without_a_store_it_goes_on_and_programs_are_bounded() {
    let mut service = KnowledgeService::open(Path::new("/proc/none/knowledge.db"), "m");
    assert!(service.store.is_none());
    for nth in 0..3 * PROGRAMS as u32 {
        service.make_room();
        let key = ProgramKey {
            args: nth,
            ..ProgramKey::default()
        };
        let mut program = StoredProgram::default();
        program.seen.1 = i64::from(nth);
        let mut served = ServedProgram::new(program);
        served.dirty = true;
        service.programs.insert(key, served);
    }
    assert!(service.programs.len() <= PROGRAMS);
    // From a part on a user's own give way to more of that user's, subordinate ids included.
    service.users = CountedUsers::of_lines("a:1000:8");
    for nth in 0..3 * PROGRAMS as u32 {
        service.make_room();
        let key = ProgramKey {
            args: nth,
            uid: 1000 + nth % 8,
            ..ProgramKey::default()
        };
        let mut program = StoredProgram::default();
        (program.key.uid, program.seen.1) = (key.uid, i64::from(4 * PROGRAMS as u32 + nth));
        service.programs.insert(key, ServedProgram::new(program));
    }
    let of = |uid| {
        let all = service.programs.values();
        all.filter(|of| service.users.of(of.program.key.uid) == uid)
            .count()
    };
    assert!(of(1000) <= 2 * OF_A_USER && of(0) >= PROGRAMS / 2);
    assert!(service.programs.len() <= PROGRAMS);
    service.save(0, 0);
}

#[test]
fn time_lost_is_kept_of_both_programs_and_the_machine_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    service.known_of(own, 0);
    // Another program, as if it had been looked up.
    let key = ProgramKey {
        image: "build:ab".into(),
        ..ProgramKey::default()
    };
    let other = StoredProgram {
        key: key.clone(),
        name: "stream".into(),
        ..StoredProgram::default()
    };
    service
        .programs
        .insert(key.clone(), ServedProgram::new(other));
    service.processes.insert(7, key.clone());
    let loss = |by| {
        Some(ThreadLoss {
            by,
            class: InterferenceClass::Llc,
            alone_s: 2.0,
            lost_s: 1.0,
        })
    };
    let mut found = ThreadFinding::default();
    // The last one is not known.
    (found.losses[0], found.losses[1]) = (loss(7), loss(8));
    service.take(&thread(own), &found, 1);
    service.take(&thread(9), &found, 1);
    let machine = StoredMachine {
        calibrated: "all".into(),
        events: "P: loads".into(),
    };
    service.tell(machine.clone());
    service.save(60, 60);
    let store = KnowledgeStore::open(&path, "m").unwrap();
    assert_eq!(store.machine().unwrap(), machine);
    let kept = store.load().unwrap();
    let of = |is_other: bool| {
        let mut all = kept.iter();
        &all.find(|of| (of.key == key) == is_other)
            .unwrap()
            .known
            .company
    };
    let [beside] = &of(false).beside[..] else {
        panic!("{:?}", of(false));
    };
    assert_eq!((beside.program.as_str(), beside.lost_s), ("stream", 1.0));
    let llc = InterferenceClass::Llc as usize;
    let harms = of(true).harms[llc].next().unwrap().factor();
    assert!((harms - 1.5).abs() < 1e-9, "{harms}");
    assert!(of(true).beside.is_empty() && of(false).suffers[llc].next().is_some());
}

#[test]
fn a_name_that_another_process_forgets_is_not_written_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let own = std::process::id();
    let mut service = KnowledgeService::open(&path, "m");
    service.known_of(own, 1);
    let secret = ProgramKey::default();
    let program = StoredProgram {
        name: "secret-tool".into(),
        ..StoredProgram::default()
    };
    service
        .programs
        .insert(secret.clone(), ServedProgram::new(program));
    service.processes.insert(7, secret.clone());
    let mut lost = found(2.0, false);
    lost.losses[0] = Some(ThreadLoss {
        by: 7,
        class: InterferenceClass::Llc,
        alone_s: 2.0,
        lost_s: 1.0,
    });
    service.take(&thread(own), &lost, 1);
    service.save(60, 60);
    let mut other = KnowledgeStore::open(&path, "m").unwrap();
    let named = |other: &KnowledgeStore| {
        let kept = other.load().unwrap();
        let beside = kept.iter().flat_map(|of| &of.known.company.beside);
        beside.filter(|of| of.program == "secret-tool").count()
    };
    assert_eq!(named(&other), 1);
    let id = service.programs[&secret].program.id.unwrap();
    assert_eq!(other.forget(&[id]).unwrap(), 1);
    other.forget_beside(|name| name == "secret-tool").unwrap();
    // Both have something new of the last minute.
    service.take(&thread(own), &lost, 61);
    service.save(120, 120);
    assert_eq!(named(&other), 0);
    assert!(!service.programs.contains_key(&secret));
    let threads: Vec<u64> = other
        .load()
        .unwrap()
        .iter()
        .map(|of| of.known.threads)
        .collect();
    assert_eq!(threads, [1]);
}

#[test]
fn what_could_not_be_kept_is_once_there_is_room() {
    let folder = tempfile::tempdir().unwrap();
    let (own, place) = (std::process::id(), folder.path().join("kept"));
    std::fs::write(&place, "no folder").unwrap();
    let path = place.join("knowledge.db");
    let mut service = KnowledgeService::open(&path, "m");
    let about = StoredMachine {
        calibrated: "all".into(),
        events: "none".into(),
    };
    service.tell(about.clone());
    service.known_of(own, 100);
    service.take(&thread(own), &found(2.0, false), 100);
    service.save(160, 160);
    assert!(service.complained && service.store.is_none());
    std::fs::remove_file(&place).unwrap();
    service.save(220, 220);
    assert!(!service.complained);
    let store = KnowledgeStore::open(&path, "m").unwrap();
    assert_eq!(store.load().unwrap()[0].known.threads, 1);
    assert_eq!(store.machine().unwrap(), about);
}

#[test]
fn a_disk_that_gets_full_keeps_what_is_there_and_takes_the_rest_later() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let mut service = KnowledgeService::open(&path, "m");
    let found_of = |service: &mut KnowledgeService, images: std::ops::Range<u32>| {
        for image in images {
            let key = ProgramKey {
                image: format!("build:{image:08x}"),
                ..ProgramKey::default()
            };
            let mut program = ServedProgram::new(StoredProgram {
                key: key.clone(),
                seen: (100, 100),
                ..StoredProgram::default()
            });
            program.findings.take(&thread(1), &found(2.0, true), 100);
            program.dirty = true;
            service.programs.insert(key, program);
        }
    };
    let kept = || {
        let store = KnowledgeStore::open_existing(&path, "m", true);
        store.unwrap().unwrap().load().unwrap().len()
    };
    found_of(&mut service, 0..3);
    service.save(160, 160);
    assert_eq!(kept(), 3);
    service.store.as_ref().unwrap().may_grow(false);
    found_of(&mut service, 3..100);
    service.save(220, 220);
    assert!(service.complained);
    assert_eq!(kept(), 3);
    service.store.as_ref().unwrap().may_grow(true);
    service.save(280, 280);
    assert!(!service.complained);
    assert_eq!(kept(), 100);
}

/// Not a test by itself: the service as in a scheduler, but that it writes every few milliseconds, until it is killed.
#[test]
fn serves_until_it_is_killed() {
    let Some(path) = std::env::var_os(SERVE) else {
        return;
    };
    let mut service = KnowledgeService::open(Path::new(&path), "m");
    service.every = Duration::from_millis(3);
    let (tell, messages) = crossbeam::channel::bounded(16);
    let (answers, known) = crossbeam::channel::bounded(16);
    let ends = AtomicBool::new(false);
    let own = std::process::id();
    std::thread::scope(|scope| {
        scope.spawn(|| service.run(&messages, &answers, &ends));
        tell.send(ToService::WhoIs(own)).unwrap();
        assert_eq!(known.recv().unwrap().tgid, own);
        for tid in 1.. {
            let thread = Task { tid, ..thread(own) };
            let found = ToService::Found(thread, found(2.0, true));
            tell.send(found).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

#[test]
fn one_that_is_killed_leaves_all_but_what_was_not_written_yet() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("knowledge.db");
    let stored = || {
        let mut all = KnowledgeStore::open(&path, "m").unwrap().load().unwrap();
        all.pop().map_or(0, |of| of.known.threads)
    };
    let mut before = stored();
    for nth in 0..6 {
        let name = module_path!().split_once("::").unwrap().1;
        let mut killed = std::process::Command::new(std::env::current_exe().unwrap())
            .args([&format!("{name}::serves_until_it_is_killed"), "--exact"])
            .env(SERVE, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // What a look finds has been written, and stays whatever it is doing when it is killed.
        let seen = loop {
            assert!(killed.try_wait().unwrap().is_none(), "it has ended");
            match stored() {
                seen if seen > before + 10 * nth => break seen,
                _ => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        killed.kill().unwrap();
        killed.wait().unwrap();
        before = stored();
        assert!(before >= seen, "{before} of {seen}");
        // The next one knows it.
        let mut next = KnowledgeService::open(&path, "m");
        let known = next.known_of(std::process::id(), now()).unwrap();
        assert!((known.sf[1].unwrap().factor() - 2.0).abs() < 1e-9);
    }
    let set_aside = folder.path().join("knowledge.db.damaged");
    assert!(!set_aside.exists());
}

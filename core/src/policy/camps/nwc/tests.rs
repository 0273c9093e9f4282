// SPDX-License-Identifier: GPL-2.0-or-later
//! Entry, bounds and exits of NWC mode on plain values.

use super::*;

const MS: u64 = 1_000_000;
const LIMITS: Thresholds = Thresholds {
    low_btr: 10.0,
    high_btr: 100.0,
};

fn id(slot: u32) -> TaskId {
    TaskId {
        slot,
        generation: 1,
    }
}

/// Thread `slot` on the CPU of that number; 0 to 3 are big.
fn thread(slot: u32, btr: f64) -> NwcThread {
    NwcThread {
        task: id(slot),
        cpu: slot,
        on_big: slot < 4,
        may_move: true,
        intervals: 100,
        hit_rate: 1.0,
        learned: 0,
        total_hits: 0,
        total_learned: 0,
        far_ahead: false,
        btr,
    }
}

fn needy(slot: u32, btr: f64) -> NwcThread {
    NwcThread {
        hit_rate: 0.5,
        ..thread(slot, btr)
    }
}

fn cpus(threads: &[NwcThread]) -> Vec<BusyCpu> {
    let cpu = |thread: &NwcThread| BusyCpu {
        cpu: thread.cpu,
        llc: usize::from(!thread.on_big),
        core: thread.cpu,
        btr: thread.btr,
        exempt: false,
    };
    threads.iter().map(cpu).collect()
}

fn view<'a>(ms: u64, threads: &'a [NwcThread], cpus: &'a [BusyCpu]) -> NwcView<'a> {
    NwcView {
        now_ns: ms * MS,
        threads,
        cpus,
        limits: LIMITS,
        shared: true,
    }
}

fn step_with(nwc: &mut Nwc, ms: u64, threads: &[NwcThread], cpus: &[BusyCpu]) -> Vec<Wish> {
    let mut wishes = Vec::new();
    nwc.step(&view(ms, threads, cpus), &mut wishes);
    wishes
}

fn step(nwc: &mut Nwc, ms: u64, threads: &[NwcThread]) -> Vec<Wish> {
    step_with(nwc, ms, threads, &cpus(threads))
}

/// One that has been looking on for long enough to have credit.
fn ready() -> Nwc {
    let mut nwc = Nwc::new(NwcRules::default());
    step(&mut nwc, 0, &[]);
    step(&mut nwc, 100_000, &[]);
    nwc
}

#[test]
fn entry_takes_a_low_hit_rate_and_no_inserted_samples_over_k_intervals() {
    let enters = |thread: NwcThread| {
        let mut nwc = ready();
        step(&mut nwc, 100_000, &[thread]);
        nwc.thread() == Some(thread.task)
    };
    let base = needy(1, 50.0);
    assert!(enters(base));
    assert!(!enters(NwcThread {
        hit_rate: 0.8,
        ..base
    }));
    assert!(!enters(NwcThread { learned: 1, ..base }));
    assert!(
        !enters(NwcThread {
            intervals: 19,
            ..base
        }),
        "k intervals first"
    );
    let aggressor = NwcThread {
        btr: 100.0,
        intervals: 99,
        ..base
    };
    assert!(!enters(aggressor), "an aggressor, and young");
    assert!(enters(NwcThread {
        intervals: 100,
        ..aggressor
    }));
    let mut with_caches_of_their_own = ready();
    let (threads, cpus) = ([aggressor], cpus(&[aggressor]));
    let look = NwcView {
        shared: false,
        ..view(100_000, &threads, &cpus)
    };
    with_caches_of_their_own.step(&look, &mut Vec::new());
    assert_eq!(with_caches_of_their_own.thread(), Some(aggressor.task));
    assert!(
        !enters(NwcThread {
            far_ahead: true,
            ..base
        }),
        "far ahead"
    );
    assert!(
        !enters(NwcThread {
            may_move: false,
            ..base
        }),
        "affinity"
    );
}

#[test]
fn one_thread_at_a_time_the_one_that_knows_least() {
    let mut nwc = ready();
    let mut worst = needy(2, 50.0);
    worst.hit_rate = 0.1;
    let threads = [needy(1, 50.0), worst];
    step(&mut nwc, 100_000, &threads);
    assert_eq!(nwc.thread(), Some(id(2)));
    step(&mut nwc, 100_050, &threads);
    assert_eq!((nwc.thread(), nwc.episodes()), (Some(id(2)), 1));
}

#[test]
fn it_is_swapped_with_the_thread_of_the_highest_btr() {
    let mut nwc = ready();
    let threads = [
        thread(0, 30.0),
        thread(1, 90.0),
        thread(2, 40.0),
        needy(5, 50.0),
    ];
    let wishes = step(&mut nwc, 100_000, &threads);
    let swap = Wish::SwapIn {
        thread: id(5),
        partner: Some(id(1)),
    };
    assert_eq!(wishes, [swap]);
    assert_eq!(step(&mut nwc, 100_050, &threads), [], "asked for once");
}

#[test]
fn only_as_many_cores_are_idled_as_it_takes_and_for_100_ms() {
    let mut nwc = ready();
    let threads = [
        needy(0, 30.0),
        thread(1, 60.0),
        thread(2, 70.0),
        thread(3, 20.0),
    ];
    let for_ms = Duration::from_millis;
    let park = |ms: u64| [1, 2].map(|cpu| Wish::Park(cpu, for_ms(ms)));
    // 30 + 60 + 20 is still too much, 30 + 20 is not.
    assert_eq!(step(&mut nwc, 100_000, &threads), park(100));
    let held = [threads[0], threads[3]];
    assert_eq!(step(&mut nwc, 100_040, &held), []);
    assert_eq!(
        step(&mut nwc, 100_050, &held),
        park(100),
        "before they are back"
    );
    // A third one turns up.
    let more = [threads[0], thread(3, 80.0)];
    let three = [1, 2, 3].map(|cpu| Wish::Park(cpu, for_ms(100)));
    assert_eq!(step(&mut nwc, 100_060, &more), three);
    // At the end they are let go.
    assert_eq!(
        step(&mut nwc, 100_070, &[]),
        [1, 2, 3].map(|cpu| Wish::Park(cpu, for_ms(0)))
    );
    // Small cores are not idled where their cache is another one.
    let mut nwc = ready();
    let threads = [needy(0, 30.0), thread(5, 900.0)];
    assert_eq!(step(&mut nwc, 100_000, &threads), []);
    assert_eq!(nwc.thread(), Some(id(0)));
    // Where they share it, an aggressor there is one like others.
    let mut nwc = ready();
    let mut busy = cpus(&threads);
    busy[1].llc = 0;
    let wishes = step_with(&mut nwc, 100_000, &threads, &busy);
    assert_eq!(wishes, [Wish::Park(5, for_ms(100))]);
}

#[test]
fn what_must_not_be_held_is_not_and_then_nothing_else_is_either() {
    let mut nwc = ready();
    let threads = [needy(0, 30.0), thread(1, 60.0), thread(2, 200.0)];
    let mut busy = cpus(&threads);
    busy[2].exempt = true;
    assert_eq!(step_with(&mut nwc, 100_000, &threads, &busy), []);
}

#[test]
fn a_busy_sibling_is_idled_too() {
    let mut nwc = ready();
    let threads = [needy(0, 30.0), thread(1, 0.0)];
    let mut busy = cpus(&threads);
    busy[1].core = 0;
    let wishes = step_with(&mut nwc, 100_000, &threads, &busy);
    assert_eq!(wishes, [Wish::Park(1, Duration::from_millis(100))]);
}

#[test]
fn it_ends_when_enough_was_learned_and_the_hit_rate_is_good() {
    let mut nwc = ready();
    let mut it = needy(0, 30.0);
    step(&mut nwc, 100_000, &[it]);
    for (learned, hits) in [(1, 0), (2, 1)] {
        it.intervals += 1;
        (it.total_learned, it.total_hits, it.learned) = (learned, hits, learned);
        step(&mut nwc, 100_000 + u64::from(learned) * 50, &[it]);
        assert_eq!(nwc.thread(), Some(id(0)));
    }
    it.intervals += 1;
    (it.total_learned, it.total_hits) = (3, 2);
    step(&mut nwc, 100_150, &[it]);
    assert_eq!((nwc.thread(), nwc.last_exit()), (None, Some(Exit::Learned)));
}

#[test]
fn it_ends_when_the_thread_blocks_or_ends() {
    let mut nwc = ready();
    step(&mut nwc, 100_000, &[needy(0, 30.0)]);
    step(&mut nwc, 100_050, &[thread(1, 30.0)]);
    assert_eq!((nwc.thread(), nwc.last_exit()), (None, Some(Exit::Gone)));
}

#[test]
fn episodes_are_bounded_and_failures_back_off_exponentially() {
    let mut nwc = ready();
    let it = [needy(0, 30.0)];
    let mut starts = Vec::new();
    let mut last = 0;
    for ms in (100_000..400_000).step_by(50) {
        step(&mut nwc, ms, &it);
        if nwc.episodes() > last {
            last = nwc.episodes();
            starts.push(ms);
        }
        if nwc.thread().is_some() {
            assert!(ms - starts.last().unwrap() <= 500);
        }
    }
    let gaps: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.len() >= 5, "{gaps:?}");
    let (first, last) = (gaps[0], *gaps.last().unwrap());
    assert!(gaps.is_sorted() && last >= 16 * first, "{gaps:?}");
    assert_eq!(nwc.last_exit(), Some(Exit::GivenUp));
}

#[test]
fn at_most_a_twentieth_of_the_time_whoever_asks() {
    let mut nwc = Nwc::new(NwcRules::default());
    let mut ms = 0;
    let mut stays = 0;
    while ms < 1_000_000 {
        // Ever new threads, so that back-off stops none of them.
        let slot = (ms / 600) as u32;
        let mut it = needy(0, 30.0);
        it.task = id(slot);
        step(&mut nwc, ms, &[it]);
        ms += 50;
        stays += u64::from(nwc.thread().is_some());
        // And one episode at the beginning, lest short runs never learn, and a look late.
        let most = 550.0 + 0.05 * ms as f64;
        assert!(nwc.spent_ns() as f64 <= most * MS as f64);
    }
    assert!(stays > 0 && nwc.spent_ns() > 20_000 * MS);
}

#[test]
fn a_pause_in_an_episode_costs_no_more_than_the_episode() {
    let mut nwc = ready();
    let threads = [needy(1, 50.0), thread(2, 500.0)];
    step(&mut nwc, 100_000, &threads);
    assert_eq!(nwc.thread(), Some(id(1)));
    // Energy was saved for an hour.
    step(&mut nwc, 3_700_000, &threads);
    assert_eq!(nwc.thread(), None);
    assert!(nwc.spent_ns() <= nwc.rules().episode_ns);
    step(&mut nwc, 3_730_000, &threads);
    assert_eq!(nwc.thread(), Some(id(1)), "credit {}", nwc.credit_ns);
}

#[test]
fn a_thread_that_waits_does_not_make_its_cpu_two() {
    let cpu = |cpu: u32, btr: f64, exempt: bool| BusyCpu {
        cpu,
        llc: 0,
        core: cpu,
        btr,
        exempt,
    };
    let mut cpus = vec![
        cpu(2, 9.0, true),
        cpu(1, 60.0, false),
        cpu(1, 50.0, false),
        cpu(2, 8.0, false),
    ];
    each_cpu_once(&mut cpus);
    let told: Vec<_> = cpus.iter().map(|it| (it.cpu, it.btr, it.exempt)).collect();
    assert_eq!(told, [(1, 60.0, false), (2, 9.0, true)]);
}

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Hardware counters, per task. The agent opens the events once per CPU; here they
 * are read around each task's run, and what they advanced by is the task's.
 *
 * A stretch is what a task runs between two readings. It is believed only if
 * every event counted all through it: another user of the counters, a watchdog
 * or hotplug make an event pause, and reading it still succeeds then.
 */
#ifndef __HETERO_COUNTERS_BPF_H
#define __HETERO_COUNTERS_BPF_H

#include "state.bpf.h"
#include "estimate.bpf.h"

/* Written by the agent before loading; without events nothing here costs a thing. */
const volatile u8 set_events[MAX_CORE_TYPES][MAX_SETS];	/* how many, of each set */
const volatile u64 sample_ns;	/* run time that a sample is made of; 0: nothing is counted */
/* Tasks that use less of the time in which none keeps them waiting are not counted, in 1/1024. */
const volatile u32 min_utilisation = 51;
#define UTILISATION_WINDOW_NS	(200ULL * 1000 * 1000)
/* So many of them without use, and a task is not counted. */
#define IDLE_WINDOWS		2

/* Which set is open on the CPUs of a type; the agent rotates them. */
u8 current_set[MAX_CORE_TYPES];

/* Event `k` of set `s` on a CPU has the index (s * MAX_EVENTS + k) * nr_cpu_ids + cpu. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, MAX_EVENTS);	/* the agent makes it larger */
	__type(key, u32);
	__type(value, u32);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} samples SEC(".maps");

/* The last reading on a CPU: the end of one task's stretch, and so the start of the next. */
struct reading {
	u64 at;		/* the run queue's clock, which is the same all through one switch */
	u32 set;
	u32 whole;	/* all events could be read: nothing begins or ends with another one */
	struct bpf_perf_event_value values[MAX_EVENTS];
};

struct reading readings[MAX_CPUS];

static u32 events_of(u32 type, u32 set)
{
	const volatile u8 *nr = MEMBER_VPTR(set_events, [type][set]);

	return nr ? *nr : 0;
}

static u32 set_of(u32 type)
{
	u8 *set = MEMBER_VPTR(current_set, [type]);

	return set ? *set : 0;
}

/*
 * Reads all events of @set on this CPU. Writes the advance since the last reading
 * to @deltas, if given, and tells whether all of them counted all the time. They cannot be read from
 * another CPU, from where a change of nice or affinity ends a task's stretch.
 */
static bool read_events(struct reading *r, s32 cpu, u32 set, u32 nr, u64 *deltas)
{
	bool valid = r->whole;
	u32 k;

	r->at = 0;
	r->set = set;
	r->whole = false;
	bpf_for(k, 0, nr) {
		struct bpf_perf_event_value now = {}, *last = MEMBER_VPTR(r->values, [k]);
		u64 enabled;

		if (!last)
			break;
		if (bpf_perf_event_read_value(&events, (set * MAX_EVENTS + k) * nr_cpu_ids + cpu,
					      &now, sizeof(now)))
			return false;
		enabled = now.enabled - last->enabled;
		if (works(MECHANISM_VALIDITY) &&
		    (!enabled || now.running - last->running != enabled))
			valid = false;
		if (deltas && k < MAX_EVENTS)
			deltas[k] = now.counter - last->counter;
		*last = now;
	}
	r->whole = true;
	return valid;
}

/* A task falls asleep, or wakes up. */
static void note_sleep(struct task_ctx *tctx, bool asleep)
{
	u64 now;

	if (!sample_ns)
		return;
	now = scx_bpf_now();
	if (asleep)
		tctx->slept_at = now;
	else if (tctx->slept_at && vtime_before(tctx->slept_at, now))	/* each CPU's clock is its own */
		tctx->slept_ns += now - tctx->slept_at;
}

/*
 * Does a task use enough CPU to be worth counting? Looked at anew several times a
 * second. Time that it waited is no time that it left unused: on a crowded machine
 * every task has little. One long sleep says nothing yet; it takes two in a row, or
 * what a newcomer does after it slept once would be missing.
 */
static bool is_busy(struct task_ctx *tctx)
{
	u64 ran = tctx->run_ns - tctx->window_run_ns;
	u64 passed = ran + tctx->slept_ns - tctx->window_slept_ns;

	if (!works(MECHANISM_CUT_OFF))
		return true;
	if (passed >= UTILISATION_WINDOW_NS) {
		if (ran * 1024 >= passed * min_utilisation)
			tctx->idle_windows = 0;
		else if (tctx->idle_windows < IDLE_WINDOWS)
			tctx->idle_windows++;
		tctx->window_run_ns = tctx->run_ns;
		tctx->window_slept_ns = tctx->slept_ns;
	} else if (ran * 1024 >= UTILISATION_WINDOW_NS * min_utilisation) {
		/* Whatever follows, it has used its share of this window. */
		tctx->idle_windows = 0;
	}
	return tctx->idle_windows < IDLE_WINDOWS;
}

/*
 * A task begins a stretch. From its first one on, before it has a slot, or what
 * it does until then would be missing: samples are not due before it has one.
 */
static void start_counting(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	struct reading *r;
	u32 type, set, nr;

	if (!sample_ns)
		return;
	tctx->counting = false;
	type = type_of_cpu(cpu);
	set = set_of(type);
	nr = events_of(type, set);
	r = MEMBER_VPTR(readings, [(u32)cpu]);
	if (!nr || !r || !is_busy(tctx))
		return;
	/*
	 * The stretch before ended at this very switch: its end is our start. The
	 * kernel stamps exec_start with the run queue's clock both as one task leaves
	 * and as the next one comes; tasks of other classes and those not counted come
	 * between with a later clock. scx_bpf_now() would not do: the kernel forgets
	 * its value while it balances.
	 */
	if (works(MECHANISM_CHAIN)) {
		if (!r->whole || r->at != p->se.exec_start || r->set != set)
			read_events(r, cpu, set, nr, NULL);
		if (!r->whole)
			return;
	}
	tctx->counting = true;
	tctx->counting_set = set;
	tctx->count_from = p->se.sum_exec_runtime;
}

/* The next sample begins. A task that spins still does so as it begins. */
static void forget_counts(struct task_ctx *tctx, struct account *a)
{
	u32 k;

	a->run_ns = 0;
	a->discarded_ns = 0;
	a->spun = tctx->spinning;
	bpf_for(k, 0, MAX_EVENTS) {
		if (k < MAX_EVENTS)
			a->counts[k] = 0;
	}
}

static void send_sample(struct task_struct *p, struct task_ctx *tctx, u32 type, bool last)
{
	struct account *a = MEMBER_VPTR(tctx->accounts, [type]);
	struct task_slot *s = slot_of(tctx->slot);
	u32 *inverse = s ? MEMBER_VPTR(s->inv_slowdown, [type]) : NULL;
	struct task_sample *sample;
	u64 total;
	s64 sf, ef;

	if (!a || !s || !inverse)
		return;
	total = a->run_ns + a->discarded_ns;
	/* What it retired while it waited actively says nothing of its work. */
	sf = a->spun ? 0 : estimate(a, forest_of(type, ESTIMATED_SF));
	ef = a->spun ? 0 : estimate(a, forest_of(type, ESTIMATED_EF));
	if (sf > 0)
		s->sf = sf < (u32)-1 ? sf : (u32)-1;
	sample = bpf_ringbuf_reserve(&samples, sizeof(*sample), 0);
	if (sample) {
		sample->tid = p->pid;
		sample->tgid = p->tgid;
		sample->slot = tctx->slot;
		sample->generation = s->generation;
		sample->at = bpf_ktime_get_ns();
		sample->run_ns = a->run_ns;
		sample->discarded_ns = a->discarded_ns;
		sample->core_type = type;
		sample->set = a->set;
		sample->last = last;
		sample->spun = a->spun;
		sample->inv_slowdown = *inverse;
		sample->sf = sf;
		sample->ef = ef;
		__builtin_memcpy(sample->counts, a->counts, sizeof(sample->counts));
		/* The agent looks at them when it decides; waking it for each is waste. */
		bpf_ringbuf_submit(sample, BPF_RB_NO_WAKEUP);
	} else {
		count_stat(STAT_SAMPLES_LOST);
	}
	/* What was too much of this sample is taken off the next: on average they are exact. */
	a->due_ns = sample_ns - (total > a->due_ns ? (total - a->due_ns) % sample_ns : 0);
	forget_counts(tctx, a);
}

/* A stretch ends. Global: the verifier follows it once, and not in every place that calls it. */
__noinline int end_stretch(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull,
			   s32 cpu)
{
	struct reading *r = MEMBER_VPTR(readings, [(u32)cpu]);
	u32 type = type_of_cpu(cpu), set = tctx->counting_set, nr = events_of(type, set), k;
	struct account *a = MEMBER_VPTR(tctx->accounts, [type]);
	u64 run_ns = p->se.sum_exec_runtime - tctx->count_from;
	u64 deltas[MAX_EVENTS] = {};
	bool valid;

	if (!r || !a)
		return 0;
	tctx->count_from = p->se.sum_exec_runtime;
	if (a->set != set) {
		if (a->run_ns) {
			send_sample(p, tctx, type, false);
			/* Without a slot it was not sent, and counts of two sets do not add up. */
			forget_counts(tctx, a);
		}
		a->set = set;
	}
	valid = read_events(r, cpu, set, nr, deltas);
	r->at = p->se.exec_start;
	if (!run_ns)
		return 0;
	if (valid && set == set_of(type)) {
		a->run_ns += run_ns;
		bpf_for(k, 0, MAX_EVENTS) {
			if (k < MAX_EVENTS)
				a->counts[k] += deltas[k];
		}
	} else {
		a->discarded_ns += run_ns;
		count_stat(STAT_STRETCHES_DISCARDED);
	}
	count_stat(STAT_STRETCHES);
	if (!a->due_ns)
		a->due_ns = sample_ns;
	if (a->run_ns + a->discarded_ns >= a->due_ns)
		send_sample(p, tctx, type, false);
	return 0;
}

static void stop_counting(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	if (!sample_ns || !tctx->counting)
		return;
	end_stretch(p, tctx, cpu);
	tctx->counting = false;
}

/*
 * A task that is alone on its CPU never stops: look after it from the tick. The
 * counters are read only when a sample is due.
 */
static void tick_counting(struct task_struct *p, struct task_ctx *tctx, s32 cpu)
{
	u32 type = type_of_cpu(cpu);
	struct account *a = MEMBER_VPTR(tctx->accounts, [type]);
	u64 due;

	if (!sample_ns || !works(MECHANISM_TICK) || !a)
		return;
	if (!tctx->counting || tctx->counting_set != set_of(type)) {
		stop_counting(p, tctx, cpu);
		start_counting(p, tctx, cpu);
		return;
	}
	due = a->due_ns ? a->due_ns : sample_ns;
	if (a->run_ns + a->discarded_ns + (p->se.sum_exec_runtime - tctx->count_from) < due)
		return;
	stop_counting(p, tctx, cpu);
	start_counting(p, tctx, cpu);
}

/* What an ending task has left: every event that it caused is in some sample. Global, as end_stretch() is. */
__noinline int flush_counting(struct task_struct *p __arg_trusted, struct task_ctx *tctx __arg_nonnull)
{
	u32 type;

	if (!sample_ns || !works(MECHANISM_FLUSH))
		return 0;
	bpf_for(type, 0, nr_types) {
		struct account *a = MEMBER_VPTR(tctx->accounts, [type]);

		if (a && a->run_ns)
			send_sample(p, tctx, type, true);
	}
	return 0;
}

#endif /* __HETERO_COUNTERS_BPF_H */

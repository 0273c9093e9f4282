/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * All that the BPF half remembers: the machine as the agent described it, one
 * context per CPU, per queue ("domain") and per task, and the table of task
 * slots.
 */
#ifndef __HETERO_STATE_BPF_H
#define __HETERO_STATE_BPF_H

#include "intf.h"
#include "arith.h"

/*
 * A task is latency-sensitive ("brief") if it runs for less than this, on average, each time that it
 * wakes up: something waits for the answer, not for the work. In ns of the fastest core type: a frame
 * of 3 ms there is as brief where it takes 5 ms.
 */
#define LATENCY_BURST_NS	(4ULL * 1000 * 1000)

/*
 * The agent goes first until its threads together have run for so long within such a time. Beside
 * hundreds of threads a CPU it would wait for seconds, were it put aside in the midst of a look at them.
 */
#define AGENT_FIRST_NS	(100ULL * 1000 * 1000)
#define AGENT_WINDOW_NS	(200ULL * 1000 * 1000)

/* A task gets a slot in the table once it has run for this long in all. */
#define SLOT_AFTER_NS		(5ULL * 1000 * 1000)

/* Load is evened out between queues at most once in this time per queue. */
#define ROTATE_INTERVAL_NS	(40ULL * 1000 * 1000)

/*
 * The machine, written by the agent before loading. A domain is a set of CPUs
 * of one core type that share a cache; it has a queue of its own, and the
 * domain's index is the queue's id.
 */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_present = 1;	/* CPUs that there are, of those that may be */
const volatile u32 nr_types = 1;
const volatile u32 nr_domains = 1;
const volatile u32 nr_fast_cpus;	/* those of the fastest type */
const volatile u32 cpu_domain[MAX_CPUS];
const volatile s32 cpu_sibling[MAX_CPUS];	/* another thread of the core, or -1 */
const volatile bool has_smt;			/* some core has one */
const volatile u8 cpu_type[MAX_CPUS];
const volatile u8 domain_type[MAX_DOMAINS];
const volatile u32 domain_nr_cpus[MAX_DOMAINS];
/* Where an idle CPU of a domain looks for work: its own queue first. */
const volatile u8 steal_order[MAX_DOMAINS][MAX_DOMAINS];
/* In which order idle CPUs are sought, by hint; the last row is "no hint". NO_TYPE ends it. */
const volatile struct tier tiers[MAX_CORE_TYPES + 1][MAX_TIERS];

/* What stands in for a measured slowdown: 1/slowdown on each type, Q16. */
const volatile u32 static_inv_slowdown[MAX_CORE_TYPES];
/* The agent's own process, which must never wait for those it schedules. */
const volatile u32 agent_tgid;

u64 slice_ns = 5ULL * 1000 * 1000;
/* The core type to fill first while energy is saved; else NO_TYPE: the fastest. */
u32 filled_first = NO_TYPE;
/* Its policy is for even progress: see takes_back() in turn.bpf.h. */
u32 hosts_first;

/* A bit for each part that is left out, to see its test fail; the verifier drops the branch. */
const volatile u64 without;

static bool works(enum mechanism part)
{
	return !(without >> part & 1);
}

/* CPUs beyond the machine (offline, or hot-plugged since) have no domain. */
#define NO_DOMAIN	MAX_DOMAINS

/* Queue of the tasks that may run on one CPU only. */
#define CPU_DSQ(cpu)	((u64)MAX_DOMAINS + (cpu))

/*
 * Behind a call of a global function in a loop. On a machine with one domain Linux 6.18 to 7.0 took what the pass before
 * had left in the registers of its arguments for something that matters, and refused the program ("verifier bug: global
 * subprog unexpected regs", EFAULT). So something is put there.
 */
#ifdef __bpf__
#define FORGET_ARGUMENTS() \
	asm volatile("r1 = 0\n r2 = 0\n r3 = 0\n r4 = 0\n r5 = 0" ::: "r1", "r2", "r3", "r4", "r5")
#else
#define FORGET_ARGUMENTS()
#endif

/*
 * Tasks waiting in the queues are counted before the look for an idle CPU,
 * and looked at after a CPU was marked idle: whichever comes second sees the
 * other, so no task is left waiting beside an idle CPU.
 */
struct domain_ctx {
	u64 weight;		/* shares of its runnable tasks, pinned ones included */
	u64 pinned_weight;	/* of those that may run on one CPU only */
	s64 surplus;		/* by how much they would weigh more, were it for nice alone */
	u64 nr_waiting;
	u32 moved_in;		/* some wait here that are not counted here, perhaps */
	u32 nr_taken;		/* CPUs, by another scheduling class */
	u64 waiting_since;	/* when the queue was empty last */
	u64 computed_at;	/* when something that may be preempted was seen to run here */
	u64 rotated_at;
};

struct cpu_ctx {
	u64 pinned_weight;
	u64 nr_waiting;		/* in its own queue */
	u32 moved_in;		/* some wait there that are not counted, perhaps */
	u64 parked_until;	/* runs only what must not wait until then; ns, monotonic */
	u8 holds;		/* tasks, in its parking queue, perhaps */
	u8 is_idle;
	u8 taken;		/* by another scheduling class, as far as is known */
	u32 nr_empty;		/* times that it found nothing to do */
	u32 slot;		/* of the task that runs here, or ran last */
	u64 shared_at;		/* when its task looked last for one to trade places with */
	u32 share;		/* of what runs here */
	u32 preemptible;	/* may a brief task preempt that? */
	u64 preempted_at;	/* when one did so last */
	u32 soon_free;		/* one that mostly runs for a moment */
	u32 perf;		/* asked for, of PERF_ONE */
	u32 perf_wish;		/* how busy it is */
	u32 perf_timer_runs;
	u64 perf_at;		/* when that was looked at last, and busy_ns then */
	u64 perf_busy_ns;
	u64 stats[NR_HETERO_STATS];
	u64 busy_ns[MAX_CORE_TYPES];
};

/*
 * Runnable shares of the tasks that may use the same few CPUs, by a hash of these.
 * Two sets that meet in one place are taken for more crowded than they are.
 */
#define NR_CPU_SETS	1024
#define ANY_CPU		0

struct domain_ctx domain_ctxs[MAX_DOMAINS];
u64 cpu_set_weights[NR_CPU_SETS];
struct cpu_ctx cpu_ctxs[MAX_CPUS];

/* Of domains of which another scheduling class has all CPUs. */
u32 nr_lost_domains;

/* How far the clock of virtual time is ahead of the real one, ns; see arith.h. */
s64 clock_offset;

/* How many tasks get a slot; fewer than there are only in tests. */
const volatile u32 nr_slots = MAX_SLOTS;

/* The largest amp_progress seen: where newcomers start (CAMPS, section 4.3). */
u64 max_progress;
u32 nr_slots_used;		/* slots below this index have been handed out */
u32 slots_full;			/* none is free: no task tries until one is given back */

struct task_slot slots[MAX_SLOTS] SEC(".bss.slots");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, MAX_SLOTS);
	__type(value, u32);
} free_slots SEC(".maps");

/* Slots by tid, as the scheduler before this one left them; only while this one attaches. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_SLOTS);
	__type(key, u32);
	__type(value, u32);
} carried_slots SEC(".maps");

u32 nr_carried;

#define NO_CPU		(-1)
#define NO_PROCESS	MAX_PROCESSES

/* What a task's samples on one core type are made of, until the next is due. */
struct account {
	u64 run_ns;
	u64 discarded_ns;
	u64 due_ns;		/* of both together; 0: not set yet */
	u64 counts[MAX_EVENTS];
	u32 set;
	u32 spun;		/* it waited actively at some look */
};

struct task_ctx {
	u64 exec_seen;		/* sum_exec_runtime already charged */
	u64 charged_at;		/* when that was, see at_most_since() */
	u64 vtime;		/* p->scx.dsq_vtime is its deadline */
	u64 run_ns;		/* in all */
	u32 slot;		/* index into slots, or NO_SLOT */
	u32 session;		/* the id of its session, while it has no slot */
	u32 weight;		/* by nice; 1024 is nice 0 */
	u32 rule_weight;	/* of its slot, as last seen; 0: none yet */
	u32 share;		/* what it competes with, see cgroup.bpf.h */
	u32 counted_share;	/* what the domain was told; 0 if not counted */
	s32 counted_surplus;
	u32 process;		/* index into process_ctxs, or NO_PROCESS */
	u32 cgroup;		/* index into cgroup_ctxs */
	u32 cgroup_generation;
	u32 cgroup_share;	/* what the cgroup was told; 0 if not counted */
	u32 domain;		/* whose weight and queue it is in */
	s32 pinned_cpu;		/* the one CPU that it may use, or NO_CPU */
	u16 cpu_set;		/* where those with its affinity are counted, or ANY_CPU */
	u16 nr_cpus_allowed;
	s32 claimed_cpu;	/* where the next enqueue sends it, or NO_CPU */
	u64 allowed_of;		/* CPUs of each domain, see allowed_in(); all set if it may use all or one */
	u8 allowed_types;	/* as in its slot */
	u8 is_agent;
	u8 goes_first;		/* runs by the agent's allowance */
	u8 competes;		/* for CPUs: counted wherever runnable tasks are */
	u8 waiting;		/* counted in nr_waiting of its queue */
	u8 upgrade;		/* tick saw a better idle CPU */
	u8 swap_ticks;		/* that it has had since a swap waits for it to leave its CPU */
	u8 counting;		/* a stretch has begun */
	u8 counting_set;
	u8 idle_windows;	/* in a row in which it used too little CPU to be counted */
	u64 work_ns;		/* run_ns as the fastest core type would take for it */
	u64 burst_ns;		/* mean work_ns between two sleeps */
	u64 woke_at_ns;		/* run_ns and work_ns when it last woke up */
	u64 woke_at_work_ns;
	u64 rcu_since;		/* when it was first preempted inside the RCU read-side section, or 0 */
	u8 spinning;		/* at the last look */
	u64 count_from;		/* sum_exec_runtime when the stretch began */
	u64 slept_at;		/* when it fell asleep last */
	u64 slept_ns;		/* in all */
	u64 window_run_ns;	/* run_ns and slept_ns when is_busy() looked last */
	u64 window_slept_ns;
	u64 held_since;		/* when it began to wait for its session's allotment; 0: not since it ran last */
	u64 spin_word;		/* address in its memory, or 0; see spin.bpf.h */
	u64 spin_exec_id;	/* self_exec_id when it was registered */
	struct account accounts[MAX_CORE_TYPES];
};

static const struct task_ctx newcomer = {
	.slot = NO_SLOT,
	.domain = NO_DOMAIN,
	.pinned_cpu = NO_CPU,
	.claimed_cpu = NO_CPU,
};

/* Outlives a restart: see src/scheduler/storage.rs. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_ctx);
} task_ctxs SEC(".maps");

/*
 * A place in one of these tables that was given back, first in, first out, or else one never used;
 * @most if there is none left.
 */
static __always_inline u32 take_place(void *given_back, u32 *nr_used, u32 most)
{
	u32 index = most;

	if (!bpf_map_pop_elem(given_back, &index))
		return index;
	if (*nr_used >= most)
		return most;
	index = __sync_fetch_and_add(nr_used, 1);
	return index < most ? index : most;
}

static struct task_ctx *task_ctx_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_ctxs, p, 0, 0);
}

/*
 * Arrays are indexed through MEMBER_VPTR, which checks the bound and computes
 * the address in one piece: left to itself the compiler computes addresses
 * ahead of the check, and the verifier rejects that.
 */
static u32 domain_of_cpu(s32 cpu)
{
	const volatile u32 *domain = MEMBER_VPTR(cpu_domain, [(u32)cpu]);

	return domain ? *domain : NO_DOMAIN;
}

/*
 * Where @cpu is one that the kernel named, all bits but the lowest are dropped instead: a check less,
 * each time that a task wakes up some dozens of times.
 */
static u32 index_of_cpu(s32 cpu)
{
	return (u32)cpu % MAX_CPUS;
}

static u32 type_of_cpu(s32 cpu)
{
	return cpu_type[index_of_cpu(cpu)];
}

static s32 sibling_of_cpu(s32 cpu)
{
	return cpu_sibling[index_of_cpu(cpu)];
}

static struct cpu_ctx *cpu_ctx_of(s32 cpu)
{
	return &cpu_ctxs[index_of_cpu(cpu)];
}

static u32 type_of_domain(u32 domain)
{
	const volatile u8 *core_type = MEMBER_VPTR(domain_type, [domain]);

	return core_type ? *core_type : NO_TYPE;
}

static u32 cpus_of_domain(u32 domain)
{
	const volatile u32 *nr_cpus = MEMBER_VPTR(domain_nr_cpus, [domain]);

	return nr_cpus ? *nr_cpus : 0;
}

static struct domain_ctx *domain_ctx_of(u32 domain)
{
	return MEMBER_VPTR(domain_ctxs, [domain]);
}

/* A task that is not counted here waits in the queue now; before the look for an idle CPU. A full barrier, as a count is. */
static void note_moved_in(struct domain_ctx *dctx)
{
	__sync_lock_test_and_set(&dctx->moved_in, true);
}

/* Whether a task that is not counted waits in @domain's queue, which said so. Global, so that the verifier checks it once. */
__noinline bool moved_in_waits(u32 domain)
{
	struct domain_ctx *dctx = domain_ctx_of(domain);

	if (!dctx)
		return false;
	/* One that waits is not overlooked for a moment: a CPU that idles then may be the only one for it. */
	if (scx_bpf_dsq_nr_queued(domain) > 0)
		return true;
	/* In this order, which the exchange keeps: a task that is moved in meanwhile says so again. */
	__sync_lock_test_and_set(&dctx->moved_in, false);
	if (scx_bpf_dsq_nr_queued(domain) > 0)
		dctx->moved_in = true;
	return dctx->moved_in;
}

/* Does any task wait in @domain's queue? */
static bool somebody_waits(struct domain_ctx *dctx, u32 domain)
{
	return dctx->nr_waiting || (dctx->moved_in && moved_in_waits(domain));
}

/* The same of @cpu's own queue. */
__noinline bool moved_in_own_waits(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	if (scx_bpf_dsq_nr_queued(CPU_DSQ(cpu)) > 0)
		return true;
	__sync_lock_test_and_set(&cctx->moved_in, false);
	if (scx_bpf_dsq_nr_queued(CPU_DSQ(cpu)) > 0)
		cctx->moved_in = true;
	return cctx->moved_in;
}

/* Does any task wait in @cpu's own queue? */
static bool own_waits(struct cpu_ctx *cctx, s32 cpu)
{
	return cctx->nr_waiting || (cctx->moved_in && moved_in_own_waits(cpu));
}

/*
 * Does any task wait in a queue but @except, by their counts? A CPU that is about to idle asks, and
 * most often none does: a plain loop, which the verifier walks, makes none of bpf_for's calls.
 */
static bool somebody_waits_beside(u32 except)
{
	u32 i, nr = nr_domains;

	for (i = 0; i < nr && i < MAX_DOMAINS; i++) {
		if (i != except && (domain_ctxs[i].nr_waiting || domain_ctxs[i].moved_in))
			return true;
	}
	return false;
}

/* Not in any queue that @cpu serves first, by their counts. */
static bool nobody_waits_for(s32 cpu)
{
	struct domain_ctx *dctx = domain_ctx_of(domain_of_cpu(cpu));
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	return dctx && !cctx->nr_waiting && !cctx->moved_in && !dctx->nr_waiting &&
	       !dctx->moved_in;
}

/*
 * What follows a pointer of the kernel's is in global functions, which the verifier checks once
 * and not in every place that calls them: up to 6.19 it searches all names that the kernel knows
 * for each such step, and half of what loading took was that.
 */

/* May @p run on @cpu? */
__noinline bool may_use_cpu(struct task_struct *p __arg_trusted, s32 cpu)
{
	return bpf_cpumask_test_cpu(cpu, p->cpus_ptr);
}

__noinline s32 first_cpu_of(struct task_struct *p __arg_trusted)
{
	s32 cpu;

	/* A timer calls this, too. */
	bpf_rcu_read_lock();
	cpu = bpf_cpumask_first(p->cpus_ptr);
	bpf_rcu_read_unlock();
	return cpu;
}

/* Is @cpu kept from ordinary tasks at present? */
static bool is_parked(s32 cpu)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);

	return cctx->parked_until && bpf_ktime_get_ns() < cctx->parked_until;
}

/* Would what is sent to @cpu wait there, behind a real-time task? */
static bool is_taken(s32 cpu)
{
	return cpu_ctx_of(cpu)->taken;
}

/*
 * Another scheduling class has @cpu now, or no longer. Under the lock of its runqueue. Global, so that the verifier
 * checks it once.
 */
__noinline int set_taken(s32 cpu, bool taken)
{
	struct cpu_ctx *cctx = cpu_ctx_of(cpu);
	u32 domain = domain_of_cpu(cpu), before;
	struct domain_ctx *dctx = domain_ctx_of(domain);

	if (cctx->taken == taken)
		return 0;
	cctx->taken = taken;
	if (!dctx)
		return 0;
	before = __sync_fetch_and_add(&dctx->nr_taken, taken ? 1 : -1);
	if (before + (taken ? 1 : 0) == cpus_of_domain(domain))
		__sync_fetch_and_add(&nr_lost_domains, taken ? 1 : -1);
	return 0;
}

/* CPUs of @domain that a task may use: 8 bits each. Beyond eight domains those that are eight apart share a count. */
static u64 allowed_in(u64 allowed_of, u32 domain)
{
	return allowed_of >> (domain * 8 & 63) & 255;
}

/* CPUs that serve the queue of @domain; 0 while others have all of them. */
static u32 serving_cpus(u32 domain, struct domain_ctx *dctx)
{
	u32 nr = domain_nr_cpus[domain % MAX_DOMAINS];
	s64 left = (s64)dctx->nr_taken - nr;

	/* Without a branch: each costs the verifier. */
	return nr & (left >> 63);
}

/* What it has done since it woke up, as the fastest core type would take for it, ns. */
static u64 burst_so_far(struct task_ctx *tctx)
{
	return tctx->work_ns - tctx->woke_at_work_ns;
}

static bool is_latency_sensitive(struct task_ctx *tctx)
{
	return tctx->burst_ns && tctx->burst_ns < LATENCY_BURST_NS &&
	       burst_so_far(tctx) < LATENCY_BURST_NS;
}

/* How long a task of LATENCY_BURST_NS takes on @cpu. */
static u64 brief_slice(s32 cpu)
{
	u32 *inverse = (u32 *)MEMBER_VPTR(static_inv_slowdown, [type_of_cpu(cpu)]);
	u32 inv = inverse && *inverse ? *inverse : INV_SLOWDOWN_ONE;

	return (LATENCY_BURST_NS << 16) / inv;
}

/* What the agent's threads together have run for in the present window, and when that began. */
u64 agent_window_since;
u64 agent_ran_ns;

/* What is left of the time for which the agent goes first, ns; of others nothing. */
static u64 agent_slice(struct task_ctx *tctx)
{
	u64 now, ran;

	if (!tctx->is_agent || !works(MECHANISM_AGENT_FIRST))
		return 0;
	now = scx_bpf_now();
	/* Another CPU's clock may be ahead by a little. */
	if ((s64)(now - READ_ONCE(agent_window_since)) >= (s64)AGENT_WINDOW_NS) {
		WRITE_ONCE(agent_window_since, now);
		WRITE_ONCE(agent_ran_ns, 0);
	}
	ran = READ_ONCE(agent_ran_ns);
	return ran < AGENT_FIRST_NS ? AGENT_FIRST_NS - ran : 0;
}

/* Must @p not be made to wait? Then it may run on parked CPUs. */
static bool must_not_wait(struct task_struct *p, struct task_ctx *tctx)
{
	return (p->flags & PF_KTHREAD) || tctx->pinned_cpu != NO_CPU || tctx->is_agent ||
	       is_latency_sensitive(tctx);
}

/* Not inlined: the verifier follows it once. */
__noinline bool may_run_where_parked(struct task_struct *p __arg_trusted)
{
	struct task_ctx *tctx = task_ctx_of(p);

	return !tctx || must_not_wait(p, tctx);
}

/* Parked CPUs are rare: the task is only looked at where it matters. */
static bool is_parked_for(struct task_struct *p, s32 cpu)
{
	return is_parked(cpu) && !may_run_where_parked(p);
}

static struct task_slot *slot_of(u32 slot)
{
	return MEMBER_VPTR(slots, [slot]);
}

static __always_inline void count_stat(enum stat_id id)
{
	cpu_ctx_of(bpf_get_smp_processor_id())->stats[id]++;
}

/*
 * Add, fully ordered against what is read and written around it. Only atomics
 * that fetch are; the compiler drops the fetch where its value is not used.
 */
#define add_ordered(ptr, value)							\
({										\
	typeof(*(ptr)) __before = __sync_fetch_and_add((ptr), (value));		\
	__sink(__before);							\
})

/* Slot writes are bracketed by an odd sequence number, see struct task_slot. */
static void slot_write_begin(struct task_slot *s)
{
	add_ordered(&s->seq, 1);
}

static void slot_write_end(struct task_slot *s)
{
	add_ordered(&s->seq, 1);
}

#endif /* __HETERO_STATE_BPF_H */

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF half and the Rust half share: sizes, the task table that BPF
 * writes and the agent reads, and the batch of actions that the agent writes
 * and BPF applies. Nothing else crosses the border.
 */
#ifndef __HETERO_INTF_H
#define __HETERO_INTF_H

#ifndef __VMLINUX_H__
#include <stdbool.h>
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;
#endif

enum hetero_consts {
	MAX_CPUS = 1024,
	MAX_CORE_TYPES = 4,
	MAX_DOMAINS = 64,
	/* Every type as whole idle cores, and every type as second threads. */
	MAX_TIERS = 2 * MAX_CORE_TYPES,
	MAX_SLOTS = 16384,
	MAX_CGROUPS = 8192,
	MAX_PROCESSES = 65536,
	MAX_ACTIONS = 512,
	/* Hardware events read together, and sets of them that take turns. */
	MAX_EVENTS = 12,
	MAX_SETS = 8,
	/* Sessions of threads with a goal; the first place stands for none. */
	MAX_SESSIONS = 1024,
	SLOT_COMM_LEN = 16,

	/* "No core type": the value of a task's hint until a policy gives one. */
	NO_TYPE = MAX_CORE_TYPES,
	/* "No second task" in an action that concerns one task. */
	NO_SLOT = 0xffffffff,

	/* Slowdowns cross the border inverted, as Q16 fixed point: 1.0 is 65536. */
	INV_SLOWDOWN_ONE = 1 << 16,
	/* An SF of 1.0. */
	SF_ONE = 1 << 20,
	/* A rule's weight that changes nothing; systemd's CPUWeight= has the same. */
	RULE_WEIGHT_ONE = 100,
	/* A session's allotment of one CPU of the fastest type. */
	ALLOTMENT_ONE = 1024,
};

/* Parts that --without can leave out, see core/src/mechanism.rs. */
enum mechanism {
	MECHANISM_KICK,
	MECHANISM_PARK,
	MECHANISM_SPIN,
	MECHANISM_VALIDITY,
	MECHANISM_CHAIN,
	MECHANISM_TICK,
	MECHANISM_CUT_OFF,
	MECHANISM_FLUSH,
	MECHANISM_CGROUP_WEIGHT,
	MECHANISM_HEARTBEAT,
	MECHANISM_RELEASE,
	MECHANISM_CPUPERF,
	MECHANISM_PREEMPT,
	MECHANISM_SYNC,
	MECHANISM_ITERATE,
	MECHANISM_RCU,
	MECHANISM_IDENTITY,
	MECHANISM_AGENT_FIRST,
	MECHANISM_STAY,
	MECHANISM_NEWCOMER,
	MECHANISM_GOALS,
	MECHANISM_TAKE_BACK,
	MECHANISM_FRAMES,
	NR_MECHANISMS,
};

/* Where a task is. */
enum task_state {
	TASK_FREE,	/* the slot belongs to no task */
	TASK_BLOCKED,
	TASK_QUEUED,		/* waits in a queue of ours */
	TASK_IS_RUNNING,	/* on its CPU, or preempted there and next to go on */
};

/*
 * One task, as the agent sees it. Tasks get a slot once they have run for
 * SLOT_AFTER_NS in all, so short-lived ones never cost one.
 *
 * `seq` is odd while BPF writes; a reader that sees it odd or changed reads
 * again. `generation` changes whenever the slot changes hands; an action that
 * carries another generation is stale and is dropped.
 */
struct task_slot {
	u32 seq;
	u32 generation;
	u32 tid;
	u32 tgid;
	u64 start_time;			/* ns, as in /proc/PID/stat but finer */
	u64 amp_progress;		/* ns of work at the fastest type, alone, per default weight */
	u64 first_progress;		/* where its amp_progress began */
	u64 run_ns[MAX_CORE_TYPES];	/* ns run on each core type */
	u32 weight;			/* what it is entitled to; 1024 is nice 0, if all cgroups are alike */
	u32 nr_runnable;		/* runnable threads of its process */
	u32 inv_slowdown[MAX_CORE_TYPES]; /* Q16; written by actions */
	s32 cpu;
	s32 target_cpu;			/* the CPU that a swap sends it to, or -1 */
	u8 state;			/* enum task_state */
	u8 core_type;			/* where it runs, or ran last */
	u8 hint;			/* core type wished for, or NO_TYPE */
	u8 allowed_types;		/* affinity: bit t set if some CPU of type t is allowed, MAX_CORE_TYPES + t if all are */
	u8 kthread;
	u8 pinned;			/* may run on one CPU only */
	u8 spinning;			/* waits actively, it says */
	u8 ruled;			/* the hint is not the policy's: no idle CPU that it ranks lower is better */
	u32 rule_weight;		/* of RULE_WEIGHT_ONE, what its weight is times; by actions */
	u32 stall;			/* which silence of the agent `surplus` is of */
	u32 sf;				/* as a model had it last, of SF_ONE; 0: not known */
	u32 session;			/* the id of its session, or 0; by actions, or by birth */
	s64 surplus;			/* ns on the fastest type beyond its part, in that silence */
	char comm[SLOT_COMM_LEN];
};

enum action_op {
	ACTION_HINT,		/* wish `core_type` for one task (NO_TYPE: no wish) */
	ACTION_SWAP,		/* exchange the core types of two tasks, or their CPUs within one; both or neither */
	ACTION_SLOWDOWN,	/* set inv_slowdown of one task */
	ACTION_PARK,		/* keep CPU `slot` from ordinary tasks for `park_ns` */
	ACTION_WEIGHT,		/* set rule_weight of one task */
	ACTION_JOIN,		/* set session of one task */
};

enum action_result {
	ACTION_PENDING,
	ACTION_APPLIED,
	ACTION_STALE,		/* the task is gone, not where the agent thought, or may not use all CPUs that a hint is to */
	ACTION_INVALID,
};

/* One thing to do. `expected_type` guards against acting on old news. */
struct action {
	u32 op;
	u32 result;		/* out: enum action_result */
	u32 slot;
	u32 generation;
	u32 other_slot;		/* ACTION_SWAP only */
	u32 other_generation;
	u32 inv_slowdown[MAX_CORE_TYPES];
	u8 core_type;		/* wished for `slot` */
	u8 other_core_type;	/* wished for `other_slot` */
	u8 expected_type;	/* where `slot` ran last, or NO_TYPE for "any" */
	u8 other_expected_type;
	u32 park_ns;
	u32 rule_weight;
	u32 ruled;		/* ACTION_HINT: by a rule, a goal, or to save energy; not by the policy */
	u32 session;
};

struct action_batch {
	u32 nr;
	u32 pad;
	struct action actions[MAX_ACTIONS];
};

/*
 * What a task did on one core type while it ran there for about --sample-ms:
 * how far each event of a set advanced, in the order in which the set was opened.
 */
struct task_sample {
	u32 tid;
	u32 tgid;
	u32 slot;
	u32 generation;
	u64 at;			/* ns, monotonic */
	u64 run_ns;		/* that `counts` belong to */
	u64 discarded_ns;	/* ran besides, while some event did not count */
	u64 counts[MAX_EVENTS];
	s64 sf;			/* as a model has it, of SF_ONE; 0: not known here */
	s64 ef;			/* the same of EF */
	u8 core_type;
	u8 set;
	u8 last;		/* the task has ended */
	u8 spun;		/* it waited actively at some look */
	u32 inv_slowdown;	/* by which its progress was charged at the end, Q16 */
};

/* A slot to take from its task, which has slept for long. */
struct slot_request {
	u32 slot;
	u32 generation;
};

/* Thread `tid` of process `tgid` belongs to a session. */
struct session_request {
	u32 tid;
	u32 tgid;
	u32 session;
};

/* Thread `tid` of process `tgid` tells at `address` in its memory whether it spins. */
struct spin_request {
	u32 tid;
	u32 tgid;
	u64 address;		/* of 4 bytes; 0: it tells no more */
};

/* A forest for each core type, and for each of these. */
enum estimated {
	ESTIMATED_SF,
	ESTIMATED_EF,
	NR_ESTIMATED,
};

/* What features are divided by; instructions and cycles come first in every sample. */
enum estimate_divisor {
	NOT_ESTIMATED,		/* BPF makes no such estimate on this core type */
	PER_INSTRUCTION,
	PER_CYCLE,
};

/* What try_estimate() is asked, and says. */
struct estimate_trial {
	u64 counts[MAX_EVENTS];
	u32 core_type;
	u32 times;
	s64 sf;		/* out: of SF_ONE */
	u64 took_ns;	/* out: for all times together */
};

/* One step of the idle search: a core type, and whether the whole core must be idle. */
struct tier {
	u8 core_type;
	u8 whole_core;
};

/* What a task that is made by a session's task belongs to from the beginning. */
enum session_heirs {
	HEIRS_NONE,
	HEIRS_THREADS,		/* the session, if it is a thread of the same process */
	HEIRS_CHILDREN,		/* the session, also if it is another process */
};

/*
 * Threads that have a goal together, and what they get for it. The agent writes all but the first two.
 * Its place in `sessions` is its id modulo MAX_SESSIONS: another that has the place later has another id.
 */
struct goal_session {
	u64 spent_ns;		/* what they have run for, as the fastest core type would take for it */
	u64 paid_until;		/* the time for which that has used up the allotment, ns */
	u32 id;			/* 0: none has this place */
	u32 heirs;		/* enum session_heirs */
	u32 allotment;		/* CPUs of the fastest type, of ALLOTMENT_ONE; 0: there is none */
	u32 gets_more;		/* where that is used up they share like others, and are not held */
};

/* Counted per CPU by BPF, summed by the agent. */
enum stat_id {
	STAT_DIRECT,		/* placed on an idle CPU at wake-up */
	STAT_PREEMPTED,		/* brief, took over the CPU of one that computes */
	STAT_SYNC,		/* placed beside a waker that is about to sleep */
	STAT_QUEUED,		/* put in a queue, no CPU was idle */
	STAT_KEPT,		/* kept running past a slice, no task ahead of it */
	STAT_STOLEN,		/* pulled by a CPU of another queue that had nothing to do */
	STAT_ROTATED,		/* pulled from a more crowded queue to even out waiting */
	STAT_UPGRADED,		/* moved to a better idle CPU while running */
	STAT_SWAPPED,		/* arrived where a swap sent it */
	STAT_RESCUED,		/* found waiting beside an idle CPU, moved there */
	STAT_PARKED,		/* CPUs kept from ordinary tasks for a while */
	STAT_HELD,		/* held on such a CPU */
	STAT_USED_UP,		/* held until their session's allotment covers what they ran for */
	STAT_STALLS,		/* silences of the agent */
	STAT_SHARED,		/* traded places with another while the agent was silent */
	STAT_CARRIED,		/* found again after a restart */
	STAT_SLOTS_FULL,	/* ran without a slot because the table was full */
	STAT_STRETCHES,		/* of a task's run, between two readings of the counters */
	STAT_STRETCHES_DISCARDED, /* of them, because an event did not count all the time */
	STAT_SAMPLES_LOST,	/* the ring buffer was full */
	NR_HETERO_STATS,
};

#endif /* __HETERO_INTF_H */

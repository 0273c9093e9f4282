/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Between the BPF half in C and the kernel's model in Rust. The model describes where the CPU is
 * (native_here) and answers the calls that touch scheduling state (native_calls); maps, masks and
 * memory are C's own, see shim.c.
 */
#ifndef __NATIVE_H
#define __NATIVE_H

/* Functions that a kernel may lack, by the names that bpf_ksym_exists() is asked for. */
struct native_ksyms {
	bool scx_bpf_kick_cpu___optional;
	bool bpf_iter_scx_dsq_new;
	bool scx_bpf_dsq_peek;
	bool scx_bpf_reenqueue_local___v1;
	bool scx_bpf_cpuperf_set___optional;
};

/* What the model sets before it calls an operation, and the helpers read. */
struct native_here {
	u64 scx_now;	/* of this CPU: scx_bpf_now() */
	u64 ktime;	/* bpf_ktime_get_ns() */
	s32 cpu;
	u32 cursor;	/* where any_and_distribute() found a CPU last */
	struct task_struct *current;
	struct native_ksyms has;
	bool ring_is_full;
};

/* An iterator over a queue: Rust finds the next task by `key` and `seq`, the place of the last one. */
struct bpf_iter_scx_dsq {
	u64 dsq;
	s64 key;
	u64 seq;
	u64 first_seq;	/* what was queued after the iterator was made is not seen */
	u64 slice, vtime;
	bool started, has_slice, has_vtime;
};

/* Each takes the model as its first argument. */
struct native_calls {
	void (*dsq_insert)(void *model, struct task_struct *p, u64 dsq, u64 slice, u64 vtime,
			   u64 flags, bool by_vtime);
	bool (*move_to_local)(void *model, u64 dsq, u64 flags);
	void (*iter_new)(void *model, struct bpf_iter_scx_dsq *it);
	struct task_struct *(*iter_next)(void *model, struct bpf_iter_scx_dsq *it);
	bool (*dsq_move)(void *model, struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq,
			 u64 flags, bool by_vtime);
	s32 (*nr_queued)(void *model, u64 dsq);
	struct task_struct *(*peek)(void *model, u64 dsq);
	void (*reenq)(void *model, u64 dsq, u64 flags);
	u32 (*reenq_local)(void *model);
	s32 (*create_dsq)(void *model, u64 dsq);
	void (*set_slice)(void *model, struct task_struct *p, u64 slice);
	void (*kick)(void *model, s32 cpu, u64 flags);
	void (*cpuperf)(void *model, s32 cpu, u32 perf);
	bool (*clear_idle)(void *model, s32 cpu);
	s32 (*pick_idle)(void *model, const struct cpumask *cpus, u64 flags);
	bool (*is_running)(void *model, const struct task_struct *p);
	s32 (*perf_read)(void *model, u64 index, struct bpf_perf_event_value *value);
	s32 (*timer_start)(void *model, struct bpf_timer *timer, u64 ns);
	void (*record)(void *model, void *map, const void *data, u64 size);
	s32 (*read_user)(void *model, void *to, u32 size, u64 address);
	struct task_struct *(*task_from_pid)(void *model, s32 pid);
	void (*error)(void *model, const char *message);
};

struct native {
	struct native_here *here;
	const struct native_calls *calls;
	void *model;
};
extern struct native native;

/* A map's shape, and once native_start() was called its memory. */
struct native_map {
	void *var;
	const char *name;
	u32 type, key_size, value_size, entries;
	u32 used, head;		/* of a queue */
	u8 *values, *keys, *present;
};
extern struct native_map native_maps[];
extern const u32 nr_native_maps;

void native_poke(const volatile void *to, const void *from, u64 size);
bool native_start(u32 nr_cpus);
void native_stop(void);
void native_fire(struct bpf_timer *timer);
void native_forget_task(struct task_struct *p);
void native_forget_cgroup(struct cgroup *cgrp);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Stands for scx's header of this name where the BPF half is compiled for the host. Types hold only
 * the fields that the BPF half reads: a new field, function or flag does not compile before it is
 * modelled here.
 */
#ifndef __NATIVE_COMMON_BPF_H
#define __NATIVE_COMMON_BPF_H

#define __VMLINUX_H__	/* the types of intf.h come from here */
#include <stdbool.h>
#include <stddef.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef signed short s16;
typedef signed int s32;
typedef signed long long s64;

#define SEC(name)
#define __ksym
#define __kptr
#define __arg_trusted
#define __arg_nonnull
#ifndef __weak
#define __weak		__attribute__((weak))
#endif
#ifndef __noinline
#define __noinline	__attribute__((noinline))
#endif
#ifndef __always_inline
#define __always_inline	inline __attribute__((always_inline))
#endif
#define READ_ONCE(x)	(*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))
#define __sink(expr)	asm volatile("" : "+g"(expr))
#define ctzll(word)	__builtin_ctzll(word)

enum { ENOENT = 2, ESRCH = 3, E2BIG = 7, ENOMEM = 12, EFAULT = 14, EBUSY = 16, EEXIST = 17, EINVAL = 22,
       ESTALE = 116 };
enum { CLOCK_MONOTONIC = 1 };

/*
 * As in scx: the bound is checked, and the address computed, in one piece. The index goes through
 * offsetof(), so that UBSan does not report what the check refuses.
 */
#define MEMBER_VPTR(base, member) (typeof((base) member) *)				\
({											\
	u64 __addr = __builtin_offsetof(struct { typeof(base) __m; }, __m member);	\
	__addr <= sizeof(base) - sizeof((base) member) ? (u64)&(base) + __addr : 0;	\
})

/* The kernel's ABI: include/linux/sched.h, include/linux/sched/ext.h, kernel/sched/ext_internal.h. */
#define PF_EXITING	0x00000004
#define PF_KTHREAD	0x00200000
enum {
	SCX_TASK_QUEUED = 1, SCX_PICK_IDLE_CORE = 1, SCX_KICK_IDLE = 1, SCX_KICK_PREEMPT = 2,
	SCX_WAKE_FORK = 4, SCX_WAKE_TTWU = 8, SCX_WAKE_SYNC = 16,
	SCX_CPU_PREEMPT_RT = 0, SCX_CPU_PREEMPT_DL = 1, SCX_CPU_PREEMPT_STOP = 2,
	SCX_CPUPERF_ONE = 1024, SCX_SLICE_DFL = 20000000,
};
#define SCX_ENQ_WAKEUP		1ULL
#define SCX_ENQ_HEAD		(1ULL << 16)
#define SCX_ENQ_CPU_SELECTED	(1ULL << 20)
#define SCX_ENQ_PREEMPT		(1ULL << 32)
#define SCX_ENQ_REENQ		(1ULL << 40)
#define SCX_ENQ_LAST		(1ULL << 41)
#define SCX_DSQ_INVALID		(1ULL << 63)
#define SCX_DSQ_GLOBAL		(1ULL << 63 | 1)
#define SCX_DSQ_LOCAL		(1ULL << 63 | 2)
#define SCX_DSQ_LOCAL_ON	(1ULL << 63 | 1ULL << 62)
#define SCX_OPS_KEEP_BUILTIN_IDLE	1ULL
#define SCX_OPS_ENQ_LAST		2ULL
#define SCX_OPS_ENQ_EXITING		4ULL
#define SCX_OPS_ENQ_MIGRATION_DISABLED	16ULL

/* Maps: what libbpf reads from BTF, half.c reads from the types. */
#define __uint(name, val)	int (*name)[val]
#define __type(name, val)	typeof(val) *name
enum {
	BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_QUEUE = 22, BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29, BPF_MAP_TYPE_CGRP_STORAGE = 32,
	BPF_F_NO_PREALLOC = 1, BPF_ANY = 0, BPF_NOEXIST = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2,
};

#define NATIVE_MAX_CPUS	1024
#define NATIVE_WORDS	(NATIVE_MAX_CPUS / 64)
struct cpumask { u64 bits[NATIVE_WORDS]; };
struct bpf_cpumask { struct cpumask cpumask; };
static inline const struct cpumask *cast_mask(struct bpf_cpumask *mask)
{
	return &mask->cpumask;
}

struct cgroup { s32 level; u64 id; struct cgroup *parent; void *storage; };
struct sched_entity { u64 exec_start, sum_exec_runtime; };
struct sched_ext_entity { u32 flags, weight; u64 slice, dsq_vtime; };
struct task_struct {
	u32 __state;
	s32 pid, tgid;
	u32 flags;
	s32 static_prio;
	u32 policy;
	u16 migration_disabled;
	s32 nr_cpus_allowed;
	u64 start_time;
	u64 self_exec_id;
	const struct cpumask *cpus_ptr;
	struct sched_entity se;
	struct sched_ext_entity scx;
	union { struct { u8 blocked, need_qs; } b; u32 s; } rcu_read_unlock_special;
	char comm[16];
	/* The model's: not for the BPF half. */
	u32 native_index;
	s32 native_cpu;
	void *native_storage;
	struct cpumask native_cpus;
};

struct bpf_perf_event_value { u64 counter, enabled, running; };
struct bpf_timer { void *map; void *callback; };
struct scx_init_task_args { bool fork; struct cgroup *cgroup; };
struct scx_exit_task_args { bool cancelled; };
struct scx_cpu_release_args { s32 reason; struct task_struct *task; };
struct scx_cgroup_init_args { u32 weight; };
struct scx_exit_info { s32 kind; };

struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*running)(struct task_struct *p);
	void (*tick)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	void (*set_weight)(struct task_struct *p, u32 weight);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *cpumask);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us, u64 burst_us);
	void (*enable)(struct task_struct *p);
	void (*disable)(struct task_struct *p);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*exit_task)(struct task_struct *p, struct scx_exit_task_args *args);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *ei);
	u64 flags;
	const char *name;
};
#define BPF_STRUCT_OPS(name, args...)		name(args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...)	name(args)
#define SCX_OPS_DEFINE(name, args...)		struct sched_ext_ops name = { args }
#define UEI_DEFINE(name)			struct scx_exit_info name
#define UEI_RECORD(name, ei)			((name) = *(ei))

#include "native.h"

/* A kernel may lack each of these; one that is asked for and is not a field does not compile. */
#define bpf_ksym_exists(sym)		(native.here->has.sym)
#define bpf_core_field_exists(field)	((void)sizeof(field), true)
/* Debian's kernels trace the prolog of a BPF program with migration enabled. */
#define __scx_prolog_disables_migration	false

/* As the kernel's iterators: the bounds are read once, and the variable keeps the last number. */
#define bpf_for(i, start, end)								\
	for (s64 ___n = (s32)(start), ___end = (s32)(end);				\
	     ___n < ___end && ((i) = ___n, true); ___n++)
#define bpf_repeat(n)	for (s64 ___n = 0; ___n < (s64)(n); ___n++)

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it);
#define bpf_for_each(type, cur, args...)						\
	for (struct bpf_iter_##type ___it						\
		__attribute__((cleanup(bpf_iter_##type##_destroy))),			\
	     *___p __attribute__((unused)) = (bpf_iter_##type##_new(&___it, args), &___it); \
	     ((cur) = bpf_iter_##type##_next(&___it));)
#define BPF_FOR_EACH_ITER	(&___it)

/* Helpers. */
void *bpf_map_lookup_elem(void *map, const void *key);
void *bpf_map_lookup_percpu_elem(void *map, const void *key, u32 cpu);
long bpf_map_update_elem(void *map, const void *key, const void *value, u64 flags);
long bpf_map_delete_elem(void *map, const void *key);
long bpf_map_push_elem(void *map, const void *value, u64 flags);
long bpf_map_pop_elem(void *map, void *value);
void *bpf_task_storage_get(void *map, struct task_struct *p, void *value, u64 flags);
void *bpf_cgrp_storage_get(void *map, struct cgroup *cgrp, void *value, u64 flags);
void *bpf_ringbuf_reserve(void *map, u64 size, u64 flags);
void bpf_ringbuf_submit(void *record, u64 flags);
long bpf_perf_event_read_value(void *map, u64 flags, struct bpf_perf_event_value *buf, u32 size);
long bpf_timer_init(struct bpf_timer *timer, void *map, u64 flags);
long bpf_timer_set_callback(struct bpf_timer *timer, void *callback);
long bpf_timer_start(struct bpf_timer *timer, u64 nsecs, u64 flags);
u64 bpf_ktime_get_ns(void);
u32 bpf_get_smp_processor_id(void);
u64 bpf_get_current_pid_tgid(void);
struct task_struct *bpf_get_current_task_btf(void);
long bpf_probe_read_kernel(void *to, u32 size, const void *from);
long bpf_probe_read_kernel_str(void *to, u32 size, const void *from);
long bpf_probe_read_user(void *to, u32 size, const void *from);
void *bpf_kptr_xchg(void *field, void *value);
void bpf_rcu_read_lock(void);
void bpf_rcu_read_unlock(void);
struct task_struct *bpf_task_from_pid(s32 pid);
void bpf_task_release(struct task_struct *p);
struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, s32 level);
void bpf_cgroup_release(struct cgroup *cgrp);

struct bpf_cpumask *bpf_cpumask_create(void);
void bpf_cpumask_release(struct bpf_cpumask *mask);
void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask);
void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask);
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask);
bool bpf_cpumask_and(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b);
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b);
bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b);
bool bpf_cpumask_empty(const struct cpumask *mask);
u32 bpf_cpumask_first(const struct cpumask *mask);
u32 bpf_cpumask_first_and(const struct cpumask *a, const struct cpumask *b);
u32 bpf_cpumask_weight(const struct cpumask *mask);
u32 bpf_cpumask_any_distribute(const struct cpumask *mask);
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b);

/* Functions of sched_ext. */
u64 scx_bpf_now(void);
s32 scx_bpf_task_cpu(const struct task_struct *p);
bool scx_bpf_task_running(const struct task_struct *p);
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags);
bool scx_bpf_dsq_move_to_local(u64 dsq_id, u64 enq_flags);
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags);
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id, u64 enq_flags);
void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice);
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime);
s32 scx_bpf_dsq_nr_queued(u64 dsq_id);
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id);
void scx_bpf_dsq_reenq(u64 dsq_id, u64 flags);
u32 scx_bpf_reenqueue_local(void);
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node);
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);
bool scx_bpf_test_and_clear_cpu_idle(s32 cpu);
s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus, u64 flags);
void native_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define scx_bpf_error(fmt, args...)	native_error(fmt, ##args)

static inline bool is_migration_disabled(const struct task_struct *p)
{
	return p->migration_disabled;
}
static inline bool __COMPAT_is_enq_cpu_selected(u64 enq_flags)
{
	return enq_flags & SCX_ENQ_CPU_SELECTED;
}
static inline bool time_before(u64 a, u64 b)
{
	return (s64)(a - b) < 0;
}

#endif

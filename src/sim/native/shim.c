/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Helpers and kfuncs for the BPF half compiled natively: maps, masks and memory, and the calls that
 * go on to the model of the kernel.
 */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The shim's errno values have the names of libc's macros. */
#undef ENOENT
#undef ESRCH
#undef E2BIG
#undef ENOMEM
#undef EFAULT
#undef EBUSY
#undef EEXIST
#undef EINVAL
#undef CLOCK_MONOTONIC
#include <scx/common.bpf.h>

struct native native;
static u32 nr_map_cpus;

static void give_up(const char *what)
{
	fprintf(stderr, "the BPF half, compiled natively: %s\n", what);
	abort();
}

/* A map variable is a struct of pointers, of which the first, `type`, leads to the map. */
static struct native_map *map_of(void *var)
{
	struct native_map *m = *(struct native_map **)var;

	if (!m)
		give_up("a map is used before native_start()");
	return m;
}

static u64 nr_values(const struct native_map *m)
{
	switch (m->type) {
	case BPF_MAP_TYPE_ARRAY:
	case BPF_MAP_TYPE_HASH:
	case BPF_MAP_TYPE_QUEUE:
		return m->entries;
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		return (u64)m->entries * nr_map_cpus;
	default:
		return 0;
	}
}

bool native_start(u32 nr_cpus)
{
	u32 i;

	nr_map_cpus = nr_cpus;
	for (i = 0; i < nr_native_maps; i++) {
		struct native_map *m = &native_maps[i];
		u64 nr = nr_values(m);

		*(struct native_map **)m->var = m;
		if (!nr)
			continue;
		m->values = calloc(nr, m->value_size);
		if (m->type == BPF_MAP_TYPE_HASH) {
			m->keys = calloc(nr, m->key_size);
			m->present = calloc(nr, 1);
		}
		if (!m->values || (m->type == BPF_MAP_TYPE_HASH && (!m->keys || !m->present)))
			return false;
	}
	return true;
}

static void free_masks(struct native_map *m)
{
	u64 i;

	/* Masks are the only pointers that maps hold. */
	if (strcmp(m->name, "type_masks") && strcmp(m->name, "domain_masks") &&
	    strcmp(m->name, "scratches"))
		return;
	for (i = 0; m->values && i < nr_values(m); i++)
		free(*(void **)(m->values + i * m->value_size));
}

void native_stop(void)
{
	u32 i;

	for (i = 0; i < nr_native_maps; i++) {
		struct native_map *m = &native_maps[i];

		free_masks(m);
		free(m->values);
		free(m->keys);
		free(m->present);
		m->values = m->keys = m->present = NULL;
	}
}

/* Writes what is read-only to the BPF half, as the agent does before it loads it. */
void native_poke(const volatile void *to, const void *from, u64 size)
{
	uintptr_t page = sysconf(_SC_PAGESIZE), first = (uintptr_t)to & ~(page - 1);

	if (mprotect((void *)first, (uintptr_t)to + size - first, PROT_READ | PROT_WRITE))
		give_up("its read-only data cannot be written");
	memcpy((void *)to, from, size);
}

/* Open addressing; at most half of the places were ever used by what is modelled. */
static s64 hash_find(struct native_map *m, const void *key, bool make)
{
	u32 first = *(const u32 *)key * 2654435761u, i;
	s64 free_at = -1;

	for (i = 0; i < m->entries; i++) {
		u32 at = (first + i) % m->entries;

		if (m->present[at] == 1 && !memcmp(m->keys + (u64)at * m->key_size, key, m->key_size))
			return at;
		if (m->present[at] != 1 && free_at < 0)
			free_at = at;
		if (!m->present[at])
			break;
	}
	return make ? free_at : -1;
}

void *bpf_map_lookup_elem(void *var, const void *key)
{
	return bpf_map_lookup_percpu_elem(var, key, native.here->cpu);
}

void *bpf_map_lookup_percpu_elem(void *var, const void *key, u32 cpu)
{
	struct native_map *m = map_of(var);
	u32 i = *(const u32 *)key;
	s64 at;

	switch (m->type) {
	case BPF_MAP_TYPE_ARRAY:
		return i < m->entries ? m->values + (u64)i * m->value_size : NULL;
	case BPF_MAP_TYPE_PERCPU_ARRAY:
		if (i >= m->entries || cpu >= nr_map_cpus)
			return NULL;
		return m->values + ((u64)cpu * m->entries + i) * m->value_size;
	case BPF_MAP_TYPE_HASH:
		at = hash_find(m, key, false);
		return at < 0 ? NULL : m->values + at * m->value_size;
	}
	give_up("a map of this type has no elements to look up");
	return NULL;
}

long bpf_map_update_elem(void *var, const void *key, const void *value, u64 flags)
{
	struct native_map *m = map_of(var);
	s64 at;

	if (m->type != BPF_MAP_TYPE_HASH)
		give_up("only hash maps are updated here");
	at = hash_find(m, key, true);
	if (at < 0)
		return -E2BIG;
	if (flags == BPF_NOEXIST && m->present[at] == 1)
		return -EEXIST;
	m->present[at] = 1;
	memcpy(m->keys + at * m->key_size, key, m->key_size);
	memcpy(m->values + at * m->value_size, value, m->value_size);
	return 0;
}

long bpf_map_delete_elem(void *var, const void *key)
{
	struct native_map *m = map_of(var);
	s64 at = hash_find(m, key, false);

	if (at < 0)
		return -ENOENT;
	m->present[at] = 2;
	return 0;
}

long bpf_map_push_elem(void *var, const void *value, u64 flags)
{
	struct native_map *m = map_of(var);

	if (m->used == m->entries)
		return -E2BIG;
	memcpy(m->values + (u64)((m->head + m->used++) % m->entries) * m->value_size, value,
	       m->value_size);
	return 0;
}

long bpf_map_pop_elem(void *var, void *value)
{
	struct native_map *m = map_of(var);

	if (!m->used) {
		memset(value, 0, m->value_size);	/* queue_stack_maps.c clears it, too */
		return -ENOENT;
	}
	memcpy(value, m->values + (u64)m->head * m->value_size, m->value_size);
	m->head = (m->head + 1) % m->entries;
	m->used--;
	return 0;
}

static void *storage_get(void *var, void **at, u64 flags)
{
	if (!*at && (flags & BPF_LOCAL_STORAGE_GET_F_CREATE))
		*at = calloc(1, map_of(var)->value_size);
	return *at;
}

/* There is one map of each kind of storage. */
void *bpf_task_storage_get(void *var, struct task_struct *p, void *value, u64 flags)
{
	return p ? storage_get(var, &p->native_storage, flags) : NULL;
}

void *bpf_cgrp_storage_get(void *var, struct cgroup *cgrp, void *value, u64 flags)
{
	return cgrp ? storage_get(var, &cgrp->storage, flags) : NULL;
}

void native_forget_task(struct task_struct *p)
{
	free(p->native_storage);
	p->native_storage = NULL;
}

void native_forget_cgroup(struct cgroup *cgrp)
{
	free(cgrp->storage);
	cgrp->storage = NULL;
}

/* A record that is being written. */
struct record { void *var; u64 size; _Alignas(16) u8 data[]; };

void *bpf_ringbuf_reserve(void *var, u64 size, u64 flags)
{
	struct record *r = native.here->ring_is_full ? NULL : malloc(sizeof(*r) + size);

	if (!r)
		return NULL;
	r->var = var;
	r->size = size;
	memset(r->data, 0xa5, size);	/* as little cleared as the kernel's */
	return r->data;
}

void bpf_ringbuf_submit(void *data, u64 flags)
{
	struct record *r = (struct record *)((u8 *)data - offsetof(struct record, data));

	native.calls->record(native.model, r->var, r->data, r->size);
	free(r);
}

/* A failure clears the buffer: bpf_perf_event_read_value() in kernel/trace/bpf_trace.c. */
long bpf_perf_event_read_value(void *map, u64 index, struct bpf_perf_event_value *buf, u32 size)
{
	s32 err = native.calls->perf_read(native.model, index, buf);

	if (err)
		memset(buf, 0, size);
	return err;
}

long bpf_timer_init(struct bpf_timer *timer, void *map, u64 flags)
{
	timer->map = map;
	return 0;
}

long bpf_timer_set_callback(struct bpf_timer *timer, void *callback)
{
	timer->callback = callback;
	return 0;
}

long bpf_timer_start(struct bpf_timer *timer, u64 ns, u64 flags)
{
	if (!timer->callback)
		return -EINVAL;
	return native.calls->timer_start(native.model, timer, ns);
}

/* Each callback names its own map's type, which to BPF is one and the same. */
__attribute__((no_sanitize("function")))
void native_fire(struct bpf_timer *timer)
{
	struct native_map *m = map_of(timer->map);
	int key = ((u8 *)timer - m->values) / m->value_size;

	((int (*)(void *, int *, void *))timer->callback)(timer->map, &key, timer);
}

u64 bpf_ktime_get_ns(void) { return native.here->ktime; }
u64 scx_bpf_now(void) { return native.here->scx_now; }
u32 bpf_get_smp_processor_id(void) { return native.here->cpu; }
struct task_struct *bpf_get_current_task_btf(void) { return native.here->current; }
u64 bpf_get_current_pid_tgid(void)
{
	struct task_struct *p = native.here->current;

	return (u64)p->tgid << 32 | (u32)p->pid;
}
s32 scx_bpf_task_cpu(const struct task_struct *p) { return p->native_cpu; }
void bpf_rcu_read_lock(void) { }
void bpf_rcu_read_unlock(void) { }

long bpf_probe_read_kernel(void *to, u32 size, const void *from)
{
	memcpy(to, from, size);
	return 0;
}

long bpf_probe_read_kernel_str(void *to, u32 size, const void *from)
{
	u32 len = strnlen(from, size - 1);

	memcpy(to, from, len);
	((char *)to)[len] = 0;
	return len + 1;
}

long bpf_probe_read_user(void *to, u32 size, const void *from)
{
	s32 err = native.calls->read_user(native.model, to, size, (u64)from);

	if (err)
		memset(to, 0, size);
	return err;
}

void *bpf_kptr_xchg(void *field, void *value)
{
	void *old = *(void **)field;

	*(void **)field = value;
	return old;
}

struct task_struct *bpf_task_from_pid(s32 pid)
{
	return native.calls->task_from_pid(native.model, pid);
}

void bpf_task_release(struct task_struct *p) { }

struct cgroup *bpf_cgroup_ancestor(struct cgroup *cgrp, s32 level)
{
	if (!cgrp || level < 0 || cgrp->level < level)
		return NULL;
	while (cgrp && cgrp->level > level)
		cgrp = cgrp->parent;
	return cgrp;
}

void bpf_cgroup_release(struct cgroup *cgrp) { }

struct bpf_cpumask *bpf_cpumask_create(void) { return calloc(1, sizeof(struct bpf_cpumask)); }
void bpf_cpumask_release(struct bpf_cpumask *mask) { free(mask); }

void bpf_cpumask_set_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	if (cpu < NATIVE_MAX_CPUS)
		mask->cpumask.bits[cpu / 64] |= 1ULL << cpu % 64;
}

void bpf_cpumask_clear_cpu(u32 cpu, struct bpf_cpumask *mask)
{
	if (cpu < NATIVE_MAX_CPUS)
		mask->cpumask.bits[cpu / 64] &= ~(1ULL << cpu % 64);
}

bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask)
{
	return cpu < NATIVE_MAX_CPUS && mask->bits[cpu / 64] >> cpu % 64 & 1;
}

/* Words that hold CPUs of this machine. */
static u32 nr_words(void) { return (nr_map_cpus + 63) / 64; }

bool bpf_cpumask_and(struct bpf_cpumask *to, const struct cpumask *a, const struct cpumask *b)
{
	u64 any = 0;
	u32 i;

	for (i = 0; i < nr_words(); i++)
		any |= to->cpumask.bits[i] = a->bits[i] & b->bits[i];
	return any;
}

bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b)
{
	return bpf_cpumask_first_and(a, b) < nr_map_cpus;
}

bool bpf_cpumask_subset(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	for (i = 0; i < nr_words(); i++)
		if (a->bits[i] & ~b->bits[i])
			return false;
	return true;
}

bool bpf_cpumask_empty(const struct cpumask *mask) { return !bpf_cpumask_weight(mask); }
u32 bpf_cpumask_first(const struct cpumask *mask) { return bpf_cpumask_first_and(mask, mask); }

u32 bpf_cpumask_first_and(const struct cpumask *a, const struct cpumask *b)
{
	u32 i;

	for (i = 0; i < nr_words(); i++)
		if (a->bits[i] & b->bits[i])
			return i * 64 + __builtin_ctzll(a->bits[i] & b->bits[i]);
	return nr_map_cpus;
}

u32 bpf_cpumask_weight(const struct cpumask *mask)
{
	u32 weight = 0, i;

	for (i = 0; i < nr_words(); i++)
		weight += __builtin_popcountll(mask->bits[i]);
	return weight;
}

u32 bpf_cpumask_any_distribute(const struct cpumask *mask)
{
	return bpf_cpumask_any_and_distribute(mask, mask);
}

/* lib/cpumask.c: the next one after the last that was found, and round. */
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b)
{
	u32 i, from = native.here->cursor + 1, nr = nr_words();

	for (i = 0; i <= nr; i++) {
		u32 word = (from / 64 + i) % nr;
		u64 both = a->bits[word] & b->bits[word];

		if (!i)
			both &= ~0ULL << from % 64;
		if (both)
			return native.here->cursor = word * 64 + __builtin_ctzll(both);
	}
	return nr_map_cpus;
}

void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags)
{
	native.calls->dsq_insert(native.model, p, dsq, slice, 0, flags, false);
}

void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags)
{
	native.calls->dsq_insert(native.model, p, dsq, slice, vtime, flags, true);
}

bool scx_bpf_dsq_move_to_local(u64 dsq, u64 flags)
{
	return native.calls->move_to_local(native.model, dsq, flags);
}

int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq, u64 flags)
{
	*it = (struct bpf_iter_scx_dsq){ .dsq = dsq };
	native.calls->iter_new(native.model, it);
	return 0;
}

struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it)
{
	return native.calls->iter_next(native.model, it);
}

void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) { }

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags)
{
	return native.calls->dsq_move(native.model, it, p, dsq, flags, false);
}

bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq, u64 flags)
{
	return native.calls->dsq_move(native.model, it, p, dsq, flags, true);
}

void scx_bpf_dsq_move_set_slice(struct bpf_iter_scx_dsq *it, u64 slice)
{
	it->slice = slice;
	it->has_slice = true;
}

void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime)
{
	it->vtime = vtime;
	it->has_vtime = true;
}

s32 scx_bpf_dsq_nr_queued(u64 dsq) { return native.calls->nr_queued(native.model, dsq); }
struct task_struct *scx_bpf_dsq_peek(u64 dsq) { return native.calls->peek(native.model, dsq); }
void scx_bpf_dsq_reenq(u64 dsq, u64 flags) { native.calls->reenq(native.model, dsq, flags); }
u32 scx_bpf_reenqueue_local(void) { return native.calls->reenq_local(native.model); }
s32 scx_bpf_create_dsq(u64 dsq, s32 node) { return native.calls->create_dsq(native.model, dsq); }

bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice)
{
	native.calls->set_slice(native.model, p, slice);
	return true;
}

bool scx_bpf_task_running(const struct task_struct *p)
{
	return native.calls->is_running(native.model, p);
}

/* Defined weak and without a prototype in the common header: src/bpf/ declares both. */
void scx_bpf_kick_cpu___optional(s32 cpu, u64 flags)
{
	native.calls->kick(native.model, cpu, flags);
}

void scx_bpf_cpuperf_set___optional(s32 cpu, u32 perf)
{
	native.calls->cpuperf(native.model, cpu, perf);
}

bool scx_bpf_test_and_clear_cpu_idle(s32 cpu)
{
	return native.calls->clear_idle(native.model, cpu);
}

s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus, u64 flags)
{
	return native.calls->pick_idle(native.model, cpus, flags);
}

void native_error(const char *fmt, ...)
{
	char message[256];
	va_list args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	native.calls->error(native.model, message);
}

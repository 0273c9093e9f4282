/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The BPF half as it is, and what only this translation unit knows: the shapes of its maps, which
 * are in their types alone.
 */
#include "main.bpf.c"

#define NR(field)	(sizeof(*(field)) / sizeof(int))
#define SHAPE(m, key, value, nr)	{ &(m), #m, NR((m).type), key, value, nr }
/* By what a map's definition has: a key, a value, a number of entries. */
#define KEYED(m)	SHAPE(m, sizeof(*(m).key), sizeof(*(m).value), NR((m).max_entries))
#define STORAGE(m)	SHAPE(m, sizeof(*(m).key), sizeof(*(m).value), 0)
#define QUEUE(m)	SHAPE(m, 0, sizeof(*(m).value), NR((m).max_entries))
#define RING(m)		SHAPE(m, 0, 0, NR((m).max_entries))

struct native_map native_maps[] = {
	QUEUE(free_slots),
	QUEUE(free_processes),
	QUEUE(free_cgroups),
	KEYED(carried_slots),
	KEYED(processes),
	KEYED(type_masks),
	KEYED(domain_masks),
	KEYED(scratches),
	KEYED(rescue_timers),
	KEYED(park_timers),
	KEYED(used_up_timers),
	KEYED(perf_timers),
	STORAGE(task_ctxs),
	STORAGE(cgroup_places),
	KEYED(events),
	KEYED(forests),
	RING(samples),
	RING(bell),
};
const u32 nr_native_maps = sizeof(native_maps) / sizeof(*native_maps);

/* build.rs counts them in the sources. */
_Static_assert(sizeof(native_maps) / sizeof(*native_maps) == NR_MAPS_IN_SOURCE,
	       "a map of src/bpf/ has no shape in half.c, or has one too many");

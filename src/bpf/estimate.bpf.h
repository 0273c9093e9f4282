/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a learnt model says of a task, as soon as a sample of it is complete. Only where all that
 * the model asks of a core type is counted at once; where sets of events take turns, the agent
 * puts them together and asks the same forest.
 */
#ifndef __HETERO_ESTIMATE_BPF_H
#define __HETERO_ESTIMATE_BPF_H

#include "state.bpf.h"

#define forest_for	bpf_for
#include "forest.h"

_Static_assert(SF_ONE == 1 << FOREST_SCORE_BITS, "scores and SFs are the same numbers");

/* Room for a feature of each event, a power of two. */
#define NR_FEATURES	16
_Static_assert(NR_FEATURES >= MAX_EVENTS, "every event may be a feature");

/* Which of the forests is that of a core type. */
static u32 forest_of(u32 type, u32 what)
{
	return what * MAX_CORE_TYPES + type;
}

/*
 * By forest, enum estimate_divisor. The agent writes it when the forest is there; while a forest is
 * exchanged for another, an estimate that has begun may be of both.
 */
u8 forest_divisors[NR_ESTIMATED * MAX_CORE_TYPES];

/* A forest's features are numbered as the events are in a sample. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);	/* the agent makes it larger, where there is a model */
	__type(key, u32);
	__type(value, struct forest);
} forests SEC(".maps");

/*
 * What a forest says of a task that has counted this, in 1/2^20; 0 if there is none. Global: the
 * verifier follows it once, and not in every place that calls it.
 */
__noinline s64 estimate(struct account *a __arg_nonnull, u32 which)
{
	u8 *divisor = MEMBER_VPTR(forest_divisors, [which]);
	u32 features[NR_FEATURES] = {}, k;
	const struct forest *forest;
	u64 per;

	if (!divisor || !*divisor)
		return 0;
	per = *divisor == PER_INSTRUCTION ? a->counts[0] : a->counts[1];
	forest = bpf_map_lookup_elem(&forests, &which);
	if (!forest || !per)
		return 0;
	bpf_for(k, 0, MAX_EVENTS) {
		if (k < MAX_EVENTS)
			features[k] = forest_feature(a->counts[k], per);
	}
	return forest_score(forest, features, NR_FEATURES);
}

/* For tests and measurements, and loaded for them alone: asks @trial->times, and how long that took. */
SEC("syscall")
int try_estimate(struct estimate_trial *trial)
{
	struct account a = {};
	u64 begun;
	s64 sf = 0;
	u32 k;

	for (k = 0; k < MAX_EVENTS; k++)
		a.counts[k] = trial->counts[k];
	begun = bpf_ktime_get_ns();
	bpf_for(k, 0, trial->times)
		sf = estimate(&a, forest_of(trial->core_type, ESTIMATED_SF));
	trial->took_ns = bpf_ktime_get_ns() - begun;
	trial->sf = sf;
	return 0;
}

#endif /* __HETERO_ESTIMATE_BPF_H */

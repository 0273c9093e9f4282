// SPDX-License-Identifier: GPL-2.0-only
/* See shares.h. */
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>

#include "shares.h"

/* Of the fastest core type's speed. */
#define LEAST_WEIGHT 150
#define MOST_WEIGHT 1000

/* New speeds count for one in so many. */
#define AVERAGED 4

/* A thread gets so much of a CPU that something else wants. */
#define SHARED 0.5

/* Fewer threads are advised where they are worth more by this part. */
#define WORTH_IT 1.05

static struct {
	struct scx_hetero_advice_record advice;
	/* CPUs of each core type that others leave, in whole ones. */
	unsigned places[TEAM_TYPES];
	/* Of all bodies, where all threads have as much to do: over the fastest type; 0 is not known. */
	double speed[TEAM_TYPES];
	/* Where the program may run, as it has it from whoever started it. */
	cpu_set_t may;
} shares;

/* What this thread keeps to, as in plan->type, and where it may run so; and that something else has bound it, which is left so. */
static __thread uint8_t keeps_to;
static __thread cpu_set_t kept;
static __thread bool bound;

/* What this thread works at. */
static __thread struct team_work *works;

bool shares_begin(void)
{
	return !sched_getaffinity(0, sizeof(shares.may), &shares.may);
}

void shares_take(const struct scx_hetero_advice_record *advice)
{
	shares.advice = *advice;
	/* Without what comes and goes by chance. */
	for (unsigned type = 0; type < TEAM_TYPES; type++) {
		unsigned free = advice->type[type].free, now = 1000 * shares.places[type];

		if (free > now + 700 || free + 700 < now)
			shares.places[type] = (free + 500) / 1000;
	}
}

/* Index of a CPU's core type; -1 is unknown. */
static int type_of(int cpu)
{
	int type = cpu >= 0 && cpu < SCX_HETERO_ADVICE_CPUS ? shares.advice.type_of_cpu[cpu] : 0;

	return type <= TEAM_TYPES ? type - 1 : -1;
}

/*
 * While shares are by core type a thread keeps to the type that its share was made for: in barriers of libomp
 * threads yield, and may go on anywhere. The first one is free: what it starts inherits where it may run, and
 * where it is is known when a region begins.
 */
static void keep_to(uint8_t type)
{
	cpu_set_t cpus;

	if (!bound)
		bound = sched_getaffinity(0, sizeof(cpus), &cpus) ||
			!CPU_EQUAL(&cpus, keeps_to ? &kept : &shares.may);
	if (bound)
		return;
	cpus = shares.may;
	for (int cpu = 0; type && cpu < SCX_HETERO_ADVICE_CPUS; cpu++)
		if (shares.advice.type_of_cpu[cpu] != type)
			CPU_CLR(cpu, &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus))
		return;
	keeps_to = type;
	kept = cpus;
}

void team_work_begin(struct team_work *work, struct team_plan *plan, unsigned number)
{
	uint8_t type = plan->shares && number && number < plan->known ? plan->type[number] : 0;

	if (plan->ours && type != keeps_to)
		keep_to(type);
	work->plan = plan;
	work->outer = works;
	works = work;
	if (!plan->counts)
		return;
	work->waited = work->waits_since = 0;
	work->cpu = sched_getcpu();
	work->began = team_now();
}

void team_waits(bool begins)
{
	struct team_work *work = works;

	if (!work || !work->plan->counts)
		return;
	if (begins) {
		work->waits_since = team_now();
	} else if (work->waits_since) {
		work->waited += team_now() - work->waits_since;
		work->waits_since = 0;
	}
}

void team_work_end(struct team_work *work, uint64_t iterations)
{
	struct team_plan *plan = work->plan;
	uint64_t busy;
	int type;

	works = work->outer;
	if (!plan->counts)
		return;
	busy = team_now() - work->began - work->waited;
	type = type_of(work->cpu);
	__atomic_fetch_add(&plan->all_busy, busy, __ATOMIC_RELAXED);
	__atomic_fetch_add(&plan->all_iterations, iterations, __ATOMIC_RELAXED);
	/* What has moved meanwhile says nothing of either. */
	if (type < 0 || type_of(sched_getcpu()) != type)
		return;
	__atomic_fetch_add(&plan->busy[type], busy, __ATOMIC_RELAXED);
	__atomic_fetch_add(&plan->iterations[type], iterations, __ATOMIC_RELAXED);
}

static void average(double *known, double speed)
{
	*known += (speed - *known) / (*known > 0 ? AVERAGED : 1);
}

/*
 * Of a region with shares where threads kept to their core type: else they may have been on others between its
 * beginning and its end. Of one with equal parts that has to do.
 */
void shares_learn(const struct team_plan *plan, struct kind *body, bool equal)
{
	double fastest;

	if (!(plan->shares || equal) || !plan->busy[0] || !plan->iterations[0])
		return;
	fastest = (double)plan->iterations[0] / plan->busy[0];
	for (unsigned type = 1; type < TEAM_TYPES; type++) {
		double speed;

		if (!plan->busy[type] || !plan->iterations[type])
			continue;
		speed = plan->iterations[type] / (double)plan->busy[type] / fastest;
		average(equal ? &shares.speed[type] : &body->speed[type], speed);
	}
}

/* Of a core type: as the body was there, or as is advised. */
static unsigned weight_of(unsigned type, const struct kind *body)
{
	unsigned speed = body && body->speed[type] > 0 ?
			 (unsigned)(1000 * body->speed[type]) : shares.advice.type[type].speed;

	return speed < LEAST_WEIGHT ? LEAST_WEIGHT : speed > MOST_WEIGHT ? MOST_WEIGHT : speed;
}

/* The core type for one more thread, where so many have one: what others leave first, then what is least crowded. */
static unsigned type_for_next(const unsigned *used)
{
	const struct scx_hetero_advice_record *advice = &shares.advice;
	unsigned best = 0;

	for (unsigned type = 0; type < advice->types && type < TEAM_TYPES; type++)
		if (used[type] < shares.places[type])
			return type;
	for (unsigned type = 1; type < advice->types && type < TEAM_TYPES; type++)
		if (used[type] * advice->type[best].cpus < used[best] * advice->type[type].cpus)
			best = type;
	return best;
}

/*
 * Threads that release others of libomp's barriers, which are trees of four, go to fast cores first: those whose numbers
 * 64 divides, then 16, then 4. On a slow one all that wait for it begin late.
 */
void shares_make(struct team_plan *plan, const struct kind *body, unsigned threads)
{
	unsigned used[TEAM_TYPES] = { 0 }, left[TEAM_TYPES], fastest = 0;
	int first = type_of(sched_getcpu());

	plan->shares = false;
	plan->known = threads;
	if (threads > TEAM_MOST_THREADS || first < 0)
		return;
	used[first]++;
	for (unsigned i = 1; i < threads; i++)
		used[type_for_next(used)]++;
	memcpy(left, used, sizeof(left));
	memset(plan->type, 0, threads);
	plan->type[0] = first + 1;
	left[first]--;
	for (unsigned each = 64; each; each /= 4)
		for (unsigned i = each; i < threads; i += each) {
			if (plan->type[i])
				continue;
			while (!left[fastest])
				fastest++;
			plan->type[i] = fastest + 1;
			left[fastest]--;
		}
	for (unsigned type = 0; type < TEAM_TYPES; type++) {
		plan->weight[type] = weight_of(type, body);
		plan->shares |= used[type] && plan->weight[type] != plan->weight[first];
	}
}

/* How many iterations threads of each core type have. */
struct parts {
	uint64_t each[TEAM_TYPES];
	unsigned more[TEAM_TYPES]; /* so many of them, the first ones, have one more */
};

/*
 * As is due to each, in whole iterations; what is left over goes to the type that is soonest through with one more. Of 32 on 4
 * fast cores and 4 of 0.4 of their speed that is 6 and 2: with 5 and 3 all would wait longer for the latter.
 */
static void divide(const struct team_plan *plan, unsigned threads, uint64_t trips, struct parts *parts)
{
	unsigned of_type[TEAM_TYPES] = { 0 };
	uint64_t rest = trips, all = 0;

	for (unsigned i = 0; i < threads; i++)
		of_type[plan->type[i] - 1]++;
	for (unsigned type = 0; type < TEAM_TYPES; type++)
		all += (uint64_t)of_type[type] * plan->weight[type];
	for (unsigned type = 0; type < TEAM_TYPES; type++) {
		parts->each[type] = (uint64_t)((unsigned __int128)trips * plan->weight[type] / all);
		parts->more[type] = 0;
		rest -= parts->each[type] * of_type[type];
	}
	while (rest) {
		unsigned best = TEAM_TYPES;

		for (unsigned type = 0; type < TEAM_TYPES; type++)
			if (of_type[type] &&
			    (best == TEAM_TYPES ||
			     (unsigned __int128)(parts->each[type] + 1) * plan->weight[best] <
			     (unsigned __int128)(parts->each[best] + 1) * plan->weight[type]))
				best = type;
		if (rest < of_type[best]) {
			parts->more[best] = (unsigned)rest;
			return;
		}
		parts->each[best]++;
		rest -= of_type[best];
	}
}

bool team_part(const struct team_plan *plan, unsigned number, unsigned threads, uint64_t trips,
	       uint64_t *first, uint64_t *count)
{
	unsigned before[TEAM_TYPES] = { 0 };
	struct parts parts;

	if (!plan->shares || threads < 2 || threads > plan->known || number >= threads || trips < 2)
		return false;
	divide(plan, threads, trips, &parts);
	*first = 0;
	for (unsigned i = 0; i <= number; i++) {
		unsigned type = plan->type[i] - 1;

		*count = parts.each[type] + (before[type]++ < parts.more[type]);
		*first += *count;
	}
	*first -= *count;
	return true;
}

/* As the scheduler has it (core/src/advice/team.rs): CPUs that nothing else wants first, then shared ones. */
unsigned shares_equal(unsigned most, bool meet)
{
	const struct scx_hetero_advice_record *advice = &shares.advice;
	double slowest = 1, best_worth = 0, worth = 0;
	unsigned best = 0, n = 0;

	for (unsigned turn = 0; turn < (meet ? 1 : 2); turn++)
		for (unsigned type = 0; type < advice->types && type < TEAM_TYPES; type++) {
			unsigned cpus = turn ? advice->type[type].cpus - shares.places[type] : shares.places[type];
			double speed = (type ? shares.speed[type] : 1) * (turn ? SHARED : 1);

			if (speed <= 0)
				return 0;
			if (advice->type[type].cpus < shares.places[type])
				cpus = turn ? 0 : advice->type[type].cpus;
			for (unsigned i = 0; i < cpus && n < most; i++) {
				slowest = speed < slowest ? speed : slowest;
				worth = ++n * slowest;
				if (worth > best_worth) {
					best_worth = worth;
					best = n;
				}
			}
		}
	return n == most && best_worth < worth * WORTH_IT ? most : best;
}

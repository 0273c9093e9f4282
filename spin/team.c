// SPDX-License-Identifier: GPL-2.0-only
/* See team.h. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../heartbeats/scx_hetero_advice.h"
#include "team.h"

/* A way of running is tried for so long at a time, ns, and so many regions. */
#define WINDOW 40000000ull
#define LEAST_REGIONS 4

/*
 * And before, while it is not counted: what libomp needs no more spins for 200 ms unless it is told
 * otherwise (KMP_BLOCKTIME), and what libgomp needs no more ends.
 */
#define SETTLES_LIBOMP 220000000ull
#define SETTLES 5000000ull

/* So many threads may do better with a CPU to spare. */
#define LEAST_WITH_SPARE 4

/* A way that takes so many times as long is not tried a second time. */
#define MUCH_WORSE 1.1

/* All ways are tried so often in a row; then the best is kept for a while, longer each time. */
#define ROUNDS 2
#define SHORTEST_HOLD 2000000000ull
#define LONGEST_HOLD 60000000000ull

/* Of the fastest core type's speed. */
#define LEAST_WEIGHT 150
#define MOST_WEIGHT 1000

/* Kinds of regions that are told apart in a trial, and bodies of which speeds by core type are kept. */
#define KINDS 256
#define BODIES 256

/* New speeds count for one in so many. */
#define AVERAGED 4

enum way {
	AS_ASKED, /* as the program would by itself */
	BY_SPEED, /* the same threads, with shares by core type */
	ADVISED, /* as many threads as are advised, with shares where there can be */
	WAYS,
};

struct kind {
	const void *body;
	unsigned size; /* of the iterations, as a power of two */
	uint64_t time[WAYS];
	unsigned count[WAYS];
};

/* How fast a region's body is on each core type, over the fastest; 0 is not known. */
struct body {
	const void *body;
	double speed[TEAM_TYPES];
};

static struct {
	/* Which thread's regions are looked after: the address of its own mark. */
	const char *primary;
	struct scx_hetero_advice subscription;
	struct scx_hetero_advice_record advice; /* threads is 0 while there is none */
	unsigned advised; /* threads that are tried, of `most` */
	unsigned most;
	bool by_speed;
	/* The trial: ways that take part, in which it is and since when. */
	bool settled;
	enum way way;
	unsigned ways, dropped, round, regions;
	uint64_t since, hold;
	bool counts; /* what the way needs to settle has passed */
	unsigned had[WAYS];
	uint64_t busy[WAYS], passed[WAYS];
	struct kind kinds[KINDS];
	struct body bodies[BODIES];
	/* CPUs of each core type that others leave, in whole ones. */
	unsigned places[TEAM_TYPES];
	/* Where the program may run, as it has it from whoever started it. */
	cpu_set_t may;
} team;

static __thread char mark;

/* What this thread keeps to, as in plan->type; and that something else has bound it, which is left so. */
static __thread uint8_t keeps_to;
static __thread bool bound;

/* SCX_HETERO_ADVICE: 0 is none, `always` takes what is advised as it is, without a trial. */
static bool always, never, looked, tells;

static void look_at_environment(void)
{
	const char *says = getenv("SCX_HETERO_ADVICE");

	never = says && !strcmp(says, "0");
	always = says && !strcmp(says, "always");
	tells = getenv("SCX_HETERO_ADVICE_VERBOSE");
	if (sched_getaffinity(0, sizeof(team.may), &team.may))
		never = true;
	looked = true;
}

uint64_t team_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Index of a CPU's core type; -1 is unknown. */
static int type_of(int cpu)
{
	int type = cpu >= 0 && cpu < SCX_HETERO_ADVICE_CPUS ? team.advice.type_of_cpu[cpu] : 0;

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

	if (!keeps_to && !bound)
		bound = sched_getaffinity(0, sizeof(cpus), &cpus) || !CPU_EQUAL(&cpus, &team.may);
	if (bound)
		return;
	cpus = team.may;
	for (int cpu = 0; type && cpu < SCX_HETERO_ADVICE_CPUS; cpu++)
		if (team.advice.type_of_cpu[cpu] != type)
			CPU_CLR(cpu, &cpus);
	if (!sched_setaffinity(0, sizeof(cpus), &cpus))
		keeps_to = type;
}

int team_enter(const struct team_plan *plan, unsigned number)
{
	uint8_t type = plan->shares && number && number < plan->known ? plan->type[number] : 0;

	if (type != keeps_to)
		keep_to(type);
	return sched_getcpu();
}

void team_did(struct team_plan *plan, int cpu, uint64_t busy, uint64_t iterations)
{
	int type = type_of(cpu);

	__atomic_fetch_add(&plan->all_busy, busy, __ATOMIC_RELAXED);
	__atomic_fetch_add(&plan->all_iterations, iterations, __ATOMIC_RELAXED);
	/* What has moved meanwhile says nothing of either. */
	if (type < 0 || type_of(sched_getcpu()) != type)
		return;
	__atomic_fetch_add(&plan->busy[type], busy, __ATOMIC_RELAXED);
	__atomic_fetch_add(&plan->iterations[type], iterations, __ATOMIC_RELAXED);
}

/* Where speeds of a body are kept; NULL: there are too many. */
static struct body *body_of(const void *of)
{
	size_t hash = ((uintptr_t)of >> 4) * 0x9e3779b97f4a7c15ull >> 56;

	for (unsigned tries = 0; tries < 16; tries++) {
		struct body *body = &team.bodies[(hash + tries) % BODIES];

		if (!body->body)
			body->body = of;
		if (body->body == of)
			return body;
	}
	return NULL;
}

/*
 * Takes in how fast a region's threads were on each core type: of one where they kept to theirs. Else they
 * may have been on others between its beginning and its end.
 */
static void learn(const struct team_plan *plan)
{
	struct body *body = body_of(plan->body);
	double fastest;

	if (!body || !plan->shares || !plan->busy[0] || !plan->iterations[0])
		return;
	fastest = (double)plan->iterations[0] / plan->busy[0];
	for (unsigned type = 1; type < TEAM_TYPES; type++) {
		double speed;

		if (!plan->busy[type] || !plan->iterations[type])
			continue;
		speed = plan->iterations[type] / (double)plan->busy[type] / fastest;
		body->speed[type] += (speed - body->speed[type]) / (body->speed[type] ? AVERAGED : 1);
	}
}

/* Of a core type: as this body was there, or as is advised. */
static unsigned weight_of(unsigned type, const struct body *body)
{
	unsigned speed = body && body->speed[type] && !always ?
			 (unsigned)(1000 * body->speed[type]) : team.advice.type[type].speed;

	return speed < LEAST_WEIGHT ? LEAST_WEIGHT : speed > MOST_WEIGHT ? MOST_WEIGHT : speed;
}

/* The core type for one more thread, where so many have one: what others leave first, then what is least crowded. */
static unsigned type_for_next(const unsigned *used)
{
	const struct scx_hetero_advice_record *advice = &team.advice;
	unsigned best = 0;

	for (unsigned type = 0; type < advice->types && type < TEAM_TYPES; type++)
		if (used[type] < team.places[type])
			return type;
	for (unsigned type = 1; type < advice->types && type < TEAM_TYPES; type++)
		if (used[type] * advice->type[best].cpus < used[best] * advice->type[type].cpus)
			best = type;
	return best;
}

/* Which thread is to be on which core type, and what it is due there. Without shares if all are alike. */
static void weigh(struct team_plan *plan, const void *of, unsigned threads)
{
	const struct body *body = body_of(of);
	unsigned used[TEAM_TYPES] = { 0 };
	int first = type_of(sched_getcpu());
	bool differ = false;

	plan->shares = false;
	plan->known = threads;
	if (threads > TEAM_MOST_THREADS || first < 0)
		return;
	plan->before[0] = 0;
	for (unsigned i = 0; i < threads; i++) {
		unsigned type = i ? type_for_next(used) : (unsigned)first, weight;

		used[type]++;
		plan->type[i] = type + 1;
		weight = weight_of(type, body);
		plan->before[i + 1] = plan->before[i] + weight;
		plan->least = i && plan->least < weight ? plan->least : weight;
		differ |= plan->before[i + 1] != (i + 1) * plan->before[1];
	}
	plan->shares = differ;
}

bool team_part(const struct team_plan *plan, unsigned number, unsigned threads, uint64_t trips,
	       uint64_t *first, uint64_t *count)
{
	unsigned __int128 begin, end;
	uint32_t all;

	/* With fewer threads than were weighed the sums of the first ones still stand. */
	if (!plan->shares || threads < 2 || threads > plan->known || number >= threads)
		return false;
	all = plan->before[threads];
	/* So that each gets one iteration at least: where the last one ends there may be no number for nothing. */
	if ((unsigned __int128)trips * plan->least < all)
		return false;
	begin = (unsigned __int128)trips * plan->before[number] / all;
	end = (unsigned __int128)trips * plan->before[number + 1] / all;
	*first = (uint64_t)begin;
	*count = (uint64_t)(end - begin);
	return true;
}

static bool takes_part(enum way way)
{
	return team.ways & (1u << way);
}

/* From now on regions run so. */
static void go(enum way way, uint64_t now)
{
	team.way = way;
	team.since = now;
	team.regions = 0;
	team.counts = false;
}

static void begin_trial(uint64_t now)
{
	team.settled = false;
	go(AS_ASKED, now);
	team.round = 0;
	memset(team.kinds, 0, sizeof(team.kinds));
	memset(team.busy, 0, sizeof(team.busy));
	memset(team.passed, 0, sizeof(team.passed));
	team.ways = 1u << AS_ASKED;
	team.dropped = 0;
	if (team.by_speed)
		team.ways |= 1u << BY_SPEED;
	if (team.advised < team.most)
		team.ways |= 1u << ADVISED;
	if (always) {
		team.settled = true;
		team.way = takes_part(ADVISED) ? ADVISED : takes_part(BY_SPEED) ? BY_SPEED : AS_ASKED;
		team.hold = LONGEST_HOLD;
	}
}

/* Time of a way over that of another, of the kinds of regions that both had; 0 is unknown. */
static double ratio(enum way way, enum way other)
{
	double sum = 0, sum_other = 0;

	for (unsigned i = 0; i < KINDS; i++) {
		const struct kind *kind = &team.kinds[i];
		unsigned both = kind->count[way] + kind->count[other];

		if (!kind->count[way] || !kind->count[other])
			continue;
		sum += (double)both * kind->time[way] / kind->count[way];
		sum_other += (double)both * kind->time[other] / kind->count[other];
	}
	return sum_other > 0 ? sum / sum_other : 0;
}

static void tell(enum way way, double slower)
{
	double part = team.passed[way] ? (double)team.busy[way] / team.passed[way] : 1;
	int waited = team.busy[way] ? (int)(1000 * (part > 1 ? 0 : 1 - part)) : -1;

	scx_hetero_advice_tell(&team.subscription, SCX_HETERO_ADVICE_TIME, team.had[way],
			       (uint64_t)(1e6 / slower), waited);
}

/* For people: what was tried, and how fast the bodies of regions are on the second core type. */
static void report(enum way best)
{
	static const char *const names[WAYS] = { "as asked", "by core type", "advised" };

	fprintf(stderr, "libscx_hetero_advice.so: %u threads; by core type %.3f, %u threads %.3f of the time: "
		"%s; speeds", team.most, ratio(BY_SPEED, AS_ASKED), team.advised,
		ratio(ADVISED, AS_ASKED), names[best]);
	for (unsigned i = 0; i < BODIES; i++)
		if (team.bodies[i].speed[1])
			fprintf(stderr, " %.2f", team.bodies[i].speed[1]);
	fprintf(stderr, ", told %.2f\n", team.advice.type[1].speed / 1000.0);
}

static void settle(uint64_t now)
{
	enum way best = AS_ASKED;
	double least = 1;

	for (enum way way = BY_SPEED; way < WAYS; way++) {
		double slower = takes_part(way) ? ratio(way, AS_ASKED) : 0;

		if (slower > 0 && slower < least) {
			least = slower;
			best = way;
		}
	}
	/* Rates that are compared must be of one way to divide work. */
	if (takes_part(ADVISED)) {
		enum way whole = team.by_speed ? BY_SPEED : AS_ASKED;
		double slower = ratio(ADVISED, whole);

		if (slower > 0) {
			tell(whole, 1);
			tell(ADVISED, slower);
		}
	}
	if (tells)
		report(best);
	team.settled = true;
	team.way = best;
	team.since = now;
	team.hold = team.hold < SHORTEST_HOLD ? SHORTEST_HOLD :
		    team.hold * 2 > LONGEST_HOLD ? LONGEST_HOLD : team.hold * 2;
}

/* Time has passed in the present way. */
static void step(uint64_t now)
{
	if (team.settled) {
		if (now - team.since >= team.hold && team.ways != 1u << AS_ASKED)
			begin_trial(now);
		return;
	}
	if (!team.counts) {
		team.counts = now - team.since >= (team.by_speed ? SETTLES_LIBOMP : SETTLES) ||
			      (team.way != ADVISED && now - team.since >= SETTLES);
		if (team.counts)
			team.since = now;
		return;
	}
	if (now - team.since < WINDOW || team.regions < LEAST_REGIONS)
		return;
	if (team.way != AS_ASKED && ratio(team.way, AS_ASKED) > MUCH_WORSE)
		team.dropped |= 1u << team.way;
	enum way next = team.way;
	do {
		next = (next + 1) % WAYS;
	} while (!takes_part(next) || team.dropped & (1u << next));
	go(next, now);
	if (next == AS_ASKED && ++team.round == ROUNDS)
		settle(now);
}

/* What others leave, without what comes and goes by chance. */
static void count_places(void)
{
	for (unsigned type = 0; type < TEAM_TYPES; type++) {
		unsigned free = team.advice.type[type].free, now = 1000 * team.places[type];

		if (free > now + 700 || free + 700 < now)
			team.places[type] = (free + 500) / 1000;
	}
}

/* Looks whether there is other advice; false if there is none at all. */
static bool take_advice(unsigned most, bool by_speed, uint64_t now)
{
	struct scx_hetero_advice_record *advice = &team.advice;
	unsigned advised;

	if (scx_hetero_advice_changed(&team.subscription) &&
	    !scx_hetero_advice_read(&team.subscription, advice))
		count_places();
	if (!team.subscription.page || !advice->threads)
		return false;
	advised = by_speed ? advice->threads : advice->threads_equal;
	if (!advised || advised > most)
		advised = most;
	/* With a CPU left for what comes by chance fewer threads may wait less: that is tried, too. */
	if (advised == most && most >= LEAST_WITH_SPARE && !always)
		advised = most - 1;
	if (advised != team.advised || most != team.most || by_speed != team.by_speed) {
		/* Advice that swings costs no trial each time. */
		if (team.settled && most == team.most && by_speed == team.by_speed &&
		    now - team.since < SHORTEST_HOLD / 2)
			return true;
		team.advised = advised;
		team.most = most;
		team.by_speed = by_speed;
		team.hold = 0;
		begin_trial(now);
	}
	return true;
}

void team_begin(struct team_plan *plan, const void *body, unsigned most, bool free, bool by_speed)
{
	const char *unclaimed = NULL;

	plan->ours = plan->shares = false;
	plan->threads = plan->known = 0;
	if (!looked)
		look_at_environment();
	if (never || most < 2 ||
	    (__atomic_load_n(&team.primary, __ATOMIC_RELAXED) != &mark &&
	     !__atomic_compare_exchange_n(&team.primary, &unclaimed, &mark, false, __ATOMIC_RELAXED,
					  __ATOMIC_RELAXED)))
		return;
	plan->ours = true;
	plan->body = body;
	memset(plan->busy, 0, sizeof(plan->busy));
	memset(plan->iterations, 0, sizeof(plan->iterations));
	plan->all_busy = plan->all_iterations = 0;
	plan->began = team_now();
	if (!free) {
		/* Told apart from others by its own size, it has its shares and no trial. */
		if (by_speed && team.advice.threads && team.settled && team.way != AS_ASKED)
			weigh(plan, body, most);
		plan->body = NULL;
		return;
	}
	if (!take_advice(most, by_speed, plan->began)) {
		plan->body = NULL;
		return;
	}
	step(plan->began);
	if (team.way == ADVISED)
		plan->threads = team.advised;
	if (by_speed && team.way != AS_ASKED)
		weigh(plan, body, plan->threads ? plan->threads : most);
}

/* Where this kind of region is counted; NULL: there are too many. */
static struct kind *kind_of(const void *body, uint64_t iterations)
{
	unsigned size = iterations ? 64 - __builtin_clzll(iterations) : 0;
	uint64_t hash = ((uintptr_t)body >> 2) * 0x9e3779b97f4a7c15ull + size * 0x2545f4914f6cdd1dull;

	for (unsigned tries = 0; tries < 16; tries++) {
		struct kind *kind = &team.kinds[((hash >> 56) + tries) & (KINDS - 1)];

		if (!kind->body) {
			kind->body = body;
			kind->size = size;
		}
		if (kind->body == body && kind->size == size)
			return kind;
	}
	return NULL;
}

void team_end(struct team_plan *plan, unsigned threads)
{
	uint64_t took;
	struct kind *kind;

	if (!plan->ours || !plan->body)
		return;
	learn(plan);
	if (team.settled || !team.counts)
		return;
	team.regions++;
	took = team_now() - plan->began;
	kind = kind_of(plan->body, plan->all_iterations);
	if (!kind)
		return;
	kind->time[team.way] += took;
	kind->count[team.way]++;
	team.had[team.way] = threads;
	team.busy[team.way] += plan->all_busy;
	team.passed[team.way] += took * threads;
}

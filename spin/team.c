// SPDX-License-Identifier: GPL-2.0-only
/* See team.h. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shares.h"

/* Another number of threads is tried no sooner than so long after the last, ns: what swings costs no trial each time. */
#define SHORTEST_ADVICE 1000000000ull

/* And fewer at all so long after the first: what is told first is of one look, at which a program that has just ended may be there. */
#define SURE_AFTER 150000000ull

/* Threads that wait for so much of their time meet often, and mostly wait for one that has no CPU. */
#define MEET 0.5
#define AVERAGED 4

/* While nothing is tried so many regions go by between two in which speeds are learnt. */
#define LEARNS_EACH 8
#define LEARNS_FIRST 16

static struct {
	/* Which thread's regions are looked after: the address of its own mark. */
	const char *primary;
	struct scx_hetero_advice subscription;
	struct scx_hetero_advice_record advice; /* threads is 0 while there is none */
	unsigned advised; /* threads that are tried, of `most` */
	unsigned most;
	bool by_speed;
	uint64_t subscribed_at, advised_at;
	unsigned has; /* threads that the last region had, or that were not let go since */
	unsigned regions;
	double waits; /* part of their time that all threads do, where all have as much to do */
	struct trial trial;
	/* Of each way: threads, and how long they worked of how long they had. */
	unsigned threads[WAYS];
	uint64_t busy[WAYS], passed[WAYS];
} team;

static __thread char mark;

/* SCX_HETERO_ADVICE: 0 is none, `always` takes what is advised as it is, without a trial. */
static bool always, never, looked, tells;

static void look_at_environment(void)
{
	const char *says = getenv("SCX_HETERO_ADVICE");

	never = (says && !strcmp(says, "0")) || !shares_begin();
	always = says && !strcmp(says, "always");
	tells = getenv("SCX_HETERO_ADVICE_VERBOSE");
	looked = true;
}

uint64_t team_now(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

/* Looks whether there is other advice; false if there is none at all. */
static bool take_advice(unsigned most, bool by_speed, uint64_t now)
{
	struct scx_hetero_advice_record *advice = &team.advice;
	bool other = most != team.most || by_speed != team.by_speed;
	unsigned advised = 0;

	if (scx_hetero_advice_changed(&team.subscription) &&
	    !scx_hetero_advice_read(&team.subscription, advice))
		shares_take(advice);
	if (!team.subscription.page || !advice->threads)
		return false;
	if (!team.subscribed_at)
		team.subscribed_at = now;
	if (!other && team.advised_at && now - team.advised_at < SHORTEST_ADVICE)
		return true;
	if (!by_speed && !always)
		advised = shares_equal(most, team.waits > MEET);
	if (!advised)
		advised = by_speed ? advice->threads : advice->threads_equal;
	if (!advised || advised > most || (!always && now - team.subscribed_at < SURE_AFTER))
		advised = most;
	if (!other && advised == team.advised)
		return true;
	team.advised = advised;
	team.advised_at = advised < most ? now : 0;
	team.most = most;
	team.by_speed = by_speed;
	if (other)
		trial_begin(&team.trial, by_speed ? 1u << BY_SPEED : 0, now);
	trial_advised_anew(&team.trial, advised < most, now);
	return true;
}

static enum way way_now(uint64_t now)
{
	if (!always)
		return trial_next(&team.trial, now);
	return team.advised < team.most ? ADVISED : team.by_speed ? BY_SPEED : AS_ASKED;
}

/* How a region of `most` threads runs, or of team.advised. */
static void plan_way(struct team_plan *plan, enum way way)
{
	unsigned wanted = way == ADVISED ? team.advised : team.most;
	struct kind *body = trial_kind(&team.trial, plan->body, ANY_SIZE);

	/* What libomp needs no more spins for 200 ms, unless it is told otherwise (KMP_BLOCKTIME). */
	plan->lets_go = team.by_speed && wanted < team.has;
	if (way == ADVISED)
		plan->threads = plan->lets_go ? team.has : wanted;
	team.has = wanted;
	plan->tried = !plan->lets_go;
	if (team.by_speed && way != AS_ASKED) {
		shares_make(plan, always ? NULL : body, plan->threads ? plan->threads : team.most);
		/* The first time it goes by what was advised, and learns. */
		plan->tried &= body && body->seen;
		if (body)
			body->seen = true;
	}
	plan->counts = team.trial.left || team.regions < LEARNS_FIRST || team.regions % LEARNS_EACH == 0;
	team.regions++;
}

void team_begin(struct team_plan *plan, const void *body, unsigned most, bool free, bool by_speed)
{
	const char *unclaimed = NULL;

	plan->ours = plan->shares = plan->counts = plan->lets_go = plan->tried = false;
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
	if (!free) {
		/* Told apart from others by its own size, it has its shares and no trial. */
		if (by_speed && team.advice.threads && team.trial.way != AS_ASKED)
			shares_make(plan, trial_kind(&team.trial, body, ANY_SIZE), most);
		team.has = most;
		return;
	}
	plan->began = team_now();
	if (!take_advice(most, by_speed, plan->began))
		return;
	plan_way(plan, way_now(plan->began));
	if (!plan->counts)
		return;
	memset(plan->busy, 0, sizeof(plan->busy));
	memset(plan->iterations, 0, sizeof(plan->iterations));
	plan->all_busy = plan->all_iterations = 0;
}

/* What was compared, to the scheduler: rates must be of one way to divide work. */
static void tell(void)
{
	enum way whole = team.by_speed ? BY_SPEED : AS_ASKED;
	const enum way both[] = { whole, ADVISED };

	if (trial_ratio(&team.trial, whole) <= 0 || trial_ratio(&team.trial, ADVISED) <= 0)
		return;
	for (unsigned i = 0; i < 2; i++) {
		enum way way = both[i];
		double part = team.passed[way] ? (double)team.busy[way] / team.passed[way] : 1;
		int waited = team.busy[way] ? (int)(1000 * (part > 1 ? 0 : 1 - part)) : -1;

		if (team.threads[way])
			scx_hetero_advice_tell(&team.subscription, SCX_HETERO_ADVICE_TIME, team.threads[way],
					       (uint64_t)(1e6 / trial_ratio(&team.trial, way)), waited);
	}
}

/* For people: what was tried, and how fast the bodies of regions are on the second core type. */
static void report(void)
{
	static const char *const names[WAYS] = { "as asked", "by core type", "advised" };
	const struct trial *trial = &team.trial;
	double as_asked = trial_ratio(trial, AS_ASKED);

	if (as_asked <= 0)
		as_asked = 1;
	fprintf(stderr, "libscx_hetero_advice.so: %u threads; by core type %.3f, %u threads %.3f of the time: "
		"%s; speeds", team.most, trial_ratio(trial, BY_SPEED) / as_asked, team.advised,
		trial_ratio(trial, ADVISED) / as_asked, names[trial->reference]);
	for (unsigned i = 0; i < KINDS; i++)
		if (trial->kinds[i].speed[1] > 0)
			fprintf(stderr, " %.2f", trial->kinds[i].speed[1]);
	fprintf(stderr, ", told %.2f; others leave", team.advice.type[1].speed / 1000.0);
	for (unsigned i = 0; i < team.advice.types && i < TEAM_TYPES; i++)
		fprintf(stderr, " %.1f", team.advice.type[i].free / 1000.0);
	fputc('\n', stderr);
}

void team_end(struct team_plan *plan, unsigned threads)
{
	enum way way = team.trial.way;
	struct trial_region region;
	struct kind *body;
	double busy = 1;
	uint64_t took;

	if (!plan->counts)
		return;
	body = trial_kind(&team.trial, plan->body, ANY_SIZE);
	if (body)
		shares_learn(plan, body, !team.by_speed);
	took = team_now() - plan->began;
	if (took && threads)
		busy = (double)plan->all_busy / took / threads;
	if (!team.by_speed && threads == team.most)
		team.waits += (1 - busy - team.waits) / AVERAGED;
	if (!team.trial.left)
		return;
	region = (struct trial_region) {
		.body = plan->body,
		.iterations = team.by_speed ? plan->all_iterations : 0,
		.began = plan->began,
		.took = took,
		.busy = team.by_speed ? busy : 1,
		.counts = plan->tried,
	};
	if (plan->tried) {
		team.threads[way] = threads;
		team.busy[way] += plan->all_busy;
		team.passed[way] += region.took * threads;
	}
	if (trial_take(&team.trial, &region)) {
		tell();
		if (tells)
			report();
	}
}

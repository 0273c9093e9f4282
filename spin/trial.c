// SPDX-License-Identifier: GPL-2.0-only
/* See trial.h. */
#include <math.h>
#include <string.h>

#include "trial.h"

/* Counted time of a block, ns, at least. */
#define BLOCK 10000000ull

/* Not counted before it: threads go to their core types. Regions that are this much longer count all the same. */
#define SETTLES 2000000ull
#define LONG_REGION (5 * SETTLES)

/* A program's first regions touch memory for the first time. */
#define WARMS_UP (2 * BLOCK)

/* So much of a block is of regions that the other one had, too, or it goes on for so many times its length. */
#define COMMON 0.5
#define LONGEST_BLOCK 4

/* How blocks differ by chance before anything is known: standard deviation of a logarithm, and for how many pairs it stands. */
#define CHANCE 0.06
#define CHANCE_PAIRS 2.0

/* Standard errors by which a way must be better, or worse; and pairs after which the mean decides. */
#define SURELY 1.5
#define MOST_PAIRS 8.0

/* A way that gains less is not taken. */
#define LEAST_GAIN 0.02

/* Where threads work for more than this part of the time, shares by core type have nothing to gain. */
#define ALL_BUSY 0.97

/* What lost is tried again after so long, each time later; what was in force, sooner. ns. */
#define WAITS_LOST 4000000000ull
#define WAITS_WON 1000000000ull
#define LATER 4
#define LONGEST_WAIT 60000000000ull

/* Regions that do not count, one after the other, after which a way is given up. */
#define MOST_UNCOUNTED 1000

/* What is known counts for so much when it is tried again. */
#define FADES 0.5

static bool is_in(unsigned ways, enum way way)
{
	return ways >> way & 1;
}

struct kind *trial_kind(struct trial *trial, const void *body, unsigned size)
{
	uint64_t hash = ((uintptr_t)body >> 2) * 0x9e3779b97f4a7c15ull + size * 0x2545f4914f6cdd1dull;

	for (unsigned tries = 0; tries < 16; tries++) {
		struct kind *kind = &trial->kinds[((hash >> 32) + tries) % KINDS];

		if (!kind->body) {
			kind->body = body;
			kind->size = size;
		}
		if (kind->body == body && kind->size == size)
			return kind;
	}
	return NULL;
}

/* From now on regions run so. */
static void go(struct trial *trial, enum way way, uint64_t now)
{
	double rest = way == trial->reference ? FADES : 0;

	for (unsigned i = 0; i < KINDS; i++) {
		trial->kinds[i].time[way] *= rest;
		trial->kinds[i].count[way] *= rest;
	}
	trial->way = way;
	trial->since = now;
	trial->settles = trial->warm ? SETTLES : WARMS_UP;
	trial->counted = 0;
	trial->busy = 0;
	trial->uncounted = 0;
}

void trial_begin(struct trial *trial, unsigned ways, uint64_t now)
{
	memset(trial->pairs, 0, sizeof(trial->pairs));
	memset(trial->sum, 0, sizeof(trial->sum));
	memset(trial->again, 0, sizeof(trial->again));
	memset(trial->wait, 0, sizeof(trial->wait));
	trial->squares = trial->freedom = 0;
	trial->ways = ways | 1u << AS_ASKED;
	trial->left = 0;
	trial->reference = AS_ASKED;
	go(trial, AS_ASKED, now);
}

/* `best`, of which pairs are known, is the reference from now on: all that is known is over its time. */
static void refer_to(struct trial *trial, enum way best)
{
	enum way before = trial->reference;
	double mean = trial->sum[best] / trial->pairs[best];

	trial->pairs[before] = trial->pairs[best];
	trial->sum[before] = 0;
	for (enum way way = AS_ASKED; way < WAYS; way++)
		trial->sum[way] -= trial->pairs[way] * mean;
	trial->pairs[best] = trial->sum[best] = 0;
	trial->reference = best;
}

/* The best of the others is in force, and what is known of them is doubtful. */
static void lose_reference(struct trial *trial, uint64_t now)
{
	enum way best = ADVISED;

	for (enum way way = AS_ASKED; way < ADVISED; way++)
		if (trial->pairs[way] > 0 &&
		    (best == ADVISED || trial_ratio(trial, way) < trial_ratio(trial, best)))
			best = way;
	if (best == ADVISED) {
		trial_begin(trial, trial->ways, now);
		return;
	}
	refer_to(trial, best);
	trial->left = 0;
	memset(trial->again, 0, sizeof(trial->again));
	memset(trial->wait, 0, sizeof(trial->wait));
	go(trial, best, now);
}

void trial_advised_anew(struct trial *trial, bool is, uint64_t now)
{
	trial->ways = is ? trial->ways | 1u << ADVISED : trial->ways & ~(1u << ADVISED);
	if (trial->reference == ADVISED)
		lose_reference(trial, now);
	trial->pairs[ADVISED] = trial->sum[ADVISED] = 0;
	trial->again[ADVISED] = trial->wait[ADVISED] = 0;
	if (!is)
		trial->left &= ~(1u << ADVISED);
	if (trial->way == ADVISED)
		go(trial, is ? ADVISED : trial->reference, now);
}

double trial_ratio(const struct trial *trial, enum way way)
{
	if (way == trial->reference)
		return 1;
	return trial->pairs[way] > 0 ? exp(trial->sum[way] / trial->pairs[way]) : 0;
}

/* Logarithm of the time of the present way over the reference's, of regions that both had. False: there are too few. */
static bool compare(const struct trial *trial, double *log_ratio)
{
	enum way way = trial->way, other = trial->reference;
	double sum = 0, sum_other = 0, common = 0, all = 0;

	for (unsigned i = 0; i < KINDS; i++) {
		const struct kind *kind = &trial->kinds[i];
		double both = kind->count[way] + kind->count[other];

		all += kind->time[way];
		if (kind->count[way] <= 0 || kind->count[other] <= 0)
			continue;
		common += kind->time[way];
		sum += both * kind->time[way] / kind->count[way];
		sum_other += both * kind->time[other] / kind->count[other];
	}
	if (sum <= 0 || sum_other <= 0)
		return false;
	*log_ratio = log(sum / sum_other);
	return common >= COMMON * all;
}

static void take_pair(struct trial *trial, double log_ratio)
{
	enum way way = trial->way;
	double *pairs = &trial->pairs[way], *sum = &trial->sum[way];

	if (*pairs > 0) {
		double off = log_ratio - *sum / *pairs;

		trial->squares += off * off * *pairs / (*pairs + 1);
		trial->freedom++;
	}
	*pairs += 1;
	*sum += log_ratio;
}

static void lose(struct trial *trial, enum way way, uint64_t now)
{
	uint64_t *wait = &trial->wait[way];

	*wait = !*wait ? WAITS_LOST : *wait * LATER > LONGEST_WAIT ? LONGEST_WAIT : *wait * LATER;
	trial->again[way] = now + *wait;
	trial->left &= ~(1u << way);
}

static void win(struct trial *trial, enum way best, uint64_t now)
{
	enum way before = trial->reference;

	refer_to(trial, best);
	trial->wait[best] = 0;
	trial->wait[before] = WAITS_WON;
	trial->again[before] = now + WAITS_WON;
	trial->left &= ~(1u << best);
}

/* Has `way` won or lost? */
static void decide(struct trial *trial, enum way way, uint64_t now)
{
	double variance = (CHANCE_PAIRS * CHANCE * CHANCE + trial->squares) / (CHANCE_PAIRS + trial->freedom);
	double pairs = trial->pairs[way], mean, error;

	if (pairs <= 0)
		return;
	mean = trial->sum[way] / pairs;
	error = sqrt(variance / pairs);
	if (mean + SURELY * error < 0 || (pairs >= MOST_PAIRS && mean < -LEAST_GAIN))
		win(trial, way, now);
	else if (mean - SURELY * error > 0 || pairs >= MOST_PAIRS)
		lose(trial, way, now);
}

/* What a block of the present way says. */
static void take_block(struct trial *trial, uint64_t now)
{
	enum way way = trial->way;
	double log_ratio;

	if (way == trial->reference) {
		if (way == AS_ASKED && is_in(trial->left, BY_SPEED) &&
		    trial->busy > ALL_BUSY * trial->counted)
			lose(trial, BY_SPEED, now);
		return;
	}
	if (!compare(trial, &log_ratio)) {
		/* Other regions came. As the reference runs, what they take is found out. */
		trial->wait[way] = trial->wait[way] ? trial->wait[way] : WAITS_WON / LATER;
		lose(trial, way, now);
		return;
	}
	take_pair(trial, log_ratio);
	decide(trial, way, now);
	/* Where it has won, the others are over its time now. */
	for (enum way other = AS_ASKED; way == trial->reference && other < WAYS; other++)
		if (is_in(trial->left, other))
			decide(trial, other, now);
}

bool trial_take(struct trial *trial, const struct trial_region *region)
{
	uint64_t now = region->began + region->took;
	bool settled = region->began - trial->since >= trial->settles || region->took >= LONG_REGION;
	struct kind *kind;
	double log_ratio;
	enum way next;

	if (!region->counts || (trial->left && !settled)) {
		/* Whatever the reason is: no way that cannot be told is stayed in. */
		if (!trial->left || ++trial->uncounted < MOST_UNCOUNTED || trial->way == trial->reference)
			return false;
		lose(trial, trial->way, now);
		go(trial, trial->reference, now);
		return !trial->left;
	}
	trial->uncounted = 0;
	kind = trial_kind(trial, region->body,
			  region->iterations ? 64 - __builtin_clzll(region->iterations) : 0);
	if (kind) {
		kind->time[trial->way] += region->took;
		kind->count[trial->way]++;
	}
	if (!trial->left)
		return false;
	trial->counted += region->took;
	trial->busy += region->busy * region->took;
	if (trial->counted < BLOCK)
		return false;
	if (trial->way != trial->reference && trial->counted < LONGEST_BLOCK * BLOCK &&
	    !compare(trial, &log_ratio))
		return false;
	trial->warm = true;
	take_block(trial, now);
	/* By turns, beginning with the reference. */
	next = trial->left ? trial->way : trial->reference;
	while (trial->left) {
		next = (next + 1) % WAYS;
		if (next == trial->reference || is_in(trial->left, next))
			break;
	}
	go(trial, next, now);
	return !trial->left;
}

enum way trial_next(struct trial *trial, uint64_t now)
{
	if (trial->left)
		return trial->way;
	for (enum way way = AS_ASKED; way < WAYS; way++) {
		if (way == trial->reference || !is_in(trial->ways, way) || now < trial->again[way])
			continue;
		trial->left |= 1u << way;
		trial->pairs[way] *= FADES;
		trial->sum[way] *= FADES;
	}
	if (trial->left) {
		trial->squares *= FADES;
		trial->freedom *= FADES;
		go(trial, trial->reference, now);
	}
	return trial->way;
}

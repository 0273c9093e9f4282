/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which way of running parallel regions is fastest: what is tried, for how long, and when again. No clock and no
 * environment here, so that `regret` drives it with regions of its own.
 *
 * A way is compared with the one in force, the reference: a block of regions of either, by turns. After each pair of
 * blocks the mean of the logarithms of their ratios decides, as soon as it is further from 0 than chance takes it.
 */
#ifndef SCX_HETERO_TRIAL_H
#define SCX_HETERO_TRIAL_H

#include <stdbool.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

#define TRIAL_TYPES 4

enum way {
	AS_ASKED, /* as the program would by itself */
	BY_SPEED, /* the same threads, with shares by core type */
	ADVISED, /* as many threads as are advised, with shares where there can be */
	WAYS,
};

/* A kind of region: its body and how many iterations its loops had, as a power of two. */
struct kind {
	const void *body;
	unsigned size;
	/* In the present blocks; that of the reference fades. */
	double time[WAYS], count[WAYS];
	/* Of bodies, whatever their size (ANY_SIZE): how fast on each core type, over the fastest; 0 is not known. */
	double speed[TRIAL_TYPES];
	bool seen; /* it has been divided by core type */
};

#define ANY_SIZE 255u
#define KINDS 512

struct trial {
	struct kind kinds[KINDS];
	unsigned ways; /* by way, a bit for those that may be tried */
	unsigned left; /* those that are being tried; 0: regions run as the reference does */
	enum way reference, way; /* the latter: how the next region is to run */
	/* Of each way: pairs of blocks, and sum of the logarithms of its time over the reference's. */
	double pairs[WAYS], sum[WAYS];
	double squares, freedom; /* how these differ from their means */
	uint64_t again[WAYS], wait[WAYS]; /* tried no sooner; and how long it waited for that */
	/* The present block. */
	uint64_t since, settles, counted;
	double busy; /* part of the counted time in which threads worked, times `counted` */
	unsigned uncounted; /* regions of it, one after the other */
	bool warm; /* the first block is over */
};

struct trial_region {
	const void *body;
	uint64_t iterations;
	uint64_t began, took; /* ns */
	double busy; /* part of the time that its threads did not wait; 1 if it is not known */
	bool counts; /* it was run as it would be in the long run */
};

/* Nothing is known, but for speeds of bodies. `ways` may be tried from now on. */
void trial_begin(struct trial *trial, unsigned ways, uint64_t now);

/* ADVISED is another way from now on, or is none (`is`). */
void trial_advised_anew(struct trial *trial, bool is, uint64_t now);

/* How the next region is to run. */
enum way trial_next(struct trial *trial, uint64_t now);

/* How it ran. True if a trial has ended with that. */
bool trial_take(struct trial *trial, const struct trial_region *region);

/* Time of a way over the reference's; 0: not known. */
double trial_ratio(const struct trial *trial, enum way way);

/* Where a kind of region is kept; NULL: there are too many. */
struct kind *trial_kind(struct trial *trial, const void *body, unsigned size);

#pragma GCC visibility pop

#endif /* SCX_HETERO_TRIAL_H */

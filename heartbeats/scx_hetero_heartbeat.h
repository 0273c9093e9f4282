/* SPDX-License-Identifier: MIT */
/*
 * Tell scx_hetero how fast this program must be, and how fast it is (docs/goals.md):
 *
 *	struct scx_hetero_hb_options options = { .size = sizeof(options) };
 *	options.name = "player";
 *	options.rate = 30;
 *	struct scx_hetero_hb *hb = scx_hetero_hb_open(&options);
 *	while (decode_frame())
 *		scx_hetero_hb_beat(hb);
 *	scx_hetero_hb_close(hb);
 *
 * The scheduler gives the program the CPU time that 30 beats per second take. Where no
 * scheduler runs all of this works as well, and the rates can be read; the session
 * connects by itself when one starts.
 *
 * A beat is a few additions in memory and a look at the clock; once a second it also
 * looks after the connection, which takes a system call or a few and never waits. There
 * is no thread behind it. Any thread may beat, several at once. Nothing changes errno
 * but the functions that return -1 or NULL. A NULL session is let pass everywhere.
 *
 * After fork() the child has a session of its own, with the same goal, from its first
 * beat on. After a bare clone() that shares no memory a child must not beat.
 */
#ifndef SCX_HETERO_HEARTBEAT_H
#define SCX_HETERO_HEARTBEAT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SCX_HETERO_HB_VERSION 1
/* Threads of a session that are named one by one. */
#define SCX_HETERO_HB_MAX_TIDS 256
/* Beats that the windowed rate is over, at most, and unless something else is asked for. */
#define SCX_HETERO_HB_MAX_WINDOW 1023
#define SCX_HETERO_HB_DEFAULT_WINDOW 20
/* What other goals weigh, as cgroups do. */
#define SCX_HETERO_HB_DEFAULT_WEIGHT 100

struct scx_hetero_hb;

/* Set size, and what you want to say; leave the rest 0. */
struct scx_hetero_hb_options {
	size_t size;		/* sizeof(struct scx_hetero_hb_options) */
	const char *name;	/* for people, up to 15 bytes; NULL: the program's */
	/* One of these at most; without any there is no goal yet. */
	double rate;		/* beats per second, 0.001 to 1e6 */
	uint64_t period_ns;	/* from beat to beat */
	uint64_t deadline_ns;	/* for the work of a beat: see scx_hetero_hb_beats_between() */
	uint32_t weight;	/* 1 to 10000, where goals exceed the machine; 0: 100 */
	uint32_t window;	/* beats that the windowed rate is over; 0: 20 */
	int32_t pid;		/* a child to speak for, or as root any process; 0: this one */
	uint32_t nr_tids;	/* these threads alone; 0: all that the process has */
	const int32_t *tids;
	const char *socket;	/* the scheduler's; NULL: $SCX_HETERO_GOALS, or the usual one */
	uint32_t children;	/* 1: what the process starts is meant, too */
};

/* NULL if options are wrong (EINVAL) or memory is short (ENOMEM). options may be NULL. */
struct scx_hetero_hb *scx_hetero_hb_open(const struct scx_hetero_hb_options *options);
void scx_hetero_hb_close(struct scx_hetero_hb *hb);

/* A piece of work is done; or n are, since the last call. */
void scx_hetero_hb_beat(struct scx_hetero_hb *hb);
void scx_hetero_hb_beats(struct scx_hetero_hb *hb, uint64_t n);
/*
 * n pieces were begun and done at these times (scx_hetero_hb_now_ns()). For a program
 * that waits between pieces, as for the screen: a deadline is held against the time
 * from start to end, and not against the rate. start_ns 0 is not known.
 */
void scx_hetero_hb_beats_between(struct scx_hetero_hb *hb, uint64_t n, uint64_t start_ns,
				 uint64_t end_ns);
/* CLOCK_MONOTONIC, ns. */
uint64_t scx_hetero_hb_now_ns(void);

/* Another goal from now on; 0 is none. -1 with EINVAL if it makes no sense. */
int scx_hetero_hb_set_rate(struct scx_hetero_hb *hb, double beats_per_second);
int scx_hetero_hb_set_period(struct scx_hetero_hb *hb, uint64_t ns);
int scx_hetero_hb_set_deadline(struct scx_hetero_hb *hb, uint64_t ns);
/* Other threads, another weight; n 0 is all threads of the process. */
int scx_hetero_hb_set_threads(struct scx_hetero_hb *hb, const int32_t *tids, uint32_t n);
int scx_hetero_hb_set_weight(struct scx_hetero_hb *hb, uint32_t weight);

/* Beats so far. */
uint64_t scx_hetero_hb_count(const struct scx_hetero_hb *hb);
/* Beats per second: since the first, over the last ones, and of the last one. 0 where
 * there are too few to tell. */
double scx_hetero_hb_global_rate(const struct scx_hetero_hb *hb);
double scx_hetero_hb_window_rate(const struct scx_hetero_hb *hb);
double scx_hetero_hb_instant_rate(const struct scx_hetero_hb *hb);
/* Beats per second that are wanted; 0: no goal. */
double scx_hetero_hb_target(const struct scx_hetero_hb *hb);

/* Whether the scheduler has the session: 1, or 0. Looks at once. */
int scx_hetero_hb_connected(struct scx_hetero_hb *hb);
/* The same in words, with the reason if the scheduler refuses; as snprintf(). */
int scx_hetero_hb_state(struct scx_hetero_hb *hb, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif /* SCX_HETERO_HEARTBEAT_H */

// SPDX-License-Identifier: MIT
/*
 * cost [THREADS]: nanoseconds that a beat takes, and what of them is the look at the
 * clock: the least of many rounds, for the machine may have other things to do, and the
 * median, for threads that beat at once may be alone for a round. Beats go to the page that
 * a scheduler reads, or, where none has answered within a second, to the library's own.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scx_hetero_heartbeat.h"

enum { ROUNDS = 1000, BEATS = 10000 };

static volatile uint64_t seen;

static void look_at_the_clock(struct scx_hetero_hb *hb)
{
	(void)hb;
	seen = scx_hetero_hb_now_ns();
}

struct round {
	void (*what)(struct scx_hetero_hb *);
	struct scx_hetero_hb *hb;
	double least, median;
};

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static void *measure(void *argument)
{
	struct round *round = argument;
	double ns[ROUNDS];
	int i, r;

	for (r = 0; r < ROUNDS; r++) {
		uint64_t begin = scx_hetero_hb_now_ns();

		for (i = 0; i < BEATS; i++)
			round->what(round->hb);
		ns[r] = (double)(scx_hetero_hb_now_ns() - begin) / BEATS;
	}
	qsort(ns, ROUNDS, sizeof(ns[0]), compare);
	round->least = ns[0];
	round->median = ns[ROUNDS / 2];
	return NULL;
}

int main(int argc, char **argv)
{
	struct scx_hetero_hb_options options = { .size = sizeof(options), .rate = 60 };
	const struct {
		const char *name;
		void (*what)(struct scx_hetero_hb *);
	} kinds[] = {
		{ "beat", scx_hetero_hb_beat },
		{ "look at the clock alone", look_at_the_clock },
	};
	int threads = argc > 1 ? atoi(argv[1]) : 1, i;
	struct scx_hetero_hb *hb = scx_hetero_hb_open(&options);
	char state[128];
	unsigned kind;

	if (!hb || threads < 1 || threads > 64) {
		fprintf(stderr, "cost: cannot open a session, or not 1 to 64 threads\n");
		return 1;
	}
	for (i = 0; i < 100 && !scx_hetero_hb_connected(hb); i++)
		usleep(10000);
	scx_hetero_hb_state(hb, state, sizeof(state));
	printf("%d thread%s on one session, %s\n", threads, threads == 1 ? "" : "s", state);
	for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		struct round rounds[64];
		pthread_t ids[64];
		struct round worst = { 0 };

		for (i = 0; i < threads; i++) {
			rounds[i] = (struct round){ kinds[kind].what, hb, 0, 0 };
			if (pthread_create(&ids[i], NULL, measure, &rounds[i]))
				return 1;
		}
		for (i = 0; i < threads; i++) {
			pthread_join(ids[i], NULL);
			if (rounds[i].least > worst.least)
				worst.least = rounds[i].least;
			if (rounds[i].median > worst.median)
				worst.median = rounds[i].median;
		}
		printf("%-26s %6.1f ns  median %6.1f ns\n", kinds[kind].name, worst.least,
		       worst.median);
	}
	scx_hetero_hb_close(hb);
	return 0;
}

// SPDX-License-Identifier: MIT
/*
 * cost [THREADS]: nanoseconds that a beat takes, and what of them is the look at the
 * clock. The least of several rounds, for the machine may have other things to do.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "scx_hetero_heartbeat.h"

enum { ROUNDS = 1000, BEATS = 10000 };

static volatile uint64_t seen;

static void look_at_the_clock(struct scx_hetero_hb *hb)
{
	(void)hb;
	seen = scx_hetero_hb_now_ns();
}

static void without_the_clock(struct scx_hetero_hb *hb)
{
	scx_hetero_hb_beats_between(hb, 1, 0, 1);
}

struct round {
	void (*what)(struct scx_hetero_hb *);
	struct scx_hetero_hb *hb;
	double ns;
};

static void *measure(void *argument)
{
	struct round *round = argument;
	double least = 1e9;
	int i, r;

	for (r = 0; r < ROUNDS; r++) {
		uint64_t begin = scx_hetero_hb_now_ns();
		double took;

		for (i = 0; i < BEATS; i++)
			round->what(round->hb);
		took = (double)(scx_hetero_hb_now_ns() - begin) / BEATS;
		if (took < least)
			least = took;
	}
	round->ns = least;
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
		{ "beat without the clock", without_the_clock },
	};
	int threads = argc > 1 ? atoi(argv[1]) : 1, i;
	struct scx_hetero_hb *hb = scx_hetero_hb_open(&options);
	char state[128];
	unsigned kind;

	if (!hb || threads < 1 || threads > 64) {
		fprintf(stderr, "cost: cannot open a session, or not 1 to 64 threads\n");
		return 1;
	}
	scx_hetero_hb_state(hb, state, sizeof(state));
	printf("%d thread%s on one session, %s\n", threads, threads == 1 ? "" : "s", state);
	for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
		struct round rounds[64];
		pthread_t ids[64];
		double worst = 0;

		for (i = 0; i < threads; i++) {
			rounds[i] = (struct round){ kinds[kind].what, hb, 0 };
			if (pthread_create(&ids[i], NULL, measure, &rounds[i]))
				return 1;
		}
		for (i = 0; i < threads; i++) {
			pthread_join(ids[i], NULL);
			if (rounds[i].ns > worst)
				worst = rounds[i].ns;
		}
		printf("%-26s %6.1f ns\n", kinds[kind].name, worst);
	}
	scx_hetero_hb_close(hb);
	return 0;
}

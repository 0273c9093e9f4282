// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

struct member {
	pthread_t id;
	struct team *team;
	unsigned int thread;
};

struct team {
	struct cpu_list pin;
	void (*run)(void *state, unsigned int thread);
	void *state;
	unsigned int threads;
	struct member member[];
};

static void *run_member(void *arg)
{
	struct member *member = arg;
	struct team *team = member->team;

	if (team->pin.nr)
		pin_to(team->pin.cpu[member->thread % team->pin.nr]);
	team->run(team->state, member->thread);
	return NULL;
}

struct team *team_start(const struct options *options,
			void (*run)(void *state, unsigned int thread), void *state)
{
	struct team *team = allocate(sizeof(*team) + options->threads * sizeof(team->member[0]));

	team->pin = options->pin;
	team->run = run;
	team->state = state;
	team->threads = options->threads;
	for (unsigned int i = 1; i < team->threads; i++) {
		struct member *member = &team->member[i];
		int error;

		member->team = team;
		member->thread = i;
		error = pthread_create(&member->id, NULL, run_member, member);
		if (error)
			fail("cannot start thread %u: %s", i, strerror(error));
	}
	return team;
}

void team_join(struct team *team)
{
	for (unsigned int i = 1; i < team->threads; i++)
		pthread_join(team->member[i].id, NULL);
	free(team);
}

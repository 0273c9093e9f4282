// SPDX-License-Identifier: MIT
/* What tests/host/goals.rs looks at: it prints a line, and goes on when it gets one. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scx_hetero_heartbeat.h"

enum { THREADS = 4, BEATS = 10000 };

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "test: wrong: %s\n", what);
	exit(1);
}

static void step(const char *said)
{
	char line[16];

	puts(said);
	fflush(stdout);
	check(!!fgets(line, sizeof(line), stdin), "nobody listens");
}

static void connect_session(struct scx_hetero_hb *hb)
{
	int tries;

	for (tries = 0; tries < 6000 && !scx_hetero_hb_connected(hb); tries++)
		usleep(10000);
	check(scx_hetero_hb_connected(hb), "it does not connect");
}

static void *beat(void *hb)
{
	int i;

	for (i = 0; i < BEATS; i++)
		scx_hetero_hb_beat(hb);
	return NULL;
}

int main(void)
{
	struct scx_hetero_hb_options options = {
		.size = sizeof(options), .name = "video", .rate = 60,
	};
	struct scx_hetero_hb *video = scx_hetero_hb_open(&options), *sound;
	pthread_t threads[THREADS];
	pid_t child;
	int i;

	check(!!video, "no session");
	connect_session(video);
	options.name = "sound";
	options.rate = 0;
	options.deadline_ns = 10000000;
	sound = scx_hetero_hb_open(&options);
	connect_session(sound);
	options.rate = 60;
	check(!scx_hetero_hb_open(&options), "two goals in one");

	for (i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, beat, video), "no thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check(scx_hetero_hb_count(video) == THREADS * BEATS, "beats are lost");
	check(scx_hetero_hb_window_rate(video) > 0, "no rate");
	step("threads have beaten");

	child = fork();
	check(child >= 0, "no child");
	if (!child) {
		check(!scx_hetero_hb_count(video), "a child has its parent's beats");
		scx_hetero_hb_beats(video, 3);
		connect_session(video);
		step("a child has beaten");
		_exit(0);
	}
	check(waitpid(child, &i, 0) == child && !i, "the child is unwell");
	check(scx_hetero_hb_count(video) == THREADS * BEATS, "a child beats for its parent");
	step("the child has ended");
	return 0;
}

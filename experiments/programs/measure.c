// SPDX-License-Identifier: GPL-2.0-only
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "programs.h"
#include "scx_hetero_heartbeat.h"

#define WARM_UNITS 3 /* where units are counted, so that each run does the same */
#define MOST_FRAMES 65536 /* of which it is known how long each took: 36 minutes at 30 a second */

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void print_progress(const struct program *program, const struct options *options,
			   uint64_t units, double seconds)
{
	if (options->json)
		printf("{\"program\":\"%s\",\"progress\":true,\"units\":%llu,\"seconds\":%.6f}\n",
		       program->name, (unsigned long long)units, seconds);
	else
		printf("%s: %llu units in %.3f s so far\n", program->name,
		       (unsigned long long)units, seconds);
	fflush(stdout);
}

void warm_up(const struct program *program, void *state, const struct options *options)
{
	uint64_t end = now_ns() + options->warmup * 1e9;

	if (options->units)
		for (int i = 0; i < WARM_UNITS; i++)
			program->unit(state);
	else
		while (now_ns() < end)
			program->unit(state);
}

static uint32_t frame_us[MOST_FRAMES];

static int by_size(const void *a, const void *b)
{
	uint32_t one = *(const uint32_t *)a, other = *(const uint32_t *)b;

	return (one > other) - (one < other);
}

/* What 99 of 100 frames took no longer than, by the nearest rank. */
static double p99_ms(uint64_t frames)
{
	uint64_t known = frames < MOST_FRAMES ? frames : MOST_FRAMES;

	if (!known)
		return 0;
	qsort(frame_us, known, sizeof(*frame_us), by_size);
	return frame_us[(known * 99 + 99) / 100 - 1] / 1e3;
}

/* A frame was to begin at *@begin, ns, and is done: sleeps until the next is to begin. */
static void frame_done(struct measurement *m, uint64_t *begin, uint64_t every)
{
	uint64_t took = now_ns() - *begin;
	struct timespec next;

	if (m->frames < MOST_FRAMES)
		frame_us[m->frames] = took / 1000 < UINT32_MAX ? took / 1000 : UINT32_MAX;
	m->frames++;
	m->late += took > every;
	if (took / 1e6 > m->longest_ms)
		m->longest_ms = took / 1e6;
	/* Those that should have begun meanwhile are left out, as a player does. */
	*begin += (took / every + 1) * every;
	next.tv_sec = *begin / 1000000000;
	next.tv_nsec = *begin % 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL) == EINTR)
		;
}

/* Whole units, over the time they took: the rate is not rounded to a deadline. */
struct measurement measure(const struct program *program, void *state,
			   const struct options *options)
{
	struct measurement m = { 0 };
	uint64_t start = now_ns(), elapsed, limit = options->seconds * 1e9;
	uint64_t step = options->progress_ms * 1000000, progress = step;
	uint64_t every = options->every_ms * 1e6, begin = start;
	struct scx_hetero_hb_options goal = {
		.size = sizeof(goal), .name = program->name, .rate = options->rate,
	};
	struct scx_hetero_hb *hb = options->rate ? scx_hetero_hb_open(&goal) : NULL;

	do {
		m.checksum = scramble(m.checksum ^ program->unit(state));
		m.units++;
		scx_hetero_hb_beat(hb);
		if (every && m.units % options->frame == 0)
			frame_done(&m, &begin, every);
		elapsed = now_ns() - start;
		if (step && elapsed >= progress) {
			print_progress(program, options, m.units, elapsed / 1e9);
			progress = (elapsed / step + 1) * step;
		}
	} while (options->units ? m.units < options->units : elapsed < limit);
	scx_hetero_hb_close(hb);
	m.seconds = elapsed / 1e9;
	m.p99_ms = p99_ms(m.frames);
	return m;
}

/* As in "0-3,6", or nothing where it can't be read. */
static void read_online(char *text, int size)
{
	FILE *file = fopen("/sys/devices/system/cpu/online", "r");

	if (!file || !fgets(text, size, file))
		*text = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (file)
		fclose(file);
}

void pin_to(int cpu)
{
	char online[256];
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (!sched_setaffinity(0, sizeof(set), &set))
		return;
	if (errno != EINVAL)
		fail("cannot run on CPU %d: %s", cpu, strerror(errno));
	read_online(online, sizeof(online));
	usage_error("cannot run on CPU %d: no such CPU, or it is offline or forbidden here "
		    "(online: %s)", cpu, online);
}

/* Before anything is measured. Leaves the process on the last of them. */
void check_cpus(const struct cpu_list *cpus)
{
	for (unsigned int i = 0; i < cpus->nr; i++)
		pin_to(cpus->cpu[i]);
}

void *allocate(size_t bytes)
{
	void *memory;

	if (posix_memalign(&memory, LINE, bytes))
		fail("no memory for %zu KiB", bytes / 1024);
	return memory;
}

// SPDX-License-Identifier: GPL-2.0-only
/*
 * How much faster one CPU is than another, by program; with --load, while others
 * are busy.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs.h"

static _Noreturn void run_load(const struct options *options, int cpu, pid_t suite, int ready)
{
	const struct program *program = options->load;
	void *state;

	/* However the suite ends, its load ends with it. */
	if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != suite)
		_exit(1);
	pin_to(cpu);
	state = program->create(options);
	program->unit(state);
	if (write(ready, "", 1) != 1)
		_exit(1);
	for (;;)
		program->unit(state);
}

/* Returns when it is at work. */
static pid_t start_load(const struct options *options, int cpu)
{
	int ready[2];
	char byte;
	pid_t suite = getpid(), load;

	fflush(stdout);
	if (pipe(ready) || (load = fork()) < 0)
		fail("cannot start a load: %s", strerror(errno));
	if (!load)
		run_load(options, cpu, suite, ready[1]);
	close(ready[1]);
	if (read(ready[0], &byte, 1) != 1)
		fail("the load for CPU %d did not start", cpu);
	close(ready[0]);
	return load;
}

static void end_load(pid_t load)
{
	/* One that is gone already was not there while the suite measured. */
	if (waitpid(load, NULL, WNOHANG))
		fail("a load ended before the suite did");
	kill(load, SIGKILL);
	waitpid(load, NULL, 0);
}

static double rate_on(int cpu, const struct program *program, void *state,
		      const struct options *options)
{
	struct measurement m;

	pin_to(cpu);
	warm_up(program, state, options);
	m = measure(program, state, options);
	return m.units / m.seconds;
}

/* Returns the mean ratio. */
static double compare(const struct program *program, const struct options *options)
{
	int a = options->pin.cpu[0], b = options->pin.cpu[1];
	double rates_a = 0, rates_b = 0, mean = 0, squares = 0;
	unsigned int n = 0;
	void *state;

	pin_to(a);
	/* One for both CPUs, so that its memory lies where it did on the other. */
	state = program->create(options);
	while (n < options->repeats) {
		double on_a = rate_on(a, program, state, options);
		double on_b = rate_on(b, program, state, options);
		double ratio = on_a / on_b, off = ratio - mean;

		if (options->json)
			printf("{\"program\":\"%s\",\"repeat\":%u,\"cpu\":[%d,%d],"
			       "\"rate\":[%.9g,%.9g],\"ratio\":%.9g}\n",
			       program->name, n + 1, a, b, on_a, on_b, ratio);
		rates_a += on_a;
		rates_b += on_b;
		mean += off / ++n;
		squares += off * (ratio - mean);
	}
	program->destroy(state);
	if (!options->json) {
		printf("%-16s %12.1f %12.1f %8.3f", program->name, rates_a / n, rates_b / n, mean);
		if (n > 1)
			printf(" %8.3f\n", sqrt(squares / (n - 1)));
		else
			printf(" %8s\n", "-");
	}
	fflush(stdout);
	return mean;
}

/* All that have one thread: several would have to wait for each other on one CPU. */
static void choose_programs(struct options *options)
{
	int nr = 0;

	for (const struct program *const *p = all_programs; *p; p++)
		if (!((*p)->accepts & TAKES(OPT_THREADS)))
			options->programs[nr++] = *p;
}

void run_suite(struct options *given)
{
	pid_t loads[sizeof(given->load_cpus.cpu) / sizeof(given->load_cpus.cpu[0])];
	double logs = 0;
	int nr = 0;

	if (given->pin.nr != 2)
		usage_error("suite compares two CPUs: give it --pin A,B");
	if (!given->load != !given->load_cpus.nr)
		usage_error("--load and --load-cpus go together");
	if (!given->programs[0])
		choose_programs(given);
	check_cpus(&given->pin);
	check_cpus(&given->load_cpus);

	for (unsigned int i = 0; i < given->load_cpus.nr; i++) {
		struct options options = *given;

		set_defaults(&options, given->load);
		loads[i] = start_load(&options, given->load_cpus.cpu[i]);
	}
	if (!given->json)
		printf("%-16s %7s %4d %7s %4d %8s %8s\n", "units/s", "CPU", given->pin.cpu[0],
		       "CPU", given->pin.cpu[1], "ratio", "sd");
	for (const struct program *const *p = given->programs; *p; p++, nr++) {
		struct options options = *given;

		set_defaults(&options, *p);
		logs += log(compare(*p, &options));
	}
	if (!given->json)
		printf("%-42s %8.3f\n", "geometric mean", exp(logs / nr));
	for (unsigned int i = 0; i < given->load_cpus.nr; i++)
		end_load(loads[i]);
}

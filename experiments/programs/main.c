// SPDX-License-Identifier: GPL-2.0-only
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define ALL                                                                                     \
	(TAKES(OPT_SECONDS) | TAKES(OPT_WARMUP) | TAKES(OPT_PIN) | TAKES(OPT_SEED) |            \
	 TAKES(OPT_JSON))
#define OF_PROGRAMS (ALL | TAKES(OPT_UNITS) | TAKES(OPT_PROGRESS) | TAKES(OPT_RATE) | \
		     TAKES(OPT_EVERY) | TAKES(OPT_FRAME))
#define OF_SUITE                                                                                \
	(ALL | TAKES(OPT_REPEATS) | TAKES(OPT_PROGRAMS) | TAKES(OPT_LOAD) | TAKES(OPT_LOAD_CPUS))

const struct program *const all_programs[] = {
	&integer, &fp, &branchy, &chase, &stream, &resident, &matmul, &sort, &hash, &compress,
	&phased, &barrier, &serial_parallel, &pingpong, &blackscholes, &swaptions, &canneal, &dedup,
	&ferret, NULL,
};

static const char help[] =
	"hetero-programs PROGRAM [OPTIONS]   run a program; --list says which there are\n"
	"hetero-programs suite --pin A,B     compare two CPUs by how fast each runs them\n"
	"\n"
	"  --seconds S         run for S seconds (2)\n"
	"  --units N           run N units instead, after 3 to warm up\n"
	"  --warmup S          run S seconds before measuring (0.1)\n"
	"  --pin CPU[,CPU...]  thread i runs on the i-th of these, modulo\n"
	"  --seed N            same seed and same --units: same work, same checksum (1)\n"
	"  --rate R            have a goal of R units per second (docs/goals.md)\n"
	"  --every MS          begin a frame every MS milliseconds, and sleep until then\n"
	"  --frame N           units in a frame (1)\n"
	"  --progress MS       say every MS milliseconds how many units are done\n"
	"  --json              print a JSON object per line\n"
	"\n"
	"  --working-set KIB   of chase and canneal (8192), stream and phased (16384), resident (768)\n"
	"  --phase-units N     of phased: units in each phase (128)\n"
	"  --threads T         of barrier, serial-parallel, blackscholes, swaptions, canneal, dedup\n"
	"                      and ferret (4)\n"
	"  --sleep | --spin    of barrier: how threads wait (asleep)\n"
	"\n"
	"  --repeats R         of suite, as the following: times each CPU is measured (3)\n"
	"  --programs A,B,...  (all that have a single thread)\n"
	"  --load PROGRAM --load-cpus CPU[,CPU...]\n"
	"                      run PROGRAM on each of these CPUs meanwhile\n"
	"\n"
	"Status: 0, 2 if the command line makes no sense here, or 1 if something failed.\n";

_Noreturn static void end(int status, const char *format, va_list args)
{
	fflush(stdout);
	fputs("hetero-programs: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	exit(status);
}

void usage_error(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end(2, format, args);
}

void fail(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	end(1, format, args);
}

const struct program *find_program(const char *name)
{
	char names[512] = "";

	for (const struct program *const *p = all_programs; *p; p++) {
		if (!strcmp((*p)->name, name))
			return *p;
		strcat(names, " ");
		strcat(names, (*p)->name);
	}
	usage_error("there is no program '%s'; these are:%s", name, names);
}

static void run(const struct program *program, const struct options *options)
{
	struct measurement m;
	void *state;

	/* Before memory is allocated, as where that lies depends on it. */
	check_cpus(&options->pin);
	if (options->pin.nr)
		pin_to(options->pin.cpu[0]);

	state = program->create(options);
	warm_up(program, state, options);
	m = measure(program, state, options);
	program->destroy(state);

	if (!options->json) {
		printf("%s: %llu units in %.3f s, %.1f units/s, checksum %016llx\n", program->name,
		       (unsigned long long)m.units, m.seconds, m.units / m.seconds,
		       (unsigned long long)m.checksum);
		if (m.frames)
			printf("%s: %llu frames, %llu late, p99 %.2f ms, the longest %.2f ms\n", program->name,
			       (unsigned long long)m.frames, (unsigned long long)m.late,
			       m.p99_ms, m.longest_ms);
		return;
	}
	printf("{\"program\":\"%s\",\"units\":%llu,\"seconds\":%.9f,\"rate\":%.9g,\"threads\":%u,"
	       "\"cpu\":[", program->name, (unsigned long long)m.units, m.seconds,
	       m.units / m.seconds, options->threads);
	for (unsigned int i = 0; i < options->pin.nr; i++)
		printf(i ? ",%d" : "%d", options->pin.cpu[i]);
	if (m.frames)
		printf("],\"frames\":%llu,\"late\":%llu,\"longest_ms\":%.3f,\"p99_ms\":%.3f",
		       (unsigned long long)m.frames, (unsigned long long)m.late, m.longest_ms, m.p99_ms);
	else
		printf("]");
	printf(",\"checksum\":\"%016llx\"}\n", (unsigned long long)m.checksum);
}

static void list(void)
{
	for (const struct program *const *p = all_programs; *p; p++)
		printf("%-16s %s\n", (*p)->name, (*p)->summary);
}

int main(int argc, char **argv)
{
	struct options options = { .seconds = 2, .warmup = 0.1, .seed = 1, .repeats = 3 };
	const char *command = NULL;
	uint32_t given = 0;

	parse_options(argc, argv, &options, &command, &given);
	if (given & TAKES(OPT_HELP)) {
		fputs(help, stdout);
	} else if (given & TAKES(OPT_LIST)) {
		list();
	} else if (!command) {
		usage_error("name a program (--list says which there are), or suite; see --help");
	} else if (!strcmp(command, "suite")) {
		check_accepted(command, given, OF_SUITE);
		run_suite(&options);
	} else {
		const struct program *program = find_program(command);

		check_accepted(command, given, OF_PROGRAMS | program->accepts);
		set_defaults(&options, program);
		run(program, &options);
	}
	if (fflush(stdout) || ferror(stdout))
		fail("cannot write the result");
	return 0;
}

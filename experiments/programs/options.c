// SPDX-License-Identifier: GPL-2.0-only
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs.h"

#define FIRST 256 /* above every short option, of which there are none */

static const struct option known[] = {
#define OPTION(name, argument, id) [id] = { name, argument, NULL, FIRST + id }
	OPTION("seconds", required_argument, OPT_SECONDS),
	OPTION("units", required_argument, OPT_UNITS),
	OPTION("warmup", required_argument, OPT_WARMUP),
	OPTION("pin", required_argument, OPT_PIN),
	OPTION("seed", required_argument, OPT_SEED),
	OPTION("progress", required_argument, OPT_PROGRESS),
	OPTION("rate", required_argument, OPT_RATE),
	OPTION("every", required_argument, OPT_EVERY),
	OPTION("frame", required_argument, OPT_FRAME),
	OPTION("json", no_argument, OPT_JSON),
	OPTION("threads", required_argument, OPT_THREADS),
	OPTION("working-set", required_argument, OPT_WORKING_SET),
	OPTION("phase-units", required_argument, OPT_PHASE_UNITS),
	OPTION("spin", no_argument, OPT_SPIN),
	OPTION("sleep", no_argument, OPT_SLEEP),
	OPTION("repeats", required_argument, OPT_REPEATS),
	OPTION("programs", required_argument, OPT_PROGRAMS),
	OPTION("load", required_argument, OPT_LOAD),
	OPTION("load-cpus", required_argument, OPT_LOAD_CPUS),
	OPTION("list", no_argument, OPT_LIST),
	OPTION("help", no_argument, OPT_HELP),
	{ 0 },
};

static uint64_t whole(const char *option, const char *text, uint64_t least, uint64_t most)
{
	char *end;
	uint64_t value;

	errno = 0;
	value = strtoull(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || value < least || value > most)
		usage_error("--%s takes a whole number from %llu to %llu, not '%s'", option,
			    (unsigned long long)least, (unsigned long long)most, text);
	return value;
}

static double number(const char *option, const char *text, bool may_be_0)
{
	char *end;
	double value = strtod(text, &end);

	if (end == text || *end || !isfinite(value) || value > 1e6 || value < 0 ||
	    (value == 0 && !may_be_0))
		usage_error("--%s takes a number, %s 0 and at most 1000000, not '%s'", option,
			    may_be_0 ? "from" : "more than", text);
	return value;
}

/* Calls @each with every part of @text, which commas divide. */
static void for_each_part(const char *text, void (*each)(const char *option, const char *part,
							 void *to),
			  const char *option, void *to)
{
	char *copy = strdup(text), *rest = copy, *part;

	if (!copy)
		fail("out of memory");
	while ((part = strsep(&rest, ",")))
		each(option, part, to);
	free(copy);
}

static void add_cpu(const char *option, const char *part, void *to)
{
	struct cpu_list *cpus = to;

	if (!isdigit((unsigned char)*part))
		usage_error("--%s takes CPU numbers with commas between, as in 0,2; not '%s'",
			    option, part);
	if (cpus->nr == sizeof(cpus->cpu) / sizeof(cpus->cpu[0]))
		usage_error("--%s takes at most %u CPUs", option, cpus->nr);
	cpus->cpu[cpus->nr++] = whole(option, part, 0, 1023);
}

static void add_program(const char *option, const char *part, void *to)
{
	const struct program **programs = to;
	const struct program *program = find_program(part);
	int nr = 0;

	if (program->accepts & TAKES(OPT_THREADS))
		usage_error("--%s takes programs of one thread, and %s has several", option, part);
	while (programs[nr])
		if (programs[nr++] == program)
			usage_error("--%s has %s twice", option, part);
	programs[nr] = program;
}

static void take(int id, const char *text, struct options *options)
{
	const char *name = known[id].name;
	const struct program *load[2] = { NULL };

	switch (id) {
	case OPT_SECONDS:
		options->seconds = number(name, text, false);
		break;
	case OPT_UNITS:
		options->units = whole(name, text, 1, INT64_MAX);
		break;
	case OPT_WARMUP:
		options->warmup = number(name, text, true);
		break;
	case OPT_PIN:
		options->pin.nr = 0;
		for_each_part(text, add_cpu, name, &options->pin);
		break;
	case OPT_SEED:
		options->seed = whole(name, text, 0, UINT64_MAX);
		break;
	case OPT_PROGRESS:
		options->progress_ms = whole(name, text, 1, 1000000);
		break;
	case OPT_RATE:
		options->rate = number(name, text, false);
		break;
	case OPT_EVERY:
		options->every_ms = number(name, text, false);
		break;
	case OPT_FRAME:
		options->frame = whole(name, text, 1, 1000000000);
		break;
	case OPT_JSON:
		options->json = true;
		break;
	case OPT_THREADS:
		options->threads = whole(name, text, 1, 1024);
		break;
	case OPT_WORKING_SET:
		options->working_set = whole(name, text, 1, 64 << 20) * 1024;
		break;
	case OPT_PHASE_UNITS:
		options->phase_units = whole(name, text, 1, 1000000000);
		break;
	case OPT_SPIN:
		options->spin = true;
		break;
	case OPT_REPEATS:
		options->repeats = whole(name, text, 1, 1000);
		break;
	case OPT_PROGRAMS:
		memset(options->programs, 0, sizeof(options->programs));
		for_each_part(text, add_program, name, options->programs);
		break;
	case OPT_LOAD:
		add_program(name, text, load);
		options->load = load[0];
		break;
	case OPT_LOAD_CPUS:
		options->load_cpus.nr = 0;
		for_each_part(text, add_cpu, name, &options->load_cpus);
		break;
	}
}

static void exclude(uint32_t given, int a, int b, const char *why)
{
	if (given & TAKES(a) && given & TAKES(b))
		usage_error("--%s and --%s exclude each other%s", known[a].name, known[b].name,
			    why);
}

void parse_options(int argc, char **argv, struct options *options, const char **command,
		   uint32_t *given)
{
	int value;

	opterr = 0;
	while ((value = getopt_long(argc, argv, ":", known, NULL)) != -1) {
		if (value == ':')
			usage_error("%s needs a value; see --help", argv[optind - 1]);
		if (value == '?' && optopt && optopt < FIRST)
			usage_error("there is no option -%c; see --help", optopt);
		if (value == '?')
			usage_error("there is no option %s; see --help", argv[optind - 1]);
		take(value - FIRST, optarg, options);
		*given |= TAKES(value - FIRST);
	}
	if (optind < argc)
		*command = argv[optind++];
	if (optind < argc)
		usage_error("one program at a time: '%s' is too much", argv[optind]);
	exclude(*given, OPT_SECONDS, OPT_UNITS, "");
	exclude(*given, OPT_WARMUP, OPT_UNITS, ": the warm-up is of 3 units then");
	exclude(*given, OPT_SPIN, OPT_SLEEP, "");
	if (*given & TAKES(OPT_FRAME) && !(*given & TAKES(OPT_EVERY)))
		usage_error("--frame goes with --every");
}

void check_accepted(const char *what, uint32_t given, uint32_t accepted)
{
	char others[512] = "";
	int id;

	if (!(given & ~accepted))
		return;
	id = __builtin_ctz(given & ~accepted);
	for (const struct program *const *p = all_programs; *p; p++)
		if ((*p)->accepts & TAKES(id)) {
			strcat(others, *others ? ", " : "; of these: ");
			strcat(others, (*p)->name);
		}
	usage_error("--%s is no option of %s%s", known[id].name, what, others);
}

void set_defaults(struct options *options, const struct program *program)
{
	if (!options->frame)
		options->frame = 1;
	if (!options->threads)
		options->threads = program->threads ? program->threads : 1;
	if (!options->working_set)
		options->working_set = program->working_set_kib * 1024;
	if (!options->phase_units)
		options->phase_units = 128;
}

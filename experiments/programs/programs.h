// SPDX-License-Identifier: GPL-2.0-only
#ifndef HETERO_PROGRAMS_H
#define HETERO_PROGRAMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LINE 64 /* bytes that a cache moves at once, on the machines of today */

/* Every option there is; a program says in @accepts which of its own it takes. */
enum option_id {
	OPT_SECONDS, OPT_UNITS, OPT_WARMUP, OPT_PIN, OPT_SEED, OPT_PROGRESS, OPT_RATE, OPT_JSON,
	OPT_EVERY, OPT_FRAME,
	OPT_THREADS, OPT_WORKING_SET, OPT_PHASE_UNITS, OPT_SPIN, OPT_SLEEP,
	OPT_REPEATS, OPT_PROGRAMS, OPT_LOAD, OPT_LOAD_CPUS,
	OPT_LIST, OPT_HELP,
};
#define TAKES(option) (1u << (option))

struct cpu_list {
	unsigned int nr;
	int cpu[256];
};

#define MAX_PROGRAMS 32

struct options {
	double seconds;
	uint64_t units; /* 0: run for @seconds instead */
	double warmup;
	struct cpu_list pin; /* thread i runs on the i-th, modulo; none: anywhere */
	uint64_t seed;
	uint64_t progress_ms; /* 0: silent until the end */
	double rate; /* units/s that are its goal; 0: none */
	double every_ms; /* a frame begins so often, and the program sleeps until then; 0: no frames */
	uint64_t frame; /* units */
	bool json;

	/* Of some programs; where nothing was said, the program's default. */
	unsigned int threads;
	size_t working_set; /* bytes */
	unsigned int phase_units;
	bool spin;

	/* Of the suite. */
	unsigned int repeats;
	const struct program *programs[MAX_PROGRAMS + 1];
	const struct program *load;
	struct cpu_list load_cpus;
};

/*
 * A program does its work in units of some 0.2 to 2 million instructions: long
 * enough that reading the clock after each costs nothing, short enough that
 * even a slow machine ends each within milliseconds. What unit() returns follows
 * from the seed and the number of units before it, and from nothing else.
 */
struct program {
	const char *name;
	const char *summary;
	uint32_t accepts;
	unsigned int threads; /* by default */
	size_t working_set_kib; /* by default; 0: not a matter of choice */
	void *(*create)(const struct options *options);
	uint64_t (*unit)(void *state);
	void (*destroy)(void *state);
};

extern const struct program integer, fp, branchy, chase, stream, resident, matmul, sort, hash,
	compress, phased, barrier, serial_parallel, pingpong, blackscholes, swaptions, canneal, dedup,
	ferret;
extern const struct program *const all_programs[]; /* ends with NULL */
const struct program *find_program(const char *name);

/* The work of integer and fp, for the programs that are made of it. */
uint64_t integer_rounds(uint64_t seed, unsigned int rounds);
uint64_t fp_rounds(uint64_t seed, unsigned int rounds);

/* One line of memory that leads to another. */
struct node {
	struct node *next;
	uint64_t value;
	char unused[LINE - sizeof(struct node *) - sizeof(uint64_t)];
};
struct node *random_cycle(size_t nr_nodes, uint64_t *rng);

/* Threads 1 to n-1 of a program, each where --pin wants it; thread 0 is the caller. */
struct team;
struct team *team_start(const struct options *options,
			void (*run)(void *state, unsigned int thread), void *state);
void team_join(struct team *team);

/* Say what went wrong and end: with status 2 for the caller's error, else 1. */
_Noreturn void usage_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

void parse_options(int argc, char **argv, struct options *options, const char **command,
		   uint32_t *given);
void check_accepted(const char *what, uint32_t given, uint32_t accepted);
void set_defaults(struct options *options, const struct program *program);

struct measurement {
	uint64_t units;
	double seconds;
	uint64_t checksum;
	uint64_t frames;
	uint64_t late; /* of these: not done when the next was to begin */
	double longest_ms; /* from when a frame was to begin until it was done */
	double p99_ms; /* 99 of 100 took no longer */
};
void warm_up(const struct program *program, void *state, const struct options *options);
struct measurement measure(const struct program *program, void *state,
			   const struct options *options);

void pin_to(int cpu); /* the calling thread */
void check_cpus(const struct cpu_list *cpus);

void run_suite(struct options *options);

/* Begins at a line and holds anything; there is always enough, or the process ends. */
void *allocate(size_t bytes);

/* A bijection that leaves no pattern: numbers in a row become random ones. */
static inline uint64_t scramble(uint64_t x)
{
	x += 0x9e3779b97f4a7c15;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
	return x ^ (x >> 31);
}

/* xorshift: without a multiplication, so that it may run within any program. */
static inline uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* Never 0, where xorshift would stay. */
static inline uint64_t start_random(uint64_t seed)
{
	return scramble(seed) | 1;
}

/* Less than @limit, and without a division. */
static inline uint32_t random_below(uint64_t *state, uint32_t limit)
{
	return (uint64_t)(uint32_t)(next_random(state) >> 32) * limit >> 32;
}

#endif

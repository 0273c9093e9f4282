// SPDX-License-Identifier: GPL-2.0-or-later
/* What rdt.c makes of accesses, RMIDs and masks, beside the plain caches of cache.c and counts
 * made here; `cargo test` compiles and runs it. */
#include <stdio.h>
#include <stdlib.h>

#include "../cache.c"

#define SETS 64
#define WAYS 12
#define ALL ((1u << WAYS) - 1)
enum { QM_EVTSEL = 0xc8d, QM_CTR = 0xc8e, PQR_ASSOC = 0xc8f, L3_MASK_0 = 0xc90 };

struct machine machine;
struct cpu cpus[MAX_CPUS];
static struct llc *llc = &machine.llc[0];
static int failures;

void fail(const char *format, ...)
{
	puts(format);
	exit(1);
}

void energy_switch(unsigned cpu, unsigned from) {}

static void check(const char *what, bool right)
{
	if (!right)
		printf("%s\n", what), failures++;
}

static void expect(const char *what, uint64_t got, uint64_t wanted)
{
	if (got != wanted)
		printf("%s: %llu instead of %llu\n", what, (unsigned long long)got,
		       (unsigned long long)wanted), failures++;
}

/* An empty cache; CPUs keep their RMIDs and classes. */
static void anew(void)
{
	llc->kib = SETS * WAYS * LINE / 1024;
	llc->ways = WAYS;
	cache_init(&llc->cache, llc->kib, WAYS);
	rdt_init(llc);
	for (unsigned i = 0; i < 2; i++)
		cpus[i] = (struct cpu){ .index = i, .llc = llc };
}

static void becomes(unsigned cpu, uint64_t rmid, uint64_t clos)
{
	rdt_wrmsr(cpu, PQR_ASSOC, rmid | clos << 32);
}

static uint64_t msr(unsigned cpu, uint32_t number)
{
	uint64_t value = 0;

	if (!rdt_rdmsr(cpu, number, &value))
		printf("no register %x\n", number), failures++;
	return value;
}

static uint64_t count(uint64_t event, uint64_t rmid)
{
	rdt_wrmsr(0, QM_EVTSEL, event | rmid << 32);
	return msr(0, QM_CTR);
}

static uint32_t random_line(uint32_t lines)
{
	static uint64_t state = 1;

	state = state * 6364136223846793005u + 1442695040888963407u;
	return 1 + (state >> 33) % lines;
}

static void off(void)
{
	uint32_t regs[4] = { 1, 2, 3, 4 };
	uint64_t value;

	anew();
	check("tags without resctrl", !llc->rdt);
	check("registers without resctrl", !rdt_rdmsr(0, QM_CTR, &value) && !rdt_wrmsr(0, PQR_ASSOC, 1));
	check("CPUID without resctrl", !rdt_cpuid(&cpus[0], 0xf, 0, regs) &&
	      !rdt_cpuid(&cpus[0], 7, 0, regs) && regs[0] == 1 && regs[1] == 2);
}

static void as_a_plain_cache(void)
{
	struct cache plain;
	uint64_t missed[2] = { 0 };

	anew();
	cache_init(&plain, llc->kib, WAYS);
	becomes(0, 1, 1);
	becomes(1, 2, 2);
	for (unsigned i = 0; i < 200000; i++) {
		uint32_t line = random_line(i % 3 ? 600 : 3000);
		bool hit = rdt_access(&cpus[i % 2], line);

		if (hit != cache_access(&plain, cache_set(&plain, line), line)) {
			check("with all ways, as without masks", false);
			break;
		}
		missed[i % 2] += !hit;
	}
	check("some hit, some missed", missed[0] > 1000 && missed[0] + missed[1] < 150000);
	expect("lines of the first", count(2, 1), missed[0]);
	expect("lines of the other", count(3, 2), missed[1]);
	expect("the whole cache", count(1, 1) + count(1, 2), SETS * WAYS);
	expect("of no other RMID", count(1, 0) + count(2, 0), 0);
}

/* Two classes without a way in common do not know of each other. */
static void apart(uint32_t mask)
{
	struct cache own[2];

	anew();
	for (unsigned c = 0; c < 2; c++) {
		unsigned ways = __builtin_popcount(c ? ALL & ~mask : mask);

		cache_init(&own[c], SETS * ways * LINE / 1024, ways);
		rdt_wrmsr(0, L3_MASK_0 + 1 + c, c ? ALL & ~mask : mask);
		becomes(c, 1 + c, 1 + c);
	}
	for (unsigned i = 0; i < 100000; i++) {
		unsigned c = i * 7 % 11 % 2;
		uint32_t line = random_line(c ? 3000 : 300) + 5000 * c;

		if (rdt_access(&cpus[c], line) !=
		    cache_access(&own[c], cache_set(&own[c], line), line)) {
			printf("mask %x: class %u is not by itself\n", mask, c), failures++;
			return;
		}
	}
	check("confined", count(1, 1) <= SETS * __builtin_popcount(mask));
}

static void hits_in_all_ways(void)
{
	anew();
	rdt_wrmsr(0, L3_MASK_0 + 1, 0x00f);
	rdt_wrmsr(0, L3_MASK_0 + 2, 0xff0);
	becomes(0, 1, 1);
	becomes(1, 2, 2);
	for (uint32_t line = 1; line <= 20; line++)
		rdt_access(&cpus[0], line);
	expect("what was filled", count(1, 1), 20);
	for (uint32_t line = 1; line <= 20; line++)
		check("another class's line is a hit", rdt_access(&cpus[1], line));
	expect("and keeps its RMID", count(1, 1), 20);
	expect("nothing was moved for it", count(2, 2), 0);

	/* Masks that overlap: neither class is in more than its own ways. */
	rdt_wrmsr(0, L3_MASK_0 + 2, 0x03c);
	for (unsigned i = 0; i < 50000; i++)
		rdt_access(&cpus[i % 2], random_line(2000) + 3000 * (i % 2));
	check("confined beside another", count(1, 1) <= SETS * 4 && count(1, 2) <= SETS * 4);
	expect("six ways are full", count(1, 1) + count(1, 2), SETS * 6);
}

/* What one has and another hits is the first one's until it is evicted, and then no more. */
static void eviction(void)
{
	uint64_t hits = 0;

	anew();
	for (unsigned c = 0; c < 2; c++) {
		rdt_wrmsr(0, L3_MASK_0 + 1 + c, 1);
		becomes(c, 1 + c, 1 + c);
	}
	for (uint32_t line = 1; line <= 1000; line++)
		rdt_access(&cpus[0], line);
	expect("one way", count(1, 1), SETS);
	for (uint32_t line = 1000; line > 900; line--)
		hits += rdt_access(&cpus[1], line);
	check("hits of another's lines", hits > SETS / 2);
	for (uint32_t line = 2001; line <= 3000; line++)
		rdt_access(&cpus[1], line);
	expect("all evicted", count(1, 1), 0);
	expect("by the other", count(1, 2), SETS);
}

static void registers(void)
{
	uint32_t regs[4] = { 0 };

	anew();
	becomes(0, 3, 2);
	expect("association", msr(0, PQR_ASSOC), 3 | 2ull << 32);
	becomes(0, 8, 2);
	becomes(0, 3, 4);
	expect("what there is not, changes nothing", msr(0, PQR_ASSOC), 3 | 2ull << 32);
	rdt_wrmsr(0, L3_MASK_0 + 3, 0x0f0);
	rdt_wrmsr(0, L3_MASK_0 + 3, 0);
	rdt_wrmsr(0, L3_MASK_0 + 3, ALL + 1);
	expect("a mask of no way, or of one too many", msr(1, L3_MASK_0 + 3), 0x0f0);
	check("as many masks as classes", !rdt_wrmsr(0, L3_MASK_0 + 4, ALL));
	check("an RMID too many", count(1, 8) >> 63);
	check("no such event", count(4, 0) >> 63);

	rdt_cpuid(&cpus[0], 7, 0, regs);
	expect("leaf 7", regs[1], 1 << 12 | 1 << 15);
	rdt_cpuid(&cpus[0], 0xf, 1, regs);
	check("leaf 0xf", regs[0] == 8 && regs[1] == LINE && regs[2] == 7 && regs[3] == 7);
	rdt_cpuid(&cpus[0], 0x10, 1, regs);
	check("leaf 0x10", regs[0] == WAYS - 1 && !regs[1] && regs[3] == 3);
	rdt_cpuid(&cpus[0], 0x10, 2, regs);
	check("no L2", !regs[0] && !regs[3]);
}

int main(void)
{
	off();
	machine.resctrl = (struct resctrl){ .rmids = 8, .clos = 4 };
	as_a_plain_cache();
	apart(0x001);
	apart(0x003);
	apart(0x00f);
	apart(0xf80);
	apart(0x7fe);
	hits_in_all_ways();
	eviction();
	registers();
	return failures != 0;
}

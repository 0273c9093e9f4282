/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The model of a hybrid machine: what a vCPU costs, counts and shares.
 *
 * Everything runs in the one thread that QEMU runs all vCPUs in (see qemu.patch),
 * so nothing here needs a lock, and the same run gives the same numbers.
 */
#ifndef HYBRID_MODEL_H
#define HYBRID_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MAX_CPUS 64
#define MAX_TYPES 4
#define MAX_DOMAINS 8
#define MAX_EVENTS 8 /* thermal events of a type */
#define MAX_POINTS 16 /* of a type's curve of volts, and its idle states */
#define MAX_SENSORS 8 /* of power */
#define HFI_CLASSES 4 /* of instructions: see hfi.c */
#define LINE 64      /* bytes in a cache line */
#define MAX_RMIDS 1024 /* what Intel's registers have room for */
#define MAX_CLOS 128
#define WINDOW_NS 50e3 /* at which latencies and clocks follow what has been used */
#define VIEW 1024    /* lines, a power of two: see coherence.c */

/* What is counted for each vCPU, in user and kernel mode apart. */
enum event {
	/* by inline code in each translated block */
	INSN, LOAD, STORE, BRANCH, FP, MUL, DIV, SYS,
	N_CLASSES,
	/* by the models of caches and branch predictor */
	L1_MISS = N_CLASSES, L2_MISS, LLC_MISS, BRANCH_MISS,
	N_EVENTS
};
enum mode { USER, KERNEL, N_MODES };

struct totals {
	uint64_t n[N_EVENTS];
	double cycles;  /* unhalted, at the clock of the moment */
	double stalled; /* those of them spent waiting for LLC or memory */
	double ref;     /* unhalted, at the TSC's clock */
};

struct thermal {
	double at_ns, until_ns; /* since the model was started */
	double mhz;             /* no faster than this meanwhile */
	uint64_t cores;         /* on these of the type */
};

/* What a core takes, at the voltage of its highest clock: see energy.c. */
struct type_energy {
	unsigned n_volts, n_idle;
	struct { double mhz, volt; } volts[MAX_POINTS];
	struct { double after_ns, watts; } idle[MAX_POINTS]; /* of sleep, how deep by then */
	double leakage_w; /* while it runs */
	double cycle_nj;  /* for each cycle, whatever it does */
	double nj[N_EVENTS];
};

struct machine_energy { /* beside the cores */
	bool on;
	double uncore_w, idle_w; /* while a core runs, and none */
	double dram_w, dram_nj;  /* always, and for a line moved */
	double pl1_w, pl1_s, pl2_w; /* the package's budget on average, and at once; 0: none */
	double thermal_r, thermal_s; /* K/W, s; 0: no heat */
	double ambient_c, max_c;
	unsigned n_sensors;
	struct { unsigned address, of; } sensor[MAX_SENSORS]; /* of which core type; n_types: memory */
};

struct machine_hfi { /* hardware feedback: see hfi.c */
	bool on;
	double interval_ns; /* no more than one table in so long */
	unsigned step;      /* a change that is worth one, of 255 */
};

/* What an instruction needs to be carried out, beside loads and stores: see operands.c. */
enum unit { ALU_UNIT, BRANCH_UNIT, MUL_UNIT, DIV_UNIT, FP_UNIT, FDIV_UNIT, VECTOR_UNIT, NO_UNIT };
enum { N_UNITS = NO_UNIT };

/* Instructions priced by those around them: see pipeline.c. */
struct pipeline {
	bool on;
	double width;  /* instructions begun in a cycle */
	double window; /* instructions in flight; 0: in order */
	double fetch;  /* bytes of code in a cycle */
	double hide;   /* share of the lesser of two costs that passes beside the greater */
	double ports[N_UNITS], load_ports, store_ports; /* begun in a cycle, of each kind */
	double latency[N_UNITS], load_latency;          /* cycles until others may use it */
};

struct core_type {
	char name[16];
	unsigned cpuid_type;     /* leaf 0x1A: 0x40 Core, 0x20 Atom; AMD's: 0, 1 efficient */
	unsigned pmu;            /* which table of event codes: see pmu.c */
	unsigned counters;       /* general counters of its PMU */
	unsigned fixed_counters;
	double cost[N_CLASSES];  /* cycles: INSN for each, the others on top */
	double branch_miss;      /* cycles */
	double l2_cycles, llc_cycles;
	double overlap;          /* independent misses in flight together */
	double prefetch;         /* and sequential ones, fetched ahead */
	struct pipeline pipeline; /* instead of the costs of classes, but for SYS */
	double smt;              /* what two threads of a core compute together: 1 to 2 */
	double walk_ns;          /* what page walks add to memory's latency if not foreseen */
	unsigned l1_kib, l1_ways;
	/* as the registers speak of them, unscaled: steps of 100 MHz, and levels */
	uint64_t max_ratio, highest_level, guaranteed_level;
	uint64_t lowest_level, nonlinear_level, ranking[MAX_CPUS]; /* AMD's; by core of the type */
	unsigned n_turbo;
	double turbo_mhz[MAX_CPUS]; /* by how many of this type are busy, 1.. */
	unsigned n_thermal;
	struct thermal thermal[MAX_EVENTS];
	struct type_energy energy;
	unsigned n_exits;
	struct { double after_ns, exit_ns; } exit[MAX_POINTS]; /* from sleep, by how long it was */
	unsigned n_states; /* from which the guest chooses; 0: it has no choice */
	struct { double exit_ns, watts; } state[MAX_POINTS];
};

struct cache {
	uint32_t sets, ways;
	uint32_t *tags; /* sets x ways, most recently used first; 0 is empty */
};

/* A path to memory whose latency grows with its use: see memory.c. */
struct bus {
	double bytes_per_ns; /* 0: unlimited */
	double bytes;        /* moved in the present window */
	double load;         /* smoothed share of the capacity in use */
	double queue;        /* factor on latency: 1 when idle */
};

struct llc {
	unsigned kib, ways;
	struct cache cache;
	struct rdt *rdt; /* instead of the tags above: see rdt.c; or NULL */
	struct bus bus;
};

/* Monitoring and allocation of last-level caches; 0 RMIDs: none. */
struct resctrl {
	unsigned rmids, clos;
};

struct cluster { /* CPUs that share an L2, or one with none */
	unsigned type, first, ids, cpus, threads, llc; /* `ids` of APICs from `first` on */
	bool shared_l2;
	unsigned l2_kib, l2_ways; /* 0: none */
};

enum distance { SIBLING, CLUSTER, LLC, OTHER, N_DISTANCES };

struct latency { /* of a line that another CPU wrote: see coherence.c */
	bool on;
	double ns[N_DISTANCES];
};

/* Standard deviations, as parts of what they disturb: see noise.c. */
struct noise {
	bool on;
	double counts, misses, clock, memory;
};

struct machine {
	char name[64];
	unsigned family, cpu_model, stepping;
	bool hybrid, amd;
	unsigned n_types, n_clusters, n_llcs;
	/* CPUs go by their APIC ids, of which a core has 1 or 2. Where E cores have one
	 * thread and P cores two, some ids have no CPU: cpus[id].type is NULL. */
	unsigned n_cpus, ids_of_core, present;
	struct core_type type[MAX_TYPES];
	struct cluster cluster[MAX_CPUS];
	struct llc llc[MAX_DOMAINS];
	double ref_mhz; /* the TSC's clock, as slow as everything else */
	double memory_ns;
	struct bus memory;
	double window_ns; /* how far a vCPU may run ahead of the slowest */
	struct machine_energy energy;
	struct latency latency;
	struct noise noise;
	bool exits; /* leaving idle states takes time */
	struct resctrl resctrl;
	struct machine_hfi hfi;
};

/* What a CPU may do with lines by its L1's tags, without asking: see coherence.c. What
 * one without a sibling may read is what its L1 has. */
struct view {
	uint32_t read[VIEW], write[VIEW];
};

/* What two threads of a core do to each other: see smt.c. */
struct smt {
	struct cpu *sibling; /* or NULL */
	double slow, flight; /* factors on what it computes, and on its misses in flight */
	double looked_ns;    /* by its own clock; since then: */
	double awake_ns, compute_ns, fp_ns;
	double awake, compute, fp; /* shares of the time before; of computing: fp */
};

/* Cycles that a thread leaves to the other one, or spends in the units of FP. */
struct width {
	double waits, fp;
};

struct cpu {
	unsigned index;
	unsigned core; /* among those of its type */
	const struct core_type *type;
	const struct cluster *cluster;
	struct llc *llc;
	double mhz;
	/* time */
	double ns; /* its own clock */
	bool asleep;
	unsigned state, asked; /* idle states: of the last sleep, and of the next; 0 unless the guest chooses */
	struct smt smt;
	double busy_ns; /* awake since the last look at the clocks */
	/* caches */
	uint32_t space; /* tag of the address space, for the L1 */
	struct cache l1, *l2;
	struct view *view; /* NULL where lines of others cost nothing */
	double paused_ns;  /* the last time it spun: see coherence.c */
	uint32_t streams[8];
	unsigned next_stream;
	double noise; /* factor on its clock */
	double pending_cycles, pending_ns; /* of misses, not yet in the totals */
	/* Those of them that other instructions need not wait for, and such misses, the ones
	 * that come together taken for one: with a pipeline alone. */
	double beside_cycles, beside_ns, beside_misses;
	double patience; /* cycles of pending time that end the slice */
	uint64_t lines;  /* moved from and to memory */
	struct totals total[N_MODES];
};

extern struct machine machine;
extern struct cpu cpus[MAX_CPUS];
extern bool started; /* the model is on: before, the guest boots unmodelled */
extern double started_ns;

/* machine.c: read what testbed/machine wrote; exits with a message on error */
void machine_read(const char *path);

/* decode.c: what an x86 instruction is */
struct decoded {
	uint8_t n[N_CLASSES];
	bool conditional; /* a conditional branch */
	bool memory;      /* accesses data that may miss the L1 */
	bool chases;      /* the address of the next load depends on this one */
	bool pauses;      /* waits for another CPU */
	uint8_t repeats;  /* a rep string instruction: bytes in each access */
};
void decode(const uint8_t *bytes, unsigned len, struct decoded *out);

/* operands.c: registers as bits, 16 general ones, 16 of vectors, flags, x87's stack */
struct operands {
	uint64_t address, reads, writes;
	bool load, store;
	enum unit unit;
};
void operands(const uint8_t *bytes, unsigned len, struct operands *out);

/* pipeline.c: cycles of a block of code, `bytes` long, that is run again and again */
double pipeline_cycles(const struct pipeline *p, const struct operands *insn, unsigned n, unsigned bytes);
/* Cycles of `stalled` that pass beside `compute`, which had `insns` instructions and `misses`. */
double pipeline_hides(const struct pipeline *p, double stalled, double misses, double compute,
		      uint64_t insns);

/* cache.c */
void cache_init(struct cache *c, unsigned kib, unsigned ways);
bool cache_access(struct cache *c, uint32_t set, uint32_t line); /* true: a hit */
uint32_t cache_set(const struct cache *c, uint32_t line); /* hashed */
bool cache_holds(const struct cache *c, uint32_t set, uint32_t line);
void cache_drop(struct cache *c, uint32_t set, uint32_t line);

/* coherence.c: nothing of it is called on a machine without `latency` */
struct transfer { /* of a line that another CPU wrote last */
	const struct cpu *from;
	double wait_ns; /* until it is written: its writer may be ahead; or how long ago that was */
	double now_ns;  /* the time of the CPU that asks */
	bool contended; /* that was within the last window */
};
void coherence_init(void);
enum distance cpu_distance(const struct cpu *a, const struct cpu *b);
/* Whether an access needs nothing but the CPU's own L1, where it `hit` or not. */
static inline bool coherence_known(const struct cpu *c, uint32_t tag, bool store, bool hit)
{
	if (store)
		return c->view->write[tag % VIEW] == tag;
	return c->smt.sibling ? c->view->read[tag % VIEW] == tag : hit;
}
/* Any other access, by virtual and physical line; true if it is a transfer. */
bool coherence_access(struct cpu *c, uint32_t address, uint32_t line, bool store, struct transfer *t);

/* memory.c: an access that has missed the L1; virtual and physical line number */
void memory_access(struct cpu *c, uint32_t address, uint32_t line, bool store, bool chases);
/* The same for a line that comes from another CPU. */
void memory_transfer(struct cpu *c, uint32_t address, uint32_t line, const struct transfer *t);
/* Ends a window of `ns`: latencies follow what was moved in it. */
void memory_window(double ns);

/* rdt.c: all of it does nothing on a machine without resctrl */
void rdt_init(struct llc *l);
bool rdt_access(const struct cpu *c, uint32_t line); /* of its LLC; true: a hit */
bool rdt_cpuid(const struct cpu *c, uint32_t leaf, uint32_t sub, uint32_t regs[4]);
bool rdt_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
unsigned rdt_rmid(unsigned cpu); /* of the task that runs; 0 on a machine without */
bool rdt_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);

/* smt.c */
void smt_pair(struct cpu *first, struct cpu *second);
void smt_stretch(struct cpu *c, double cycles[N_MODES], const struct width used[N_MODES], double mhz);
/* A window ends: what threads do to each other follows what they did in it. */
void smt_window(double now_ns);

/* idle.c */
#define IDLE_PORT 0x5c0 /* of the first state; acpi.py has it, too */
/* How long it takes to leave the state that the guest chose, or that so much sleep has led to. */
double idle_exit_ns(const struct cpu *c, double slept_ns);
bool idle_ask(unsigned cpu, uint32_t port); /* whether reading the port sends the CPU to sleep */
void idle_enter(struct cpu *c); /* it falls asleep */

/* power.c */
/* Sets the clock of every CPU for the window that begins; the last took `ns`. */
void clock_window(double now_ns, double ns);
double clock_limit(const struct core_type *t); /* MHz that a CPU may have in this window */
double heat_limit(const struct cpu *c, double now_ns); /* MHz */
bool power_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
bool power_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);

/* energy.c: all of it does nothing on a machine without energy */
void energy_window(double now_ns); /* before clocks change */
void energy_warp(double ns);       /* all CPUs sleep for so long */
void energy_settle_core(struct cpu *c); /* before it sleeps in another state than the last time */
double energy_voltage(const struct core_type *t, double mhz); /* of that at its highest clock */
double energy_limit(const struct core_type *t); /* MHz that the budget allows */
bool energy_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
bool energy_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);
uint64_t energy_total(const struct cpu *asks, unsigned what, unsigned of);
void energy_switch(unsigned cpu, unsigned from); /* the task that runs has another RMID from now on */
double energy_of(unsigned type); /* nJ until the last window of its CPUs; of memory: n_types */

/* heat.c: all of it does nothing on a machine without */
void heat_window(double watts, double ns);
double heat_leakage(void); /* factor on leakage */
double heat_limit_w(void);
bool heat_rdmsr(uint32_t msr, uint64_t *val);

/* sensor.c: energy.c's figures as a board's sensors show them */
void sensor_window(double now_ns);
bool sensor_read(unsigned address, uint8_t command, uint32_t *value);

/* elementary.c: instead of the C library's, which differ from CPU to CPU */
double elementary_exp(double x);
double elementary_exp2(double x);
double elementary_log2(double x); /* x > 0, as for pow() */
double elementary_pow(double x, double y);

/* noise.c: all but noise_seed() is called only on a machine with noise */
void noise_seed(uint64_t seed);
void noise_window(double ns);    /* draws anew what holds for the next one */
double noise_draw(double sigma); /* a factor of mean 1 */
extern double noise_memory;      /* factor on memory's latency; 1 on a machine without */

/* hfi.c: all of it does nothing on a machine without */
void hfi_window(double now_ns, double ns); /* after clocks have been set */
void hfi_cpuid(unsigned cpu, uint32_t leaf, uint32_t regs[4]); /* leaves 1 and 6 */
bool hfi_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
bool hfi_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);
uint64_t hfi_total(unsigned what, unsigned of);

/* pmu.c */
void pmu_init(void);
bool pmu_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
bool pmu_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);
bool pmu_rdpmc(unsigned cpu, uint32_t index, uint64_t *val);
/* Brings the counters up to the totals; returns after how many events at least
 * one of them will overflow and interrupt. */
uint64_t pmu_update(struct cpu *c);
unsigned pmu_table(const char *name); /* ends the program if unknown */

/*
 * CPUID leaves, those of no real CPU, by which the guest talks to the model (see
 * ../guest/hybrid.c, which includes this file); the sub-leaf is the operand.
 */
enum control {
	CONTROL = 0x48590000, /* "HY": SIGNATURE, and the machine's name */
	CONTROL_START,        /* the model on */
	CONTROL_STOP,         /* the model off */
	CONTROL_TOTAL,        /* of an enum event or a TOTAL_, in kernel mode if OF_KERNEL */
};
#define SIGNATURE 0x48594252 /* "HYBR" */
#define OF_KERNEL 0x100
enum { TOTAL_CYCLES = 0x40, TOTAL_STALLED, TOTAL_REF, TOTAL_MHZ };
/* Microjoules since the model was started, 0 without energy. The package's is asked
 * for first: the others are of the same moment. TOTAL_CPU_UJ has the CPU above bit 16, as
 * Linux counts them: ids that no CPU has do not count. TOTAL_RMID_UJ has the RMID there: what cores
 * took while a task of it ran, on a machine with resctrl. */
enum { TOTAL_PACKAGE_UJ = 0x80, TOTAL_UNCORE_UJ, TOTAL_DRAM_UJ, TOTAL_CPU_UJ, TOTAL_RMID_UJ };
/* Hardware feedback of the CPU above bit 16: for class 0 performance and efficiency, then for
 * class 1 and so on; and one more than the class of what ran there, or 0. */
enum { TOTAL_HFI = 0xc0, TOTAL_HFI_CLASS = TOTAL_HFI + 2 * HFI_CLASSES };

/* cpuid.c */
unsigned order(unsigned n); /* which power of two is no less */
unsigned llc_ids(const struct llc *l); /* APIC ids from the first to the last that share it */
bool cpuid_fix(unsigned cpu, uint32_t leaf, uint32_t sub, uint32_t regs[4]);

/* amd.c: on a machine of AMD's only */
bool amd_cpuid(const struct cpu *c, uint32_t leaf, uint32_t sub, uint32_t regs[4]);
uint64_t amd_request(unsigned cpu); /* the performance that the guest has asked for */
void amd_window(double now_ns);     /* the ranking of cores follows their clocks */
bool amd_rdmsr(unsigned cpu, uint32_t msr, uint64_t *val);
bool amd_wrmsr(unsigned cpu, uint32_t msr, uint64_t val);

/* plugin.c */
void cpu_flush(struct cpu *c); /* makes totals and clock current */
double cpu_now(const struct cpu *c); /* its time, nearly: what it has run since is taken for cheap */
void model_start(void);
void model_stop(void);
void guest_write(uint64_t address, const void *from, size_t size); /* RAM, by physical address */
void thermal_interrupt(unsigned cpu);
void ranking_changed(void); /* tells the guest to look at it again */
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

// SPDX-License-Identifier: GPL-2.0-only
/*
 * Barriers of LLVM's OpenMP (libomp), by its tools interface (OMPT, OpenMP 5.2 chapter 19): a thread that
 * waits there says so. libomp finds ompt_start_tool() by its name, in a library that is preloaded as in any other.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scx_hetero_spin.h"
#include "team.h"

/* What of omp-tools.h is needed here, so that no package of LLVM's is to build this. */
typedef void (*ompt_interface_fn_t)(void);
typedef ompt_interface_fn_t (*ompt_function_lookup_t)(const char *name);
typedef int (*ompt_set_callback_t)(int event, ompt_interface_fn_t callback);
typedef union {
	uint64_t value;
	void *ptr;
} ompt_data_t;

typedef struct {
	int (*initialize)(ompt_function_lookup_t lookup, int device, ompt_data_t *data);
	void (*finalize)(ompt_data_t *data);
	ompt_data_t data;
} ompt_start_tool_result_t;

enum { OMPT_TASK_CREATE = 5, OMPT_SYNC_REGION_WAIT = 16, OMPT_MUTEX_ACQUIRE = 26, OMPT_MUTEX_ACQUIRED = 27 };
enum { OMPT_SCOPE_BEGIN = 1, OMPT_SCOPE_END = 2 };
enum { OMPT_TASK_EXPLICIT = 4 };
/* Kinds of mutexes whose acquiring is always told to end: not tests, which fail, nor locks that nest. */
enum { OMPT_MUTEX_LOCK = 1, OMPT_MUTEX_CRITICAL = 5, OMPT_MUTEX_ORDERED = 7 };

/*
 * Threads do tasks while they wait. When these begin and end could be asked for as well, but a program with
 * tasks has short ones: its barriers count as waiting no more, as with libgomp.
 */
static bool has_tasks;

/* Waits that this thread is in, and told of. */
static __thread unsigned waits;

static void begin_wait(void)
{
	waits++;
	scx_hetero_spin_begin();
}

static void end_wait(void)
{
	if (!waits)
		return;
	waits--;
	scx_hetero_spin_end();
}

static void sync_region_wait(int kind, int endpoint, ompt_data_t *parallel, ompt_data_t *task,
			     const void *from)
{
	(void)kind;
	(void)parallel;
	(void)task;
	(void)from;
	if (endpoint == OMPT_SCOPE_BEGIN) {
		team_waits(true);
		if (!__atomic_load_n(&has_tasks, __ATOMIC_RELAXED))
			begin_wait();
	} else {
		team_waits(false);
		end_wait();
	}
}

static void task_create(ompt_data_t *task, const void *frame, ompt_data_t *made, int flags,
			int has_dependences, const void *from)
{
	(void)task;
	(void)frame;
	(void)made;
	(void)has_dependences;
	(void)from;
	if (flags & OMPT_TASK_EXPLICIT)
		__atomic_store_n(&has_tasks, true, __ATOMIC_RELAXED);
}

static bool is_waited_for(int kind)
{
	return kind == OMPT_MUTEX_LOCK || kind == OMPT_MUTEX_CRITICAL || kind == OMPT_MUTEX_ORDERED;
}

static void mutex_acquire(int kind, unsigned hint, unsigned impl, uint64_t wait, const void *from)
{
	(void)hint;
	(void)impl;
	(void)wait;
	(void)from;
	if (is_waited_for(kind))
		begin_wait();
}

static void mutex_acquired(int kind, uint64_t wait, const void *from)
{
	(void)wait;
	(void)from;
	if (is_waited_for(kind))
		end_wait();
}

static int initialize(ompt_function_lookup_t lookup, int device, ompt_data_t *data)
{
	ompt_set_callback_t set = (ompt_set_callback_t)lookup("ompt_set_callback");

	(void)device;
	(void)data;
	if (!set)
		return 0;
	set(OMPT_SYNC_REGION_WAIT, (ompt_interface_fn_t)sync_region_wait);
	set(OMPT_TASK_CREATE, (ompt_interface_fn_t)task_create);
	set(OMPT_MUTEX_ACQUIRE, (ompt_interface_fn_t)mutex_acquire);
	set(OMPT_MUTEX_ACQUIRED, (ompt_interface_fn_t)mutex_acquired);
	return 1;
}

static void finalize(ompt_data_t *data)
{
	(void)data;
}

ompt_start_tool_result_t *ompt_start_tool(unsigned version, const char *runtime)
{
	static ompt_start_tool_result_t result = { initialize, finalize, { 0 } };

	(void)version;
	(void)runtime;
	return &result;
}

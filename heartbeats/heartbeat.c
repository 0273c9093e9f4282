// SPDX-License-Identifier: MIT
/*
 * The library behind scx_hetero_heartbeat.h: sessions, beats and rates. What goes over
 * the socket is in connection.c.
 *
 * Beats are counted in `words`, 64 bytes whose layout docs/goals-protocol.md has. They lie
 * in the session until a scheduler is found, then in a page that the scheduler has a
 * descriptor of.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

#define NS_PER_S 1000000000ull
/* The least and the greatest goal, in thousandths of a beat per second. */
#define LEAST_TARGET 1ull
#define GREATEST_TARGET (1000ull * 1000000)

#define API __attribute__((visibility("default")))

/* Every session, for children of fork(). */
static pthread_mutex_t sessions_lock = PTHREAD_MUTEX_INITIALIZER;
static struct scx_hetero_hb *sessions;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

API uint64_t scx_hetero_hb_now_ns(void)
{
	struct timespec now;

	/* The vDSO's: no system call. */
	if (clock_gettime(CLOCK_MONOTONIC, &now))
		return 0;
	return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

static void before_fork(void)
{
	struct scx_hetero_hb *hb;

	pthread_mutex_lock(&sessions_lock);
	for (hb = sessions; hb; hb = hb->next)
		pthread_mutex_lock(&hb->lock);
}

static void after_fork(void)
{
	struct scx_hetero_hb *hb;

	for (hb = sessions; hb; hb = hb->next)
		pthread_mutex_unlock(&hb->lock);
	pthread_mutex_unlock(&sessions_lock);
}

/* The child's beats are not its parent's. */
static void after_fork_in_child(void)
{
	struct scx_hetero_hb *hb;

	for (hb = sessions; hb; hb = hb->next) {
		struct words *words = hb->words;

		hb->own.target = words->target;
		hb->own.flags = words->flags;
		hb->own.count = 0;
		hb->own.last_ns = 0;
		hb->own.work_ns = 0;
		hb->words = &hb->own;
		hb->first_ns = 0;
		/* Threads that were named, and the process, are the parent's. */
		hb->nr_tids = 0;
		hb->pid = 0;
		hb->look_ns = 0;
		connection_forget(hb);
	}
	after_fork();
}

static void watch_forks(void)
{
	/* Without memory for that, children share their parent's session. */
	(void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* Thousandths of a beat per second; 0 is none, -1 is wrong. */
static int64_t target_of_rate(double rate)
{
	if (rate == 0)
		return 0;
	/* Neither is true of NaN. */
	if (!(rate * 1000 >= (double)LEAST_TARGET && rate * 1000 <= (double)GREATEST_TARGET))
		return -1;
	return (int64_t)(rate * 1000 + 0.5);
}

static int64_t target_of_period(uint64_t ns)
{
	if (!ns)
		return 0;
	if (ns < NS_PER_S * 1000 / GREATEST_TARGET || ns > NS_PER_S * 1000 / LEAST_TARGET)
		return -1;
	return (int64_t)((NS_PER_S * 1000 + ns / 2) / ns);
}

static int valid_weight(uint32_t weight)
{
	return weight >= 1 && weight <= 10000;
}

/* What is safe in a line of JSON, and on a terminal. */
static void set_name(struct scx_hetero_hb *hb, const char *name)
{
	size_t n;

	if (!name || !*name)
		name = program_invocation_short_name;
	for (n = 0; n < sizeof(hb->name) - 1 && name[n]; n++) {
		unsigned char byte = (unsigned char)name[n];

		hb->name[n] = byte > ' ' && byte < 127 && byte != '"' && byte != '\\' ? name[n] : '_';
	}
	hb->name[n] = 0;
}

static int set_tids(struct scx_hetero_hb *hb, const int32_t *tids, uint32_t n)
{
	uint32_t i;

	if (n > SCX_HETERO_HB_MAX_TIDS || (n && !tids))
		return -1;
	for (i = 0; i < n; i++)
		if (tids[i] <= 0)
			return -1;
	if (n)
		memcpy(hb->tids, tids, n * sizeof(*tids));
	hb->nr_tids = n;
	return 0;
}

static int set_options(struct scx_hetero_hb *hb, const struct scx_hetero_hb_options *options)
{
	int goals = (options->rate != 0) + !!options->period_ns + !!options->deadline_ns;
	const char *path = options->socket ? options->socket : secure_getenv("SCX_HETERO_GOALS");
	int64_t target;

	if (goals > 1 || options->pid < 0 || set_tids(hb, options->tids, options->nr_tids))
		return -1;
	if (options->children > 1 || (options->children && options->nr_tids))
		return -1;
	target = options->rate != 0 ? target_of_rate(options->rate) :
		 target_of_period(options->period_ns ? options->period_ns : options->deadline_ns);
	if (target < 0)
		return -1;
	hb->own.target = (uint64_t)target;
	hb->own.flags = options->deadline_ns ? FLAG_DEADLINE : 0;
	hb->weight = options->weight ? options->weight : SCX_HETERO_HB_DEFAULT_WEIGHT;
	if (!valid_weight(hb->weight))
		return -1;
	hb->pid = options->pid;
	hb->children = options->children;
	if (!path || !*path)
		path = SOCKET;
	if (strlen(path) >= sizeof(hb->address.sun_path))
		return -1;
	hb->address.sun_family = AF_UNIX;
	strcpy(hb->address.sun_path, path);
	set_name(hb, options->name);
	return 0;
}

API struct scx_hetero_hb *scx_hetero_hb_open(const struct scx_hetero_hb_options *given)
{
	/* A program that was built with an older header knows fewer of them. */
	struct scx_hetero_hb_options options = { 0 };
	uint32_t window, ring = 2;
	struct scx_hetero_hb *hb;

	if (given && (given->size < offsetof(struct scx_hetero_hb_options, socket) ||
		      given->size > 4096))
		goto wrong;
	if (given)
		memcpy(&options, given,
		       given->size < sizeof(options) ? given->size : sizeof(options));
	window = options.window ? options.window : SCX_HETERO_HB_DEFAULT_WINDOW;
	if (window > SCX_HETERO_HB_MAX_WINDOW)
		goto wrong;
	while (ring < window + 1)
		ring *= 2;
	if (posix_memalign((void **)&hb, 64, sizeof(*hb) + ring * sizeof(hb->ring[0]))) {
		errno = ENOMEM;
		return NULL;
	}
	memset(hb, 0, sizeof(*hb) + ring * sizeof(hb->ring[0]));
	hb->window = window;
	hb->mask = ring - 1;
	hb->own.magic = MAGIC;
	hb->own.version = SCX_HETERO_HB_VERSION;
	hb->words = &hb->own;
	hb->socket = -1;
	hb->memfd = -1;
	if (set_options(hb, &options)) {
		free(hb);
		goto wrong;
	}
	pthread_mutex_init(&hb->lock, NULL);
	(void)pthread_once(&fork_once, watch_forks);

	pthread_mutex_lock(&sessions_lock);
	hb->next = sessions;
	sessions = hb;
	pthread_mutex_unlock(&sessions_lock);

	pthread_mutex_lock(&hb->lock);
	connection_look(hb);
	pthread_mutex_unlock(&hb->lock);
	return hb;
wrong:
	errno = EINVAL;
	return NULL;
}

API void scx_hetero_hb_close(struct scx_hetero_hb *hb)
{
	struct scx_hetero_hb **at;
	int error = errno;

	if (!hb)
		return;
	pthread_mutex_lock(&sessions_lock);
	for (at = &sessions; *at && *at != hb; at = &(*at)->next)
		;
	if (*at)
		*at = hb->next;
	/* A child of fork() has what is open, and gives up only what is among the sessions. */
	connection_forget(hb);
	pthread_mutex_unlock(&sessions_lock);
	pthread_mutex_destroy(&hb->lock);
	free(hb);
	errno = error;
}

/* Once a second. Another thread that is at it already will do. */
__attribute__((noinline, cold)) static void look(struct scx_hetero_hb *hb)
{
	if (pthread_mutex_trylock(&hb->lock))
		return;
	/* The beat's time may be one that the program made up. */
	if (scx_hetero_hb_now_ns() >= hb->look_ns)
		connection_look(hb);
	pthread_mutex_unlock(&hb->lock);
}

/* The beats `from` to `from` + n - 1 came one after the other until `end`. */
static void remember(struct scx_hetero_hb *hb, uint64_t from, uint64_t n, uint64_t start,
		     uint64_t end)
{
	uint64_t i, kept = n <= hb->mask ? n : hb->mask + 1;
	double step = end > start ? (double)(end - start) / (double)n : 0;

	for (i = 0; i < kept; i++)
		STORE(&hb->ring[(from + n - 1 - i) & hb->mask], end - (uint64_t)(step * (double)i));
}

static inline void count(struct scx_hetero_hb *hb, uint64_t n, uint64_t start, uint64_t end)
{
	struct words *words = LOAD_ACQUIRE(&hb->words);
	uint64_t last = LOAD(&words->last_ns), from;

	/* The time first: a count is never without its time. Several threads may have read
	 * their clocks in another order than they come here. */
	while (end > last && !__atomic_compare_exchange_n(&words->last_ns, &last, end, 1,
							  __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (start && end > start)
		__atomic_fetch_add(&words->work_ns, end - start, __ATOMIC_RELAXED);
	from = __atomic_fetch_add(&words->count, n, __ATOMIC_RELEASE);
	if (n == 1)
		STORE(&hb->ring[from & hb->mask], end);
	else
		remember(hb, from, n, from ? last : end, end);
	if (!from) {
		STORE(&hb->first_n, n);
		STORE(&hb->first_ns, end);
	}
	if (end >= LOAD(&hb->look_ns))
		look(hb);
}

API void scx_hetero_hb_beat(struct scx_hetero_hb *hb)
{
	if (hb)
		count(hb, 1, 0, scx_hetero_hb_now_ns());
}

API void scx_hetero_hb_beats(struct scx_hetero_hb *hb, uint64_t n)
{
	if (hb && n)
		count(hb, n, 0, scx_hetero_hb_now_ns());
}

API void scx_hetero_hb_beats_between(struct scx_hetero_hb *hb, uint64_t n, uint64_t start,
				     uint64_t end)
{
	if (hb && n)
		count(hb, n, start, end);
}

static int set_target(struct scx_hetero_hb *hb, int64_t target, uint64_t flags)
{
	struct words *words;

	if (!hb)
		return 0;
	if (target < 0) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&hb->lock);
	words = hb->words;
	STORE(&words->flags, flags);
	STORE(&words->target, (uint64_t)target);
	connection_look(hb);
	pthread_mutex_unlock(&hb->lock);
	return 0;
}

API int scx_hetero_hb_set_rate(struct scx_hetero_hb *hb, double beats_per_second)
{
	return set_target(hb, target_of_rate(beats_per_second), 0);
}

API int scx_hetero_hb_set_period(struct scx_hetero_hb *hb, uint64_t ns)
{
	return set_target(hb, target_of_period(ns), 0);
}

API int scx_hetero_hb_set_deadline(struct scx_hetero_hb *hb, uint64_t ns)
{
	return set_target(hb, target_of_period(ns), ns ? FLAG_DEADLINE : 0);
}

API int scx_hetero_hb_set_threads(struct scx_hetero_hb *hb, const int32_t *tids, uint32_t n)
{
	int wrong;

	if (!hb)
		return 0;
	pthread_mutex_lock(&hb->lock);
	wrong = set_tids(hb, tids, n);
	if (!wrong)
		connection_change(hb);
	pthread_mutex_unlock(&hb->lock);
	if (wrong)
		errno = EINVAL;
	return wrong;
}

API int scx_hetero_hb_set_weight(struct scx_hetero_hb *hb, uint32_t weight)
{
	if (!hb)
		return 0;
	if (!valid_weight(weight)) {
		errno = EINVAL;
		return -1;
	}
	pthread_mutex_lock(&hb->lock);
	hb->weight = weight;
	connection_change(hb);
	pthread_mutex_unlock(&hb->lock);
	return 0;
}

API uint64_t scx_hetero_hb_count(const struct scx_hetero_hb *hb)
{
	return hb ? LOAD(&LOAD_ACQUIRE(&hb->words)->count) : 0;
}

/* Beats per second of so many in the time from one to the other. */
static double rate(uint64_t beats, uint64_t from_ns, uint64_t to_ns)
{
	if (!beats || to_ns <= from_ns)
		return 0;
	return (double)beats * (double)NS_PER_S / (double)(to_ns - from_ns);
}

API double scx_hetero_hb_global_rate(const struct scx_hetero_hb *hb)
{
	const struct words *words;
	uint64_t beats;

	if (!hb)
		return 0;
	words = LOAD_ACQUIRE(&hb->words);
	beats = LOAD(&words->count);
	if (!LOAD(&hb->first_ns))
		return 0;
	return rate(beats - LOAD(&hb->first_n), LOAD(&hb->first_ns), LOAD(&words->last_ns));
}

/* Over the last `window` beats, or as many as there are. */
static double recent(const struct scx_hetero_hb *hb, uint64_t window)
{
	uint64_t beats = scx_hetero_hb_count(hb), last = beats - 1;

	if (beats < 2)
		return 0;
	if (window > last)
		window = last;
	return rate(window, LOAD(&hb->ring[(last - window) & hb->mask]),
		    LOAD(&hb->ring[last & hb->mask]));
}

API double scx_hetero_hb_window_rate(const struct scx_hetero_hb *hb)
{
	return hb ? recent(hb, hb->window) : 0;
}

API double scx_hetero_hb_instant_rate(const struct scx_hetero_hb *hb)
{
	return hb ? recent(hb, 1) : 0;
}

API double scx_hetero_hb_target(const struct scx_hetero_hb *hb)
{
	return hb ? (double)LOAD(&LOAD_ACQUIRE(&hb->words)->target) / 1000 : 0;
}

API int scx_hetero_hb_connected(struct scx_hetero_hb *hb)
{
	int connected;

	if (!hb)
		return 0;
	pthread_mutex_lock(&hb->lock);
	connection_look(hb);
	connected = hb->state == STATE_ACCEPTED;
	pthread_mutex_unlock(&hb->lock);
	return connected;
}

API int scx_hetero_hb_state(struct scx_hetero_hb *hb, char *text, size_t size)
{
	int length;

	if (!hb)
		return snprintf(text, size, "no session");
	pthread_mutex_lock(&hb->lock);
	connection_look(hb);
	switch (hb->state) {
	case STATE_ACCEPTED:
		length = snprintf(text, size, "connected");
		break;
	case STATE_ASKED:
		length = snprintf(text, size, "the scheduler has not answered yet");
		break;
	case STATE_REFUSED:
		length = snprintf(text, size, "refused: %s", hb->refusal);
		break;
	default:
		if (hb->error == ENOENT || hb->error == ECONNREFUSED)
			length = snprintf(text, size, "no scheduler answers: is scx_hetero running?");
		else
			length = snprintf(text, size, "no scheduler: %s", strerror(hb->error));
	}
	pthread_mutex_unlock(&hb->lock);
	return length;
}

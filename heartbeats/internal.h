/* SPDX-License-Identifier: MIT */
/* What heartbeat.c and connection.c share. */
#ifndef SCX_HETERO_HEARTBEAT_INTERNAL_H
#define SCX_HETERO_HEARTBEAT_INTERNAL_H

#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "scx_hetero_heartbeat.h"

#define SOCKET "/run/scx_hetero/goals.sock"
#define MAGIC 0x31424853u /* "SHB1", on a little-endian machine */
#define FLAG_DEADLINE 1ull

#define LOAD(from) __atomic_load_n(from, __ATOMIC_RELAXED)
#define LOAD_ACQUIRE(from) __atomic_load_n(from, __ATOMIC_ACQUIRE)
#define STORE(to, value) __atomic_store_n(to, value, __ATOMIC_RELAXED)

/* What the scheduler reads, at the beginning of the page: docs/goals-protocol.md. */
struct words {
	uint32_t magic;
	uint32_t version;
	uint64_t target; /* thousandths of a beat per second; 0: none */
	uint64_t flags;
	uint64_t count; /* of beats */
	uint64_t last_ns; /* CLOCK_MONOTONIC of the latest */
	uint64_t work_ns; /* that beats took, as far as that is known */
	uint64_t reserved[2]; /* 0 */
};

_Static_assert(sizeof(struct words) == 64, "the scheduler reads 64 bytes");

enum state {
	STATE_NONE, /* no connection */
	STATE_ASKED, /* the session is asked for */
	STATE_ACCEPTED,
	STATE_REFUSED,
};

struct scx_hetero_hb {
	struct words own; /* until there is a page */
	/* Read by every beat. */
	struct words *words;
	uint64_t look_ns; /* when to look after the connection */
	uint64_t mask;
	uint64_t first_ns; /* of the first beat, or call with beats */
	uint64_t first_n; /* beats of it */
	uint32_t window;

	/* Under the lock. */
	pthread_mutex_t lock;
	struct scx_hetero_hb *next;
	void *page;
	int socket;
	int memfd;
	enum state state;
	int error; /* why there is no connection */
	uint64_t retry_ns; /* after a refusal */
	uint32_t weight;
	int32_t pid;
	uint32_t children;
	uint32_t nr_tids;
	int32_t tids[SCX_HETERO_HB_MAX_TIDS];
	char name[16];
	struct sockaddr_un address;
	uint32_t answered; /* bytes in answer[] */
	char answer[256];
	char refusal[160];

	/* When beats came, by their numbers. A word that is no multiple of 8 bytes away, as on i386, may be torn. */
	_Alignas(8) uint64_t ring[];
};

/* All want the lock held. */

/* Connects, asks and reads the answer, as far as none of that has to wait. */
void connection_look(struct scx_hetero_hb *hb);
/* Tells the scheduler of other threads or another weight. */
void connection_change(struct scx_hetero_hb *hb);
/* Gives up connection and page. */
void connection_forget(struct scx_hetero_hb *hb);

#endif

/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tell scx_hetero that this thread waits actively (docs/spin.md):
 *
 *	scx_hetero_spin_begin();
 *	while (!ready)
 *		pause();
 *	scx_hetero_spin_end();
 *
 * The thread is then not taken to make progress, and leaves the fast cores to
 * threads that do. Pairs may nest. Nothing here fails, blocks or changes errno;
 * where no scx_hetero runs, begin() costs a look at the clock.
 *
 * A thread has one word, in its own memory, which the scheduler reads: the number
 * of waits that it is in. It registers the word when it first waits, and again
 * when it finds that the scheduler was restarted, at the earliest a second later.
 */
#ifndef SCX_HETERO_SPIN_H
#define SCX_HETERO_SPIN_H

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define SCX_HETERO_SPIN_SOCKET "/run/scx_hetero/spin.sock"

/* What a thread sends, as one datagram. */
struct scx_hetero_spin_request {
	uint32_t version; /* 1 */
	uint32_t tid; /* of the sender's process */
	uint64_t address; /* of the 4-byte word; not 0 while the thread waits */
};

struct scx_hetero_spin_thread {
	uint32_t word;
	int32_t tid; /* registered as; a child of fork() is another */
	time_t looked; /* at the socket, monotonic s */
	/* The socket where it registered. */
	ino_t inode;
	struct timespec created;
};

/* Weak, so that all parts of a program share it. */
__attribute__((weak)) __thread struct scx_hetero_spin_thread scx_hetero_spin_self;

/* Whether the word was sent. */
static inline int scx_hetero_spin_send(int32_t tid, const uint32_t *word)
{
	struct scx_hetero_spin_request request;
	struct sockaddr_un to;
	ssize_t sent;
	int fd;

	request.version = 1;
	request.tid = (uint32_t)tid;
	request.address = (uint64_t)(uintptr_t)word;
	memset(&to, 0, sizeof(to));
	to.sun_family = AF_UNIX;
	memcpy(to.sun_path, SCX_HETERO_SPIN_SOCKET, sizeof(SCX_HETERO_SPIN_SOCKET));
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return 0;
	sent = sendto(fd, &request, sizeof(request), MSG_NOSIGNAL,
		      (const struct sockaddr *)&to, sizeof(to));
	close(fd);
	return sent == (ssize_t)sizeof(request);
}

/* Out of line: at most once a second. */
__attribute__((noinline, cold, unused)) static void
scx_hetero_spin_look(struct scx_hetero_spin_thread *self)
{
	int error = errno;
	struct stat found;
	int32_t tid;

	if (stat(SCX_HETERO_SPIN_SOCKET, &found)) {
		self->tid = 0;
	} else {
		tid = (int32_t)syscall(SYS_gettid);
		if (tid != self->tid || found.st_ino != self->inode ||
		    found.st_ctim.tv_sec != self->created.tv_sec ||
		    found.st_ctim.tv_nsec != self->created.tv_nsec) {
			self->tid = scx_hetero_spin_send(tid, &self->word) ? tid : 0;
			self->inode = found.st_ino;
			self->created = found.st_ctim;
		}
	}
	errno = error;
}

/* This thread begins to wait actively. */
static inline void scx_hetero_spin_begin(void)
{
	struct scx_hetero_spin_thread *self = &scx_hetero_spin_self;
	struct timespec now;

	/* The kernel reads the word at a moment of its own choice. */
	__atomic_store_n(&self->word, self->word + 1, __ATOMIC_RELAXED);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (clock_gettime(CLOCK_MONOTONIC_COARSE, &now) || now.tv_sec == self->looked)
		return;
	self->looked = now.tv_sec;
	scx_hetero_spin_look(self);
}

/* It has what it waited for. */
static inline void scx_hetero_spin_end(void)
{
	struct scx_hetero_spin_thread *self = &scx_hetero_spin_self;

	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	__atomic_store_n(&self->word, self->word - 1, __ATOMIC_RELAXED);
}

#endif /* SCX_HETERO_SPIN_H */

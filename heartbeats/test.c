// SPDX-License-Identifier: MIT
/* What tests/host/heartbeats.rs looks at: it prints a line, and goes on when it gets one. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <unistd.h>

#include "scx_hetero_heartbeat.h"

enum { THREADS = 4, BEATS = 10000 };

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "test: wrong: %s\n", what);
	exit(1);
}

static void step(const char *said)
{
	char line[16];

	puts(said);
	fflush(stdout);
	check(!!fgets(line, sizeof(line), stdin), "nobody listens");
}

static void connect_session(struct scx_hetero_hb *hb)
{
	int tries;

	for (tries = 0; tries < 6000 && !scx_hetero_hb_connected(hb); tries++)
		usleep(10000);
	check(scx_hetero_hb_connected(hb), "it does not connect");
}

static void *beat(void *hb)
{
	int i;

	for (i = 0; i < BEATS; i++)
		scx_hetero_hb_beat(hb);
	return NULL;
}

/*
 * From here on any system call but read(), write() and exit() kills this process. Strict mode has
 * the same, but takes the clock's counter away as well.
 */
static int calls_kill(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(rules) / sizeof(rules[0]), rules };

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

/* Whether a process in which calls kill can read the clock. */
static int clock_takes_no_call(void)
{
	pid_t child = fork();
	int status;

	check(child >= 0, "no child");
	if (!child) {
		if (calls_kill() && scx_hetero_hb_now_ns())
			syscall(SYS_exit, 0);
		syscall(SYS_exit, 1);
	}
	return waitpid(child, &status, 0) == child && !status;
}

/* In a process in which calls kill; whether it was there to the end. */
static int beats_without_calls(struct scx_hetero_hb *hb)
{
	static const char said[] = "beats took no call\n";
	pid_t child = fork();
	char line[16];
	int status, i;

	check(child >= 0, "no child");
	if (!child) {
		connect_session(hb);
		if (!calls_kill())
			_exit(1);
		for (i = 0; i < BEATS; i++)
			scx_hetero_hb_beat(hb);
		/* Stdio would ask what its descriptor is. */
		i = write(1, said, strlen(said)) > 0 && read(0, line, sizeof(line)) > 0;
		syscall(SYS_exit, !i);
	}
	return waitpid(child, &status, 0) == child && !status;
}

int main(void)
{
	struct scx_hetero_hb_options options = {
		.size = sizeof(options), .name = "video", .rate = 60,
	};
	struct scx_hetero_hb *video = scx_hetero_hb_open(&options), *sound;
	pthread_t threads[THREADS];
	pid_t child;
	int i;

	check(!!video, "no session");
	connect_session(video);
	options.name = "sound";
	options.rate = 0;
	options.deadline_ns = 10000000;
	sound = scx_hetero_hb_open(&options);
	connect_session(sound);
	options.rate = 60;
	check(!scx_hetero_hb_open(&options), "two goals in one");

	for (i = 0; i < THREADS; i++)
		check(!pthread_create(&threads[i], NULL, beat, video), "no thread");
	for (i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	check(scx_hetero_hb_count(video) == THREADS * BEATS, "beats are lost");
	check(scx_hetero_hb_window_rate(video) > 0, "no rate");
	step("threads have beaten");

	child = fork();
	check(child >= 0, "no child");
	if (!child) {
		check(!scx_hetero_hb_count(video), "a child has its parent's beats");
		scx_hetero_hb_beats(video, 3);
		connect_session(video);
		step("a child has beaten");
		_exit(0);
	}
	check(waitpid(child, &i, 0) == child && !i, "the child is unwell");
	check(scx_hetero_hb_count(video) == THREADS * BEATS, "a child beats for its parent");
	step("the child has ended");

	if (!clock_takes_no_call()) {
		step("the clock takes calls");
		return 0;
	}
	/* Once a second a beat looks after its connection: a host that stalls for so long makes it look. */
	for (i = 0; i < 5 && !beats_without_calls(video); i++)
		;
	check(i < 5, "beats take system calls");
	step("that process has ended");
	return 0;
}

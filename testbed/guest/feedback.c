// SPDX-License-Identifier: GPL-2.0-only
/*
 * feedback SECONDS - print what Linux passes on of the hardware's feedback (HFI).
 *
 * Listens to thermal netlink for so long, and prints a line for each CPU of each event:
 *
 *   24.104 cpu0 performance=508 efficiency=260
 *
 * with the seconds since boot, and capabilities from 0 to 1023. Linux turns the feedback
 * on only while something listens. Ends with 1, having said why, if it cannot.
 */
#include <errno.h>
#include <linux/genetlink.h>
#include <linux/netlink.h>
#include <linux/thermal.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

union message {
	struct nlmsghdr head;
	char bytes[16384];
};

static int fail(const char *what)
{
	fprintf(stderr, "feedback: %s: %s\n", what, strerror(errno));
	return 1;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

/* Of the attributes in `size` bytes the first of a type, or of any for 0; or NULL. */
static struct nlattr *find(char *from, int size, int type)
{
	while (size >= NLA_HDRLEN) {
		struct nlattr *a = (struct nlattr *)from;

		if (a->nla_len < NLA_HDRLEN || a->nla_len > size)
			break;
		if (!type || (a->nla_type & NLA_TYPE_MASK) == type)
			return a;
		from += NLA_ALIGN(a->nla_len);
		size -= NLA_ALIGN(a->nla_len);
	}
	return NULL;
}

static char *data(struct nlattr *a)
{
	return (char *)a + NLA_HDRLEN;
}

static int length(struct nlattr *a)
{
	return a->nla_len - NLA_HDRLEN;
}

/* The multicast group of thermal events, or 0. */
static uint32_t group(int s, union message *m)
{
	struct {
		struct nlmsghdr head;
		struct genlmsghdr genl;
		struct nlattr name;
		char text[sizeof THERMAL_GENL_FAMILY_NAME];
	} ask = {
		.head = { sizeof ask, GENL_ID_CTRL, NLM_F_REQUEST, 1, 0 },
		.genl = { CTRL_CMD_GETFAMILY, 1, 0 },
		.name = { NLA_HDRLEN + sizeof ask.text, CTRL_ATTR_FAMILY_NAME },
		.text = THERMAL_GENL_FAMILY_NAME,
	};

	if (send(s, &ask, sizeof ask, 0) < 0 || recv(s, m, sizeof *m, 0) < NLMSG_HDRLEN)
		return 0;
	errno = ENOENT;
	if (m->head.nlmsg_type == NLMSG_ERROR)
		return 0;
	struct nlattr *groups = find(m->bytes + NLMSG_HDRLEN + GENL_HDRLEN,
				     m->head.nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN,
				     CTRL_ATTR_MCAST_GROUPS);
	char *end = groups ? data(groups) + length(groups) : NULL;

	for (char *p = groups ? data(groups) : NULL; p < end;) {
		struct nlattr *g = find(p, end - p, 0);

		if (!g)
			break;
		struct nlattr *name = find(data(g), length(g), CTRL_ATTR_MCAST_GRP_NAME);
		struct nlattr *id = find(data(g), length(g), CTRL_ATTR_MCAST_GRP_ID);
		if (name && id && !strcmp(data(name), THERMAL_GENL_EVENT_GROUP_NAME))
			return *(uint32_t *)data(id);
		p = (char *)g + NLA_ALIGN(g->nla_len);
	}
	return 0;
}

static void print(const union message *m)
{
	const struct genlmsghdr *genl = NLMSG_DATA(&m->head);

	if (genl->cmd != THERMAL_GENL_EVENT_CPU_CAPABILITY_CHANGE)
		return;
	struct nlattr *all = find((char *)genl + GENL_HDRLEN,
				  m->head.nlmsg_len - NLMSG_HDRLEN - GENL_HDRLEN,
				  THERMAL_GENL_ATTR_CPU_CAPABILITY);
	char *end = all ? data(all) + length(all) : NULL;
	uint32_t cpu = 0, performance = 0;

	/* Three for each CPU: its number, performance, efficiency. */
	for (char *p = all ? data(all) : NULL; p < end;) {
		struct nlattr *a = find(p, end - p, 0);

		if (!a)
			break;
		uint32_t value = *(uint32_t *)data(a);
		switch (a->nla_type & NLA_TYPE_MASK) {
		case THERMAL_GENL_ATTR_CPU_CAPABILITY_ID:
			cpu = value;
			break;
		case THERMAL_GENL_ATTR_CPU_CAPABILITY_PERFORMANCE:
			performance = value;
			break;
		case THERMAL_GENL_ATTR_CPU_CAPABILITY_EFFICIENCY:
			printf("%.3f cpu%u performance=%u efficiency=%u\n", now(), cpu, performance, value);
			break;
		}
		p = (char *)a + NLA_ALIGN(a->nla_len);
	}
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static union message m;
	struct sockaddr_nl any = { .nl_family = AF_NETLINK };
	int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_GENERIC);

	if (argc != 2) {
		fputs("usage: feedback SECONDS\n", stderr);
		return 2;
	}
	double end = now() + atof(argv[1]);
	if (s < 0 || bind(s, (struct sockaddr *)&any, sizeof any))
		return fail("netlink");
	uint32_t id = group(s, &m);
	if (!id)
		return fail("no thermal netlink in this kernel");
	if (setsockopt(s, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &id, sizeof id))
		return fail("cannot listen to thermal events");
	for (double left; (left = end - now()) > 0;) {
		struct pollfd p = { s, POLLIN, 0 };

		if (poll(&p, 1, left * 1e3 + 1) <= 0)
			continue;
		if (recv(s, &m, sizeof m, 0) >= (int)(NLMSG_HDRLEN + GENL_HDRLEN))
			print(&m);
	}
	return 0;
}

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
/* Finds, makes and begins anew rows of the session table for a test. */
#include "overlay/sessions.h"

enum { FIND = 0, PUT = 1, RENEW = 2, FILL = 3 };

struct call {
	struct overlay_key key;
	__u32 operation;
	__u32 now;
	__u32 events;
	__u32 count; /* FILL: connections to make, with the key's port and those above it */
	__u32 step;
	__s32 answer; /* FILL: how many were made before one was refused */
};

static int put(const struct overlay_key *key, __u32 now, __u32 events)
{
	struct overlay_session past = {}, fresh = {
		.client = key->client,
		.attachment = key->attachment,
		.client_port = key->client_port,
		.vip_port = key->vip_port,
		.events = events,
		.seen = now,
	};

	return session_put(key, &fresh, &past);
}

static long fill_one(__u64 i, struct call *c)
{
	struct overlay_key key = c->key;

	key.client.words[3] = key.client.words[3] + (__u32)i * c->step;
	overlay_key_hash(&key);
	if (put(&key, c->now, c->events) < 0)
		return 1;
	c->answer++;
	return 0;
}

SEC("syscall")
int table(struct call *given)
{
	struct call c = *given;
	struct overlay_session fresh = {}, past = {};
	int row;

	c.answer = 0;
	if (c.operation == FILL) {
		bpf_loop(c.count, fill_one, &c, 0);
		given->answer = c.answer;
		return 0;
	}
	overlay_key_hash(&c.key);
	given->key.hash = c.key.hash;
	if (c.operation == PUT) {
		given->answer = put(&c.key, c.now, c.events);
		return 0;
	}
	row = session_find(&c.key);
	if (c.operation == RENEW && row >= 0) {
		fresh.client = c.key.client;
		fresh.attachment = c.key.attachment;
		fresh.client_port = c.key.client_port;
		fresh.vip_port = c.key.vip_port;
		fresh.seen = c.now;
		if (!session_renew(row, session_tag(row), c.key.hash, &fresh, &past))
			row = -1;
	}
	given->answer = row;
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";

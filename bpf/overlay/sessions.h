/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The session table of a server's host: what user space says of it, and its hash. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/overlay/settings.h"
#include "abi/shared/flowhash.h"
#include "net/flowhash.h"

/* What user space tells the programs besides the tables. */
struct overlay_settings settings SEC(".data.settings");

/* What connections are hashed with, so that nobody can aim at a set. User space draws it, once. */
struct flowhash_key hash_key SEC(".data.hash_key");

static __always_inline __u32 sets_mask(void)
{
	return settings.set_mask;
}

static __always_inline __u32 sets_old_mask(void)
{
	return settings.old_mask;
}

#include "net/session/table.h"

static __always_inline void overlay_key_hash(struct overlay_key *key)
{
	const __u32 *c = key->client.words, *k = hash_key.words;
	__u32 ports = (__u32)key->vip_port << 16 | key->client_port;
	__u64 h;

	h = nh_term(c[0], c[1], k) + nh_term(c[2], c[3], k + 2) +
	    nh_term(key->attachment | key->udp << 31, ports, k + 4);
	h ^= h >> 33;
	h *= 0xff51afd7ed558ccdULL;
	h ^= h >> 33;
	h *= 0xc4ceb9fe1a85ec53ULL;
	h ^= h >> 33;
	key->hash = h;
}

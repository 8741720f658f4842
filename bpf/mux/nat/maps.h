/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The tables of full NAT. User space writes all but the sessions and what counts them. */
#pragma once

#include "kernel.h"
#include <bpf/bpf_helpers.h>

#include "abi/mux/nat.h"
#include "mux/maps.h"

/* Number of sets of sessions, a power of two, less one. Set at load to fit the map. */
volatile const __u32 cfg_nat_set_mask = 4095;

/* A map of one row that needs no lookup. */
struct mux_nat nat SEC(".data.nat");

static __always_inline __u32 sets_mask(void)
{
	return cfg_nat_set_mask;
}

static __always_inline __u32 sets_old_mask(void)
{
	return cfg_nat_set_mask;
}

#include "net/session/quota.h"
#include "net/session/table.h"

/* By attachment. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 16385);
	__type(key, __u32);
	__type(value, struct nat_attachment);
} nat_attachments SEC(".maps");

/* Backends to their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct nat_slot);
	__type(value, __u32);
} nat_slots SEC(".maps");

/* Row 0 is not used. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65537);
	__type(key, __u32);
	__type(value, struct nat_backend);
} nat_backends SEC(".maps");

/* Hosts of clients, by their numbers. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 65536);
	__type(key, __u32);
	__type(value, struct nat_host);
} nat_hosts SEC(".maps");

/* What is known of a packet of full NAT. */
struct nat_ctx {
	struct packet inner; /* of a client's packet: that in VXLAN; of a backend's: that */
	struct overlay_key key;
	struct address service;
	__u64 slices; /* of the endpoint */
	__u32 vni;
	bool affinity; /* the endpoint has */
	__u32 endpoint; /* its id */
	__be16 endpoint_port;
	bool over_v6; /* the client's host is reached over IPv6 */
	__u8 client_mac[6];
	__u32 host; /* of the client */
	__u32 number; /* of the session's row */
	__u32 tag;
	struct nat_backend backend;
	struct address address; /* NAT address and port */
	__be16 port;
};

/* Of the packet that this CPU handles. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct nat_ctx);
} nat_ctxs SEC(".maps");

static __always_inline struct nat_ctx *nat_ctx(void)
{
	__u32 row = 0;

	return bpf_map_lookup_elem(&nat_ctxs, &row);
}

/* Is it one of this mux's NAT addresses? To be asked of a packet whose IP header was parsed. */
static __always_inline bool nat_address_is_ours(const struct packet *p)
{
	const struct nat_prefix *x = &nat.prefixes[p->ethertype == bpf_htons(ETH_P_IPV6)];
	const __u32 *to = p->destination.words, *is = x->address.words;

	return nat.any && x->mask && !((to[3] ^ is[3]) & x->mask) && to[2] == is[2] &&
	       to[1] == is[1] && to[0] == is[0];
}

/* The NAT address and port of a row. */
static __always_inline void nat_address_of(__u32 row, bool v4, struct address *address,
					   __be16 *port)
{
	const struct nat_prefix *x = &nat.prefixes[!v4];

	*address = x->address;
	address->words[3] |= bpf_htonl(row) & ~x->mask;
	*port = bpf_htons(NAT_PORT | row >> (x->bits & 31));
}

/* The row of a packet's NAT address and port; beyond all rows if it is of none. */
static __always_inline __u32 nat_row_of(const struct packet *p)
{
	const struct nat_prefix *x = &nat.prefixes[p->ethertype == bpf_htons(ETH_P_IPV6)];
	__u32 port = bpf_ntohs(p->destination_port);

	if (!(port & NAT_PORT))
		return ~0U;
	return bpf_ntohl(p->destination.words[3] & ~x->mask) | (port & (NAT_PORT - 1))
								       << (x->bits & 31);
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Answers that go by the muxes (NGLB, section II): to clients whose host has no agent, and to all
 * of an attachment that is full NAT. The last FBT says so of a connection.
 */
#pragma once

#include "overlay/encapsulate.h"

/* The way of an answer to the muxes. */
static __noinline enum verdict answer_path(struct overlay_ctx *a, const struct answer *answer)
{
	enum answer_family family = answer_family(answer->host);
	struct fbt_key key = answer_key;
	__u8 mac[6];

	if (family == ANSWER_BY_NONE || !key.id)
		return VERDICT_DROP_NO_MUX;
	a->path.from = family == ANSWER_BY_V4 ? settings.own4 : settings.own6;
	a->path.to = family == ANSWER_BY_V4 ? settings.mux4 : settings.mux6;
	a->path.vni = answer->vni;
	a->path.route = false;
	a->path.ticket = 0;
	a->path.answer_to = answer->host;
	a->path.answer_key = key.id;
	answer_mac(&key, answer, mac);
	__builtin_memcpy(a->path.from_mac, mac, sizeof(mac));
	__builtin_memcpy(a->path.to_mac, answer->mac, sizeof(a->path.to_mac));
	return VERDICT_NONE;
}

/*
 * The way of a server's packet to the client of its session, a->row. Muxes send on whole segments
 * and datagrams: fragments and ICMP errors go straight.
 */
static __noinline enum verdict path_of_session(struct overlay_ctx *a)
{
	struct answer answer = {
		.vni = a->attachment.vni,
		.host = a->row.host,
		.client = a->row.client,
		.vip = a->attachment.vip,
		.client_port = a->row.client_port,
		.vip_port = a->row.vip_port,
		.protocol = a->row.events & OVERLAY_UDP ? IPPROTO_UDP : IPPROTO_TCP,
	};

	if (a->row.events & OVERLAY_VIA_MUX && a->parsed == PARSED_OK && !a->error) {
		__builtin_memcpy(answer.mac, a->row.client_mac, sizeof(answer.mac));
		return answer_path(a, &answer);
	}
	if (!host_tunnel(a->row.host, &a->rule.tunnel, &a->path.to))
		return VERDICT_DROP_FBT_HOST;
	a->path.from = a->rule.tunnel;
	path_to_client(a, a->row.client_mac);
	return VERDICT_NONE;
}

/* The way back to the sender of a segment of no session. */
static __noinline enum verdict path_to_sender(struct overlay_ctx *a)
{
	struct answer answer = {
		.vni = a->attachment.vni,
		.host = a->host,
		.client = a->key.client,
		.vip = a->attachment.vip,
		.client_port = a->key.client_port,
		.vip_port = a->key.vip_port,
		.protocol = IPPROTO_TCP,
	};

	if (a->via) {
		__builtin_memcpy(answer.mac, a->client_mac, sizeof(answer.mac));
		return answer_path(a, &answer);
	}
	a->path.from = a->outer.destination;
	if (!host_tunnel(a->host, &a->path.from, &a->path.to))
		return VERDICT_DROP_FBT_HOST;
	path_to_client(a, a->client_mac);
	return VERDICT_NONE;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Tickets, by which datagrams go past the muxes: datagrams have no numbers that would prove
 * anything.
 *
 *   client's host ── by a mux, inner destination: a nonce ──────────▶ server's host
 *                 ◀── an answer, inner destination: the nonce, ──────
 *                     inner source: the ticket
 *                 ── straight, inner destination: the ticket ───────▶
 *
 * The nonce is the client's host's own. A mux takes it to the server's host alone, so who knows it
 * has the flow. The ticket is a MAC of the flow and the client's host under the key of the server's
 * host. Both stand where the frame inside has Ethernet addresses that nobody reads there: nothing
 * grows, and what a network card cuts in several pieces has them in each. VXLAN's reserved byte
 * tells that a ticket is there.
 */
#pragma once

#include "overlay/maps.h"

enum {
	TICKET_DOMAIN = 0x54, /* first byte under the MAC: another one than of FBTs and answers */
	TICKET_MAC_BYTES = 5 * 8 + 8,
	NONCE_BYTES = 4 * 8,
	NONCE_GROUP = 0x01, /* of its first byte: no client's frame for a VIP is for a group */
	NONCE_KEY = 6, /* words of hash_key from here on hash no connection */
};

/* Is the frame's address a nonce? */
static __always_inline bool mac_is_nonce(const __u8 *mac)
{
	return mac[0] & NONCE_GROUP;
}

static __always_inline bool mac_equal(const __u8 *a, const __u8 *b)
{
	return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3]) | (a[4] ^ b[4]) |
		 (a[5] ^ b[5]));
}

/* What the host of a number's client shows in a session of datagrams, by a->key. */
static __noinline int ticket_mac(const struct fbt_key *key, const struct overlay_ctx *a, __u32 host,
				 __u8 *to)
{
	const __u32 *c = a->key.client.words, *v = a->attachment.vip.words;
	struct sip s = sip_begin(key->key);
	__u64 mac;

	sip_word(&s, TICKET_DOMAIN | (__u64)a->attachment.vni << 8 | (__u64)host << 32);
	sip_word(&s, c[0] | (__u64)c[1] << 32);
	sip_word(&s, c[2] | (__u64)c[3] << 32);
	sip_word(&s, v[0] | (__u64)v[1] << 32);
	sip_word(&s, v[2] | (__u64)v[3] << 32);
	sip_word(&s, a->key.client_port | (__u64)a->key.vip_port << 16);
	sip_word(&s, (__u64)TICKET_MAC_BYTES << 56);
	mac = sip_end(&s);
	__builtin_memcpy(to, &mac, 6);
	return 0;
}

/* The nonce of a flow since it was begun, learnt or lost last. */
static __noinline int nonce_make(const struct bypass_flow_key *flow, __u32 epoch, __u8 *to)
{
	const __u32 *c = flow->client.words, *k = hash_key.words + NONCE_KEY;
	const __u64 key[2] = { k[0] | (__u64)k[1] << 32, k[2] | (__u64)k[3] << 32 };
	struct sip s = sip_begin(key);
	__u64 mac;

	sip_word(&s, flow->attachment | (__u64)epoch << 32);
	sip_word(&s, c[0] | (__u64)c[1] << 32);
	sip_word(&s, c[2] | (__u64)c[3] << 32);
	sip_word(&s, flow->client_port | (__u64)flow->vip_port << 16);
	sip_word(&s, (__u64)NONCE_BYTES << 56);
	mac = sip_end(&s) | NONCE_GROUP;
	__builtin_memcpy(to, &mac, 6);
	return 0;
}

/* Does a client's host show the ticket of the session that its datagram is in? */
static __noinline enum verdict ticket_check(const struct overlay_ctx *a)
{
	const struct fbt_key *key = &fbt_keys.rows[a->ticket & VXLAN_TICKET_KEY];
	__u8 mac[6];

	if (!key->id)
		return VERDICT_DROP_FBT_KEY;
	ticket_mac(key, a, a->host, mac);
	return mac_equal(mac, a->inner_to) ? VERDICT_NONE : VERDICT_DROP_FBT_FORGED;
}

/* Notes the nonce of a datagram whose sender has proved that it is of the session. */
static __always_inline void ticket_note_nonce(const struct overlay_ctx *a,
					      struct overlay_session *s)
{
	const __u8 *nonce = a->from_mux ? a->inner_to : a->client_mac;

	if (!mac_is_nonce(nonce) || a->via || a->parsed != PARSED_OK)
		return;
	__builtin_memcpy(&s->client_next, nonce, sizeof(s->client_next));
	__builtin_memcpy(&s->answered, nonce + sizeof(s->client_next), sizeof(s->answered));
}

/* Puts the ticket and the nonce into an answer on its way straight to the client's host that asked.
 */
static __noinline int ticket_tell(struct overlay_ctx *a)
{
	struct overlay_session *s = session_at(a->number);
	struct fbt_key key = answer_key;
	__u8 mac[6];

	if (!key.id || !s)
		return 0;
	a->key.client = a->row.client;
	a->key.client_port = a->row.client_port;
	a->key.vip_port = a->row.vip_port;
	ticket_mac(&key, a, a->row.host, mac);
	__builtin_memcpy(a->path.from_mac, mac, sizeof(mac));
	__builtin_memcpy(a->path.to_mac, &a->row.client_next, 4);
	__builtin_memcpy(a->path.to_mac + 4, &a->row.answered, 2);
	a->path.ticket = VXLAN_TICKET | (key.id & VXLAN_TICKET_KEY);
	s->client_next = 0;
	s->answered = 0;
	return 0;
}

/* Does a session's client wait for a ticket? */
static __always_inline bool ticket_is_due(const struct overlay_ctx *a)
{
	return a->row.events & OVERLAY_UDP && a->row.client_next && a->parsed == PARSED_OK &&
	       !a->error && !a->path.answer_to;
}

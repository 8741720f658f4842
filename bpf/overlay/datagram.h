/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions of UDP. They begin by a mux, whose header is all that makes a datagram believed until
 * the client's host has a ticket; the answers go straight. A session is half-open until the server
 * has answered.
 */
#pragma once

#include "overlay/deliver.h"
#include "overlay/ticket.h"

/* Finds the session of a datagram that came past the muxes. It begins none: muxes decide who may.
 */
static __always_inline enum verdict datagram_straight(const struct overlay_ctx *a,
						      const struct overlay_session *s)
{
	if (session_is_over(s->events))
		return VERDICT_DROP_NO_SESSION;
	return s->host == a->host ? VERDICT_NONE : VERDICT_DROP_OTHER_HOST;
}

/*
 * Finds the session of a client's datagram, or makes it. The client is where the mux says.
 * Fragments of TCP have no numbers either: they begin nothing, and no client moves by them.
 */
static __noinline enum verdict datagram_session(struct overlay_ctx *a)
{
	int row = session_find(&a->key);
	struct overlay_session *s;

	if (row < 0 && a->key.udp && a->from_mux)
		return session_begin(a);
	if (row < 0)
		return VERDICT_DROP_NO_SESSION;
	a->number = row;
	a->tag = session_tag(row);
	s = session_at(row);
	if (!s)
		return VERDICT_DROP_SESSION_GONE;
	if (a->key.udp && !a->from_mux)
		return datagram_straight(a, s);
	if (!a->key.udp)
		return s->host == a->host ? VERDICT_NONE : VERDICT_DROP_OTHER_HOST;
	if (session_is_over(s->events))
		return session_again(a);
	if (s->host != a->host)
		s->host = a->host;
	session_note(s, a->via ? OVERLAY_VIA_MUX : 0, a->via ? 0 : OVERLAY_VIA_MUX);
	return VERDICT_NONE;
}

/* Notes a server's datagram. */
static __noinline int datagram_note_server(struct overlay_ctx *a, struct overlay_session *s)
{
	const __u32 open = OVERLAY_SERVER_ANSWER | OVERLAY_CLIENT_ACK;

	session_seen(s);
	if (OVERLAY_CLIENT_ACK & ~session_note(s, open, OVERLAY_RESET))
		session_confirm(a, s->counters);
	return 0;
}

/* Delivers a client's datagram, and notes whether its host asks for a ticket. */
static __always_inline enum verdict datagram_deliver(struct __sk_buff *skb, struct overlay_ctx *a)
{
	enum verdict verdict = deliver(skb, a);
	struct overlay_session *s = session_at(a->number);

	if (s && a->key.udp &&
	    (verdict == VERDICT_DELIVER_NATIVE || verdict == VERDICT_DELIVER_INTERFACE))
		ticket_note_nonce(a, s);
	return verdict;
}

/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Sessions: which VIP a workload's connection came through, and how far its TCP has got.
 * The programs only note what they see; how long a session may idle is user space's to say.
 *
 * A session begins among the new ones. The client's first packet after an answer of the workload
 * proves that the client is there, and moves it to where floods of SYNs do not reach.
 */
#pragma once

#include "agent/maps.h"
#include "agent/tcp_cookie.h"
#include "net/packet.h"
#include "agent/session_proof.h"
#include "agent/session_quota.h"

/* last_seen is written at most once in so many ns, to leave the cache line shared. */
#define SESSION_SEEN_STEP (1ULL << 27)

/* A UDP flow says no end: one that was still for so many ns makes room for another VIP's. */
#define SESSION_UDP_STILL (10ULL * 1000 * 1000 * 1000)

/* Is it more than so many ns ago? Not if another CPU has noted a time that is later than ours. */
static __always_inline bool long_since(__u64 then, __u64 ns)
{
	return (__s64)(bpf_ktime_get_coarse_ns() - then) > (__s64)ns;
}

static __always_inline bool session_is_over(const struct session *session)
{
	const __u32 fins = SESSION_CLIENT_FIN | SESSION_WORKLOAD_FIN;

	return session->events & SESSION_RESET || (session->events & fins) == fins;
}

static __always_inline bool session_makes_room(const struct session *session, __u8 protocol)
{
	if (protocol == IPPROTO_UDP)
		return long_since(session->last_seen, SESSION_UDP_STILL);
	return session_is_over(session);
}

/* Does the agent wait for the workload's answer to a SYN of its own? See handshake_proxy.h. */
static __always_inline bool session_is_early(const struct session *session)
{
	const __u32 both = SESSION_PROXIED | SESSION_REPLAYED;

	return (session->events & both) == SESSION_PROXIED;
}

static __always_inline __u32 client_events(const struct packet *p)
{
	__u32 events = 0;

	if (p->protocol != IPPROTO_TCP)
		return 0;
	if (p->tcp_flags & TCP_FLAG_RST)
		return SESSION_RESET;
	events |= p->tcp_flags & TCP_FLAG_SYN ? SESSION_CLIENT_SYN : SESSION_CLIENT_ACK;
	if (p->tcp_flags & TCP_FLAG_FIN)
		events |= SESSION_CLIENT_FIN;
	return events;
}

static __always_inline __u32 workload_events(const struct packet *p)
{
	__u32 events = SESSION_WORKLOAD_ANSWER;

	if (p->protocol != IPPROTO_TCP)
		return events;
	if (p->tcp_flags & TCP_FLAG_RST)
		return SESSION_RESET;
	if (p->tcp_flags & TCP_FLAG_FIN)
		events |= SESSION_WORKLOAD_FIN;
	return events;
}

static __always_inline void session_seen(struct session *session, __u64 now)
{
	if (now - session->last_seen >= SESSION_SEEN_STEP)
		session->last_seen = now;
}

/*
 * A bare acknowledgement of the workload is no sign of life: what it answers is the client's, which
 * was one, or the agent's own, which keeps timestamps alive but no session.
 */
static __always_inline bool workload_lives(const struct packet *p)
{
	return p->protocol != IPPROTO_TCP || p->tcp_flags != TCP_FLAG_ACK;
}

static __always_inline __u16 rule_cookie(const struct nat_rule *rule, const struct timestamps *ts)
{
	return rule->flags & NAT_RULE_COOKIES && ts->at ? rule->slot : 0;
}

/* In the middle of a connection only the echo of a cookie shows that it has one. */
static __always_inline void session_adopt(struct session *session, const struct nat_rule *rule,
					  const struct timestamps *ts)
{
	__u16 cookie = rule_cookie(rule, ts);

	if (!cookie || (ts->tsecr & COOKIE_MASK) != cookie)
		return;
	session->cookie_scale = settings.cookie_scale;
	session->client_tsval = ts->tsval;
	session->cookie = session->offer = cookie;
}

/*
 * A SYN is offered a cookie. In a live session it is the same SYN again, or the workload has
 * forgotten the connection, or it is forged: what the session carries stays until the workload's
 * SYN/ACK.
 */
static __always_inline void session_offer(struct session *session, const struct nat_rule *rule,
					  const struct timestamps *ts)
{
	__u16 cookie = rule_cookie(rule, ts);

	if (session->offer != cookie)
		session->offer = cookie;
	session->client_tsval = ts->tsval;
}

static __always_inline __u64 tag_term(__u32 a, __u32 b, __u32 odd)
{
	return (__u64)(__u32)(a + odd) * (__u32)(b + ~odd);
}

/*
 * The kernel gives a row that was deleted or evicted to another connection at once, though another
 * CPU may still be at it. So each says whose it is, by a sum as flowhash() has it: who has read the
 * VIP compares, and who has gone by the rest looks whether the tag is as it was.
 */
static __always_inline __u32 session_tag(const struct session_key *key, const struct address *vip,
					 __be16 vip_port)
{
	const __u32 *c = key->client.words, *d = key->dip.words, *v = vip->words;
	__u32 ports = (__u32)key->client_port << 16 | key->dip_port;
	__u32 rest = (__u32)vip_port << 16 | key->protocol;
	__u64 sum;

	sum = tag_term(c[0], c[1], 0x9e3779b9) + tag_term(c[2], c[3], 0x85ebca6b) +
	      tag_term(d[0], d[1], 0xc2b2ae35) + tag_term(d[2], d[3], 0x27d4eb2f) +
	      tag_term(v[0], v[1], 0x165667b1) + tag_term(v[2], v[3], 0xd3a2646d) +
	      tag_term(ports, rest, 0xfd7046c5);
	return (__u32)(sum ^ sum >> 32) ?: 1;
}

/* Were vip and its port, which were read from the row, those of key? */
static __always_inline bool session_names(const struct session *session,
					  const struct session_key *key, const struct address *vip,
					  __be16 vip_port)
{
	__u32 tag;

	barrier(); /* what is compared is what will be used */
	tag = session->tag;
	return !tag || tag == session_tag(key, vip, vip_port);
}

static __always_inline bool session_is_own(const struct session *session,
					   const struct session_key *key)
{
	struct address vip = session->vip;

	return session_names(session, key, &vip, session->vip_port);
}

/* Is the row still that of the connection whose tag it had? */
static __always_inline bool session_stays(const struct session *session, __u32 tag)
{
	return *(volatile const __u32 *)&session->tag == tag;
}

static __always_inline bool session_is_of(const struct session *session, const struct packet *p)
{
	struct address vip = session->vip;

	return session->vip_port == p->destination_port && address_equal(&vip, &p->destination);
}

/*
 * A client's packet in a session of the same VIP. A SYN begins one anew that the workload has not
 * answered in. Else the SYN may be forged: the workload's SYN/ACK begins it anew.
 */
static __always_inline void session_go_on(struct __sk_buff *skb, const struct session_key *key,
					  struct session *session, const struct packet *p,
					  const struct nat_rule *rule, const struct timestamps *ts)
{
	bool syn = p->tcp_flags & TCP_FLAG_SYN;
	__u32 events = client_events(p);

	if (syn && (!(session->events & SESSION_WORKLOAD_ANSWER) || session_is_early(session))) {
		session->events = SESSION_CLIENT_SYN;
		session->direct = 0;
		session->isn = 0; /* it does not begin by a cookie */
	}
	/* Writes only what changes: every packet of a connection passes here, on any CPU. */
	if (!syn && events & ~session->events)
		session_note_client(skb, p, key, session, events);
	session_seen(session, bpf_ktime_get_coarse_ns());
	if (syn)
		session_offer(session, rule, ts);
	else if (!session->offer && !(session->events & SESSION_WORKLOAD_ANSWER))
		session_adopt(session, rule, ts);
}

/* The session of a client's packet that the rule is for. */
static __always_inline struct session_key session_key_of(const struct packet *p,
							 const struct nat_rule *rule)
{
	struct session_key key = {
		.client = p->source,
		.dip = rule->dip,
		.client_port = p->source_port,
		.dip_port = rule->port,
		.protocol = p->protocol,
	};

	return key;
}

/* The session of key, wherever it is kept: also if it moved after the first lookup. */
static __always_inline struct session *session_lookup(const struct session_key *key)
{
	struct session *session = bpf_map_lookup_elem(&sessions, key);

	session = session ?: bpf_map_lookup_elem(&new_sessions, key);
	return session ?: bpf_map_lookup_elem(&sessions, key);
}

/*
 * The same for the client's packet p: a new one that the workload has answered in is moved. The
 * numbers that another CPU writes meanwhile are lost, so it waits until both ends have taken turns:
 * a client whose SYN a mux has answered does not wait for the workload's answer, which may just be
 * noted. Events are not lost: see session_note().
 */
static __noinline struct session *
session_of_client(struct __sk_buff *skb, const struct session_key *key, const struct packet *p)
{
	bool syn = p->protocol == IPPROTO_TCP && p->tcp_flags & TCP_FLAG_SYN;
	struct session *session = bpf_map_lookup_elem(&sessions, key), *moved;
	struct address vip;
	__u32 events;

	if (session)
		return session;
	session = bpf_map_lookup_elem(&new_sessions, key);
	if (!session) /* or it has just been moved */
		return bpf_map_lookup_elem(&sessions, key);
	if (syn || !(session->events & SESSION_WORKLOAD_ANSWER) || session_is_early(session))
		return session;
	if (p->protocol == IPPROTO_TCP && !session_acknowledges(skb, p, session))
		return session;
	vip = session->vip;
	if (!quota_confirm(&vip))
		return session;
	if (bpf_map_update_elem(&sessions, key, session, BPF_NOEXIST))
		return session;
	moved = bpf_map_lookup_elem(&sessions, key);
	if (moved) {
		events = __sync_fetch_and_or(&session->events, SESSION_MOVED);
		if (events & SESSION_FIN_NOTED)
			moved->client_fin = session->client_fin;
		__sync_fetch_and_or(&moved->events, events);
	}
	bpf_map_delete_elem(&new_sessions, key);
	return moved;
}

/*
 * Makes a session of a client's packet in the place of past, if there is one. If another CPU has
 * just made one, that is it.
 */
static __noinline struct session *session_make(const struct session_key *key,
					       const struct packet *p, const struct nat_rule *rule,
					       const struct timestamps *ts, bool past)
{
	struct session fresh = {
		.vip = p->destination,
		.vip_port = p->destination_port,
		.events = client_events(p) & ~SESSION_CLIENT_FIN,
		.last_seen = bpf_ktime_get_coarse_ns(),
		.idle_timeout = rule->idle_timeout,
		.tag = session_tag(key, &p->destination, p->destination_port),
	};
	struct session *made;

	if (p->tcp_flags & TCP_FLAG_SYN)
		session_offer(&fresh, rule, ts);
	else
		session_adopt(&fresh, rule, ts);
	if (past)
		bpf_map_delete_elem(&sessions, key);
	bpf_map_update_elem(&new_sessions, key, &fresh, past ? BPF_ANY : BPF_NOEXIST);
	made = bpf_map_lookup_elem(&new_sessions, key);
	return made && session_is_of(made, p) ? made : NULL;
}

/*
 * The session of a client's packet that rule rewrites, made if there is none; it is what
 * session_of_client() has found before. One that is over, or a flow that is still, makes room for
 * another VIP; a live one never does, for the replies to both would look the same. tag is the
 * row's. A packet in the middle of an unknown connection gets a session too: the workload's reset
 * must find its way back.
 */
static __always_inline enum verdict
session_open(struct __sk_buff *skb, const struct session_key *key, const struct packet *p,
	     const struct nat_rule *rule, const struct timestamps *ts, struct session **session,
	     __u32 *tag)
{
	__u32 ours = session_tag(key, &p->destination, p->destination_port);
	struct session *live = *session;
	__u32 place;

	*tag = live ? live->tag : ours;
	barrier();
	if (live && (*tag ? *tag == ours : session_is_of(live, p))) {
		session_go_on(skb, key, live, p, rule, ts);
		return VERDICT_NONE;
	}
	if (live && session_is_own(live, key) && !session_makes_room(live, p->protocol))
		return VERDICT_DROP_SESSION_TAKEN;
	*tag = ours;
	place = quota_new(key, &p->destination); /* not in session_make(), whose stack is large */
	*session = session_make(key, p, rule, ts, live);
	if (!*session)
		return VERDICT_DROP_SESSION_FULL;
	if (place)
		(*session)->overflow = place;
	if (client_events(p) & SESSION_CLIENT_FIN)
		session_note_fin(skb, p, key, *session);
	return VERDICT_NONE;
}

/* A workload's packet replies in the session. */
static __always_inline void session_answered(struct __sk_buff *skb, const struct session_key *key,
					     struct session *session, const struct packet *p)
{
	__u64 now = bpf_ktime_get_coarse_ns();
	__u32 events = workload_events(p);
	const __u32 resets = SESSION_RESET | SESSION_CLIENT_RESET;
	bool fresh;

	if (session_takes_fin(skb, p, session))
		events |= SESSION_CLIENT_FIN;
	fresh = events & ~session->events;
	if (p->protocol == IPPROTO_TCP &&
	    (fresh || session->events & resets || p->tcp_flags & TCP_FLAG_SYN ||
	     now - session->last_sent >= SESSION_SEEN_STEP))
		session_note_workload(skb, p, key, session, events);
	else if (fresh)
		session_note(key, session, events);
	if (workload_lives(p))
		session_seen(session, now);
}

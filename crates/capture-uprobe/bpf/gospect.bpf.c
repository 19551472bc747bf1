/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What runs in the kernel: one program for the sites that read values, one for those
 * that do not, and two that tell when a process in scope replaces its image or is gone.
 */
#include "wire.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

char LICENSE[] SEC("license") = "GPL";

const volatile struct config config SEC(".rodata.config");

#include "fetch.h"

/* Set once every site is in place: what hit before belongs to no capture. */
__u32 active;

/* Entries of the maps below are set to the plan's numbers before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct site_config);
} sites SEC(".maps");

/* Thread groups in scope. With config.every_process those that had a hit. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u8);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 8 << 20);
} ring SEC(".maps");

/*
 * Several per CPU: a program that runs in a task can be preempted by another task's
 * hit on the same CPU. A slot is taken by compare-and-swap.
 */
#define SCRATCH_SLOTS 4

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_SLOTS);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

static __always_inline __u64 current_ids(void)
{
	struct bpf_pidns_info ns = {};

	if (!config.pidns_ino)
		return bpf_get_current_pid_tgid();
	if (bpf_get_ns_current_pid_tgid(config.pidns_dev, config.pidns_ino, &ns, sizeof(ns)))
		return 0;
	return (__u64)ns.tgid << 32 | ns.pid;
}

static __always_inline struct counters *counters_of_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&counts, &zero);
}

/*
 * Wakes the reader only when much is waiting; it looks by itself every few
 * milliseconds, and a wake-up per record would cost more than the record.
 */
static __always_inline __u64 wake_flags(__u64 produced)
{
	if (produced & 63)
		return BPF_RB_NO_WAKEUP;
	if (bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA) < config.wake_bytes)
		return BPF_RB_NO_WAKEUP;
	return BPF_RB_FORCE_WAKEUP;
}

static __always_inline __u64 current_g(const struct pt_regs *regs, const struct site_config *site)
{
	struct task_struct *task;
	__u64 g = regs->r14;

	/* Keeps the load at a constant offset: the verifier takes no other of a context. */
	barrier_var(g);
	if (site->g_source == G_R14)
		return g;
	task = bpf_get_current_task_btf();
	g = 0;
	bpf_probe_read_user(&g, sizeof(g), (void *)(task->thread.fsbase + config.tls_g));
	return g;
}

/* On a system stack: which one, and the goroutine its M runs for. */
static __always_inline void read_system_stack(struct header *h, __u64 g)
{
	__u64 word = 0;

	h->flags |= FLAG_SYSTEM_STACK;
	h->stack = g;
	if (bpf_probe_read_user(&word, sizeof(word), (void *)(g + config.g_m)) || !word)
		return;
	if (bpf_probe_read_user(&word, sizeof(word), (void *)(word + config.m_curg)) || !word)
		return;
	if (!bpf_probe_read_user(&word, sizeof(word), (void *)(word + config.g_goid)))
		h->goid = word;
}

/* goid 0 is what g0 and gsignal have, and no other g that runs code. */
static __always_inline void read_goroutine(struct header *h, __u64 g, __u64 sp_first)
{
	__u64 word, goid;

	if (!g || bpf_probe_read_user(&word, sizeof(word), (void *)(g + config.g_stack_hi)))
		goto no_g;
	h->depth = word - sp_first;
	if (bpf_probe_read_user(&word, sizeof(word), (void *)(g + config.g_goid)))
		goto no_g;
	goid = word;
	h->goid = goid;
	if (!goid)
		read_system_stack(h, g);
	return;
no_g:
	h->depth = 0;
	h->flags |= FLAG_NO_G;
}

static __always_inline void fill_header(struct header *h, const struct counters *c, __u64 ids,
					__u8 kind)
{
	h->ts_ns = bpf_ktime_get_ns();
	h->goid = 0;
	h->stack = 0;
	h->depth = 0;
	h->caller = 0;
	h->site = 0;
	h->pid = ids >> 32;
	h->tid = ids;
	h->lost = c->lost;
	h->cpu = bpf_get_smp_processor_id();
	h->flags = 0;
	h->kind = kind;
	h->zero = 0;
	h->payload_len = 0;
}

/*
 * What is read of the target at every hit; gives g. A function of its own keeps the stack
 * of each below 64 bytes: see `hit`.
 */
static __noinline __u64 read_target(struct header *h, const struct pt_regs *regs,
				    const struct site_config *site)
{
	__u64 sp_first = regs->sp + site->sp_delta;
	__u64 g = current_g(regs, site);
	__u64 word;

	read_goroutine(h, g, sp_first);
	if (site->kind == SITE_ENTRY) {
		if (bpf_probe_read_user(&word, sizeof(word), (void *)sp_first))
			h->flags |= FLAG_NO_CALLER;
		else
			h->caller = word;
	}
	return g;
}

static __always_inline struct scratch *claim_scratch(void)
{
	for (__u32 slot = 0; slot < SCRATCH_SLOTS; slot++) {
		__u32 key = slot;
		struct scratch *s = bpf_map_lookup_elem(&scratch, &key);

		if (s && !__sync_val_compare_and_swap(&s->claimed, 0, 1))
			return s;
	}
	return 0;
}

static __always_inline int in_scope(__u32 pid)
{
	__u8 one = 1;

	if (config.only_pid)
		return pid == config.only_pid;
	if (bpf_map_lookup_elem(&targets, &pid))
		return 1;
	if (!config.every_process)
		return 0;
	bpf_map_update_elem(&targets, &pid, &one, BPF_ANY);
	return 1;
}

/* Gives the site when a hit of it is to be recorded. */
static __always_inline struct site_config *wanted_site(struct counters *c, __u64 ids, __u32 id)
{
	if (!active)
		return 0;
	if (!in_scope(ids >> 32)) {
		__sync_fetch_and_add(&c->foreign, 1);
		return 0;
	}
	return bpf_map_lookup_elem(&sites, &id);
}

/*
 * For sites that read nothing more. The record is filled where it will be read, and the
 * reads of user memory share one word of stack: a function with 64 bytes of stack or more
 * gets a private one from the kernel (6.13 and newer), and every read to a place off the
 * task's stack costs 20 ns more.
 */
SEC("uprobe.multi")
int hit(struct pt_regs *regs)
{
	__u32 id = bpf_get_attach_cookie(regs);
	struct counters *c = counters_of_cpu();
	__u64 ids = current_ids();
	struct site_config *site;
	struct header *h;

	if (!c)
		return 0;
	site = wanted_site(c, ids, id);
	if (!site)
		return 0;
	h = bpf_ringbuf_reserve(&ring, sizeof(*h), 0);
	if (!h) {
		__sync_fetch_and_add(&c->lost, 1);
		return 0;
	}
	fill_header(h, c, ids, KIND_HIT);
	h->site = id;
	read_target(h, regs, site);
	bpf_ringbuf_submit(h, wake_flags(__sync_fetch_and_add(&c->produced, 1)));
	return 0;
}

/*
 * For sites with a fetch program. Sleepable: a string constant that the target has not looked at
 * yet is not in memory yet.
 */
SEC("uprobe.multi.s")
int hit_fetch(struct pt_regs *regs)
{
	__u32 id = bpf_get_attach_cookie(regs);
	struct counters *c = counters_of_cpu();
	__u64 ids = current_ids();
	struct site_config *site;
	struct scratch *s;
	__u64 flags, g;
	__u32 used;

	if (!c)
		return 0;
	site = wanted_site(c, ids, id);
	if (!site)
		return 0;
	s = claim_scratch();
	if (!s) {
		__sync_fetch_and_add(&c->lost, 1);
		return 0;
	}
	fill_header(&s->header, c, ids, KIND_HIT);
	s->header.site = id;
	g = read_target(&s->header, regs, site);
	fetch_start(s, regs, site, g);
	fetch_run(s, config.bounded_loop);
	used = s->used;
	if (used > MAX_PAYLOAD)
		used = MAX_PAYLOAD;
	s->header.payload_len = used;
	flags = wake_flags(c->produced);
	if (bpf_ringbuf_output(&ring, &s->header, sizeof(s->header) + used, flags))
		__sync_fetch_and_add(&c->lost, 1);
	else
		__sync_fetch_and_add(&c->produced, 1);
	/* The release needs no more than compiler order: only this CPU sees the slot. */
	*(volatile __u32 *)&s->claimed = 0;
	return 0;
}

static __always_inline void emit_process_event(__u64 ids, __u8 kind)
{
	struct counters *c = counters_of_cpu();
	struct header *h;

	if (!c)
		return;
	h = bpf_ringbuf_reserve(&ring, sizeof(*h), 0);
	if (!h) {
		__sync_fetch_and_add(&c->lost, 1);
		return;
	}
	fill_header(h, c, ids, kind);
	bpf_ringbuf_submit(h, wake_flags(__sync_fetch_and_add(&c->produced, 1)));
}

SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 ids = current_ids();
	__u32 pid = ids >> 32;

	if (bpf_map_lookup_elem(&targets, &pid))
		emit_process_event(ids, KIND_EXEC);
	return 0;
}

/*
 * Runs for every thread, after signal->live was lowered. Two last threads may both see 0:
 * the one that takes the process out of the targets reports it.
 */
SEC("raw_tp/sched_process_exit")
int process_exit(struct bpf_raw_tracepoint_args *ctx)
{
	struct task_struct *task = (struct task_struct *)ctx->args[0];
	__u64 ids = current_ids();
	__u32 pid = ids >> 32;

	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	if (!bpf_map_delete_elem(&targets, &pid))
		emit_process_event(ids, KIND_PROCESS_EXIT);
	return 0;
}

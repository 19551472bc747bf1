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
#include "ring.h"
#include "seen.h"

/* The zero flag. */
#define X86_EFLAGS_ZF (1 << 6)

/* Of `active` and of the values in `targets`. */
enum {
	/* Every site is in place; what hit before belongs to no capture. */
	RUNNING = 1,
	/* The reader was told that the process runs the image, and where it lies. */
	ANNOUNCED = 2,
};

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
	__type(value, struct cpu);
} cpus SEC(".maps");

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

static __always_inline struct cpu *this_cpu(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&cpus, &zero);
}

static __always_inline __u64 current_g(const struct pt_regs *regs, __u64 cookie)
{
	struct task_struct *task;
	__u64 g = regs->r14;

	/* Keeps the load at a constant offset: the verifier takes no other of a context. */
	barrier_var(g);
	if (!(cookie & COOKIE_G_TLS))
		return g;
	task = bpf_get_current_task_btf();
	g = 0;
	read_user(&g, sizeof(g), task->thread.fsbase + config.tls_g);
	return g;
}

/* What is read of the target at a hit. */
struct look {
	__u64 g;
	__u64 goid;
	__u64 stack;
	__u64 depth;
	__u64 caller;
	__u64 flags;
};

/* On a system stack: which one, and the goroutine its M runs for. */
static __always_inline void read_system_stack(struct look *l)
{
	__u64 word = 0;

	l->flags |= FLAG_SYSTEM_STACK;
	l->stack = l->g;
	if (read_user(&word, sizeof(word), l->g + config.g_m) || !word)
		return;
	if (read_user(&word, sizeof(word), word + config.m_curg) || !word)
		return;
	if (!read_user(&word, sizeof(word), word + config.g_goid))
		l->goid = word;
}

/* The bytes of g from stack.hi to the end of goid that are worth one read instead of two. */
#define G_SPAN 256

static __always_inline long read_g(__u64 g, __u64 *stack_hi, __u64 *goid)
{
	__u64 span[G_SPAN / 8];
	__u32 distance = config.g_goid - config.g_stack_hi;

	if (distance & 7 || distance > G_SPAN - 8)
		return read_user(stack_hi, sizeof(*stack_hi), g + config.g_stack_hi) ||
		       read_user(goid, sizeof(*goid), g + config.g_goid);
	if (read_user(span, distance + 8, g + config.g_stack_hi))
		return -1;
	*stack_hi = span[0];
	*goid = *(__u64 *)((char *)span + distance);
	return 0;
}

/* goid 0 is what g0 and gsignal have, and no other g that runs code. */
static __always_inline void look_at_target(struct look *l, struct cpu *cpu, __u64 ids,
					   const struct pt_regs *regs, __u64 cookie)
{
	__u64 sp_first = regs->sp + ((__s64)cookie >> 32);
	/* Before g is read: what is found is then kept for an era that is over rather than too long. */
	__u64 era = current_era();
	__u64 stack_hi, goid, word;
	struct seen *seen;

	l->g = current_g(regs, cookie);
	l->goid = 0;
	l->stack = 0;
	l->depth = 0;
	l->caller = 0;
	l->flags = 0;
	seen = place_of(cpu, l->g);
	if (recall(seen, l->g, era, ids, &stack_hi, &goid)) {
		l->depth = stack_hi - sp_first;
		l->goid = goid;
	} else if (!l->g || read_g(l->g, &stack_hi, &goid)) {
		l->flags = FLAG_NO_G;
	} else {
		l->depth = stack_hi - sp_first;
		l->goid = goid;
		if (goid)
			remember(seen, l->g, era, ids, stack_hi, goid);
		else
			read_system_stack(l);
	}
	if (!(cookie & COOKIE_CALLER))
		return;
	/* Into a variable of its own: all else of the look can then stay in registers. */
	if (read_user(&word, sizeof(word), sp_first))
		l->flags |= FLAG_NO_CALLER;
	else
		l->caller = word;
}

/* Of a record whose place is reserved and still zero. The clock is read last. */
static __always_inline void put_header(struct header *h, const struct cpu *cpu, __u64 ids,
				       __u8 kind, const struct look *l, __u32 site,
				       __u16 payload_len)
{
	h->goid = l->goid;
	h->stack = l->stack;
	h->depth = l->depth;
	h->caller = l->caller;
	h->site = site;
	h->pid = ids >> 32;
	h->tid = ids;
	h->lost = cpu->lost;
	h->cpu = bpf_get_smp_processor_id();
	h->flags = l->flags;
	h->kind = kind;
	h->payload_len = payload_len;
	commit(h, bpf_ktime_get_ns());
}

/* A record of a process, 0 when there was room for it. */
static __noinline int emit_process_event(__u64 ids, __u8 kind, __u64 ip, __u32 site)
{
	struct look look = { .caller = ip };
	struct cpu *cpu = this_cpu();
	struct ring *ring;
	struct header *h;

	if (!cpu)
		return 1;
	ring = ring_of(cpu);
	if (!ring)
		return 1;
	h = reserve(ring, cpu, sizeof(*h));
	if (!h)
		return 1;
	put_header(h, cpu, ids, kind, &look, site, 0);
	return 0;
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

/* A record with what was fetched. */
static __always_inline void put_record(struct ring *ring, struct cpu *cpu, __u64 ids,
				       struct scratch *s, const struct look *look, __u32 site)
{
	__u32 used = s->used, rounded;
	struct header *h;

	if (used > MAX_PAYLOAD)
		used = MAX_PAYLOAD;
	rounded = (used + RING_UNIT - 1) & ~(RING_UNIT - 1);
	h = reserve(ring, cpu, sizeof(*h) + rounded);
	if (!h)
		return;
	if (used) {
		__sync_fetch_and_add(&cpu->payload_bytes, rounded);
		/* No more than a copy: both are ours. */
		bpf_probe_read_kernel(h + 1, used, s->payload);
	}
	put_header(h, cpu, ids, KIND_HIT, look, site, used);
}

/*
 * Whether the current process is in scope. Announces it at its first hit: threads that meet
 * here announce it each, so that no hit comes before the announcement.
 */
static __always_inline int in_scope(__u64 ids, __u64 ip, __u32 site)
{
	__u32 pid = ids >> 32;
	__u8 state = RUNNING;
	__u8 *known;

	if (config.only_pid) {
		if (pid != config.only_pid)
			return 0;
		if (gate.active != ANNOUNCED && !emit_process_event(ids, KIND_PROCESS, ip, site))
			gate.active = ANNOUNCED;
		return 1;
	}
	known = bpf_map_lookup_elem(&targets, &pid);
	if (known && *known == ANNOUNCED)
		return 1;
	if (!known && !config.every_process)
		return 0;
	if (!emit_process_event(ids, KIND_PROCESS, ip, site))
		state = ANNOUNCED;
	bpf_map_update_elem(&targets, &pid, &state, BPF_ANY);
	return 1;
}

/* Whether a hit is to be recorded. */
static __always_inline int is_wanted(struct cpu *cpu, __u64 ids, __u64 ip, __u32 site)
{
	if (!gate.active)
		return 0;
	if (in_scope(ids, ip, site))
		return 1;
	__sync_fetch_and_add(&cpu->foreign, 1);
	return 0;
}

/*
 * A program with 64 bytes of stack or more gets a private stack from the kernel (6.13 and newer),
 * and a read of user memory to a place off the task's stack costs 20 ns more. A program with a
 * tail call gets none, also when the verifier sees that the call is never made.
 */
#define KEEP_TASK_STACK()                         \
	do {                                      \
		if (config.never)                 \
			asm volatile("call 12");  \
	} while (0)

/*
 * For sites that read nothing more. What may wait for a page comes before the record is
 * reserved: those behind it in the ring wait for it too.
 */
SEC("uprobe.multi.s")
int hit(struct pt_regs *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	__u32 site = cookie & COOKIE_SITE;
	struct cpu *cpu = this_cpu();
	__u64 ids = current_ids();
	struct ring *ring;
	struct header *h;
	struct look look;

	KEEP_TASK_STACK();
	if (!cpu || !is_wanted(cpu, ids, regs->ip, site))
		return 0;
	ring = ring_of(cpu);
	if (!ring)
		return 0;
	touch_next(ring);
	look_at_target(&look, cpu, ids, regs, cookie);
	h = reserve(ring, cpu, sizeof(*h));
	if (h)
		put_header(h, cpu, ids, KIND_HIT, &look, site, 0);
	return 0;
}

/* For sites with a fetch program. */
SEC("uprobe.multi.s")
int hit_fetch(struct pt_regs *regs)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	__u32 id = cookie & COOKIE_SITE;
	struct cpu *cpu = this_cpu();
	__u64 ids = current_ids();
	struct site_config *site;
	struct ring *ring;
	struct look look;
	struct scratch *s;

	KEEP_TASK_STACK();
	if (cookie & (regs->flags & X86_EFLAGS_ZF ? COOKIE_IF_NOT_ZERO : COOKIE_IF_ZERO))
		return 0;
	if (!cpu || !is_wanted(cpu, ids, regs->ip, id))
		return 0;
	site = bpf_map_lookup_elem(&sites, &id);
	ring = ring_of(cpu);
	if (!site || !ring)
		return 0;
	s = claim_scratch();
	if (!s) {
		__sync_fetch_and_add(&cpu->lost, 1);
		return 0;
	}
	touch_next(ring);
	look_at_target(&look, cpu, ids, regs, cookie);
	/* Of a goroutine's own stack alone every way to leave a call is seen without a later entry. */
	fetch_start(s, regs, site, look.g, look.goid && !look.stack);
	fetch_run(s, config.bounded_loop);
	if (s->rejected && site->kind == SITE_ENTRY)
		__sync_fetch_and_add(&cpu->rejected, 1);
	else
		put_record(ring, cpu, ids, s, &look, id);
	/* The release needs no more than compiler order: only this CPU sees the slot. */
	*(volatile __u32 *)&s->claimed = 0;
	return 0;
}

/*
 * At places that a goroutine passes before its id or the upper end of its stack changes, and
 * where it is not running itself.
 */
SEC("uprobe.multi")
int g_changes(struct pt_regs *regs)
{
	next_era();
	return 0;
}

SEC("raw_tp/sched_process_exec")
int process_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 ids = current_ids();
	__u32 pid = ids >> 32;
	__u8 *known = bpf_map_lookup_elem(&targets, &pid);

	/* Other goroutines will lie where those of the old image did. */
	if (known || config.every_process)
		next_era();
	if (!known)
		return 0;
	emit_process_event(ids, KIND_EXEC, 0, 0);
	/* The new image lies elsewhere. No other thread is left to race with. */
	*known = RUNNING;
	if (config.only_pid && gate.active == ANNOUNCED)
		gate.active = RUNNING;
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
	int was_target;

	if (BPF_CORE_READ(task, signal, live.counter) > 0)
		return 0;
	was_target = !bpf_map_delete_elem(&targets, &pid);
	/* The id may become another process's. */
	if (was_target || config.every_process)
		next_era();
	if (was_target)
		emit_process_event(ids, KIND_PROCESS_EXIT, 0, 0);
	return 0;
}

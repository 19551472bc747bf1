/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The interpreter of fetch programs. Its oracle is the Rust crate `probe`
 * (interpret.rs). All state lives in a map value: on the stack the verifier
 * would follow every path through it.
 */
#pragma once

#include "wire.h"

#include <bpf/bpf_helpers.h>

/* A body that is being run, and the element it is run for. */
struct block {
	/* Place of the element in the payload, its bytes, and those of the field from it on. */
	__u32 at;
	__u32 len;
	__u32 left;
	__u32 is_list;
	/* First op of the body, and the one behind it. */
	__u32 start;
	__u32 end;
};

struct scratch {
	__u32 claimed;
	/* Bytes of payload so far: a multiple of 8. */
	__u32 used;
	__u64 acc;
	__u64 aux;
	__u64 g;
	__u64 sp_first;
	__u64 bias;
	__u64 gpr[16];
	__u32 next_op;
	__u32 end_op;
	/* A field_status; what the current field will be emitted as. */
	__u32 failure;
	__u32 open_blocks;
	/* Data of the field emitted last, if that was FIELD_OK. */
	__u32 has_last;
	__u32 last_at;
	__u32 last_len;
	/* Nothing of the hit is wanted. */
	__u32 rejected;
	struct block blocks[MAX_BLOCKS];
	/* The search in a map that the op in hand goes on with: see probe/interpret/map.rs. */
	__u32 map_seen;
	__u32 map_left;
	__u32 map_old_left;
	__u32 map_goes_on;
	__u64 map_group;
	__u64 map_next;
	__u64 map_old;
	/* What was read of a header: the stack is small. */
	__u64 map_words[2];
	__u8 payload[MAX_PAYLOAD + MAX_FIELD_DATA];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct op);
} ops SEC(".maps");

enum {
	CONTINUE = 0,
	STOP = 1,
};

/* The read that may wait for a page also costs the less: nothing has to keep it from waiting. */
static __always_inline long read_user(void *to, __u32 len, __u64 from)
{
	if (config.may_fault)
		return bpf_copy_from_user(to, len, (void *)from);
	return bpf_probe_read_user(to, len, (void *)from);
}

static __always_inline void fetch_reset(struct scratch *s)
{
	s->acc = 0;
	s->aux = 0;
	s->failure = FIELD_OK;
}

/* `decides` is 0 where the site's condition is to be passed over. */
static __always_inline void fetch_start(struct scratch *s, const struct pt_regs *regs,
					const struct site_config *site, __u64 g, int decides)
{
	s->used = 0;
	s->g = g;
	s->sp_first = regs->sp + site->sp_delta;
	s->bias = regs->ip - site->address;
	s->next_op = site->program_start - (decides ? site->condition_len : 0);
	s->end_op = site->program_start + site->program_len;
	s->open_blocks = 0;
	s->has_last = 0;
	s->rejected = 0;
	s->map_goes_on = 0;
	/* Hardware order: what the ops number registers by. */
	s->gpr[0] = regs->ax;
	s->gpr[1] = regs->cx;
	s->gpr[2] = regs->dx;
	s->gpr[3] = regs->bx;
	s->gpr[4] = regs->sp;
	s->gpr[5] = regs->bp;
	s->gpr[6] = regs->si;
	s->gpr[7] = regs->di;
	s->gpr[8] = regs->r8;
	s->gpr[9] = regs->r9;
	s->gpr[10] = regs->r10;
	s->gpr[11] = regs->r11;
	s->gpr[12] = regs->r12;
	s->gpr[13] = regs->r13;
	s->gpr[14] = regs->r14;
	s->gpr[15] = regs->r15;
	fetch_reset(s);
}

static __always_inline void put_field(struct scratch *s, __u32 used, __u8 status, __u16 len,
				      __u32 original)
{
	struct field *f = (struct field *)&s->payload[used];

	f->status = status;
	f->zero = 0;
	f->len = len;
	f->original = original;
	s->used = used + FIELD_HEADER + ((len + 7u) & ~7u);
}

/* Emits `len` bytes, of memory at acc or of acc itself, and starts the next field. */
static __always_inline int emit(struct scratch *s, __u64 len, __u32 original, int from_memory)
{
	__u32 used = s->used;
	__u32 failure = s->failure;
	__u64 acc = s->acc;
	__u64 status = FIELD_OK;

	fetch_reset(s);
	s->has_last = 0;
	if (used > MAX_PAYLOAD - FIELD_HEADER)
		return STOP;
	if (failure) {
		put_field(s, used, failure, 0, 0);
		return CONTINUE;
	}
	if (len > MAX_FIELD_DATA)
		len = MAX_FIELD_DATA;
	if (((len + 7) & ~7ull) > MAX_PAYLOAD - FIELD_HEADER - used) {
		put_field(s, used, FIELD_NO_ROOM, 0, 0);
		return STOP;
	}
	if (from_memory) {
		/* The padding after the data is zero. */
		*(__u64 *)&s->payload[used + FIELD_HEADER + (len & (MAX_FIELD_DATA - 8))] = 0;
		if (len && read_user(&s->payload[used + FIELD_HEADER], len, acc))
			status = FIELD_FAULT;
	} else {
		if (len < 8)
			acc &= (1ull << (len * 8)) - 1;
		*(__u64 *)&s->payload[used + FIELD_HEADER] = acc;
	}
	if (status) {
		put_field(s, used, status, 0, 0);
		return CONTINUE;
	}
	put_field(s, used, FIELD_OK, len, original);
	s->has_last = 1;
	s->last_at = used + FIELD_HEADER;
	s->last_len = len;
	return CONTINUE;
}

static __always_inline __u64 clamp_len(__s64 imm)
{
	if (imm < 0)
		return 0;
	return imm > MAX_FIELD_DATA ? MAX_FIELD_DATA : imm;
}

static __always_inline int emit_string(struct scratch *s, __s64 max)
{
	__u64 len = clamp_len(max), aux = s->aux;
	__u32 original = aux > 0xffffffff ? 0xffffffff : aux;

	if ((__s64)aux < 0 && !s->failure)
		s->failure = FIELD_FAULT;
	return emit(s, aux < len ? aux : len, original, 1);
}

static __always_inline void deref(struct scratch *s)
{
	__u64 word;

	if (s->failure)
		return;
	if (read_user(&word, sizeof(word), s->acc))
		s->failure = FIELD_FAULT;
	else
		s->acc = word;
}

static __always_inline void fail(struct scratch *s, __u32 status)
{
	if (!s->failure)
		s->failure = status;
}

static __always_inline __u32 saturate(__u64 n)
{
	return n > 0xffffffff ? 0xffffffff : n;
}

static __always_inline int emit_elements(struct scratch *s, __u64 imm)
{
	__u64 stride = imm >> 16 & 0xffff, most = imm & 0xffff, aux = s->aux;
	__u64 room = stride ? MAX_FIELD_DATA / stride : 0;

	if ((__s64)aux < 0)
		fail(s, FIELD_FAULT);
	if (most > room)
		most = room;
	return emit(s, (aux < most ? aux : most) * stride, saturate(aux), 1);
}

/* Bytes of a value of a type, or of what a pointer type leads to. */
static __always_inline __u64 dynamic_size(struct scratch *s)
{
	__u64 type = s->aux, size;
	__u8 kind;

	if (s->failure)
		return 0;
	if (read_user(&kind, sizeof(kind), type + TYPE_KIND))
		goto fault;
	if ((kind & 31) == KIND_POINTER && read_user(&type, sizeof(type), type + TYPE_ELEM))
		goto fault;
	if (read_user(&size, sizeof(size), type))
		goto fault;
	return size;
fault:
	fail(s, FIELD_FAULT);
	return 0;
}

static __always_inline int emit_dynamic(struct scratch *s, __s64 max)
{
	__u64 size = dynamic_size(s), most = clamp_len(max);

	return emit(s, size < most ? size : most, saturate(size), 1);
}

static __always_inline struct block *innermost(struct scratch *s)
{
	__u32 open = s->open_blocks;

	return open ? &s->blocks[(open - 1) & (MAX_BLOCKS - 1)] : 0;
}

/* The op `n` behind the next one, or the end of the body. */
static __always_inline __u32 ahead(struct scratch *s, __s64 n)
{
	struct block *b = innermost(s);
	__u32 end = b ? b->end : s->end_op, next = s->next_op;

	if (n < 0)
		n = 0;
	return next > end || n > end - next ? end : next + (__u32)n;
}

static __always_inline void each(struct scratch *s, __u64 imm)
{
	__u32 stride = imm >> 16 & 0xffff, start = s->next_op, end = ahead(s, imm & 0xffff);
	__u32 open = s->open_blocks;
	struct block *b;

	fetch_reset(s);
	if (!s->has_last || s->last_len < stride || open >= MAX_BLOCKS) {
		s->next_op = end;
		return;
	}
	b = &s->blocks[open & (MAX_BLOCKS - 1)];
	b->at = s->last_at;
	b->left = s->last_len;
	b->len = stride ? stride : s->last_len;
	b->is_list = stride != 0;
	b->start = start;
	b->end = end;
	s->open_blocks = open + 1;
}

/* Ends a pass of the innermost body. */
static __always_inline void pass(struct scratch *s, struct block *b)
{
	__u32 left = b->left - b->len;

	fetch_reset(s);
	if (b->is_list && left >= b->len) {
		b->left = left;
		b->at += b->len;
		s->next_op = b->start;
	} else {
		s->open_blocks--;
	}
}

static __always_inline void block_word(struct scratch *s, __u8 block, __s64 offset)
{
	__u32 open = s->open_blocks;
	struct block *b = &s->blocks[block & (MAX_BLOCKS - 1)];
	__u32 at = b->at;

	if (block >= open || offset < 0 || offset > MAX_FIELD_DATA || offset + 8 > b->len) {
		fail(s, FIELD_FAULT);
		return;
	}
	at += offset;
	if (at <= MAX_PAYLOAD - 8)
		s->acc = *(__u64 *)&s->payload[at];
}

static __always_inline void skip(struct scratch *s, __s64 n, int is_met)
{
	if (is_met || s->failure)
		s->next_op = ahead(s, n);
	fetch_reset(s);
}

/* The integer at `from`, 0 and the field failed when it can not be read. */
static __always_inline __u64 load_word(struct scratch *s, __u8 a, __u64 from)
{
	__u32 size = a & WORD_SIZE;
	__u64 word = 0;

	if (s->failure)
		return 0;
	if (size != 1 && size != 2 && size != 4)
		size = 8;
	if (read_user(&word, size, from)) {
		s->failure = FIELD_FAULT;
		return 0;
	}
	return word;
}

/* The low bytes of `word` as the integer that `a` says. */
static __always_inline __u64 narrow(__u64 word, __u8 a)
{
	switch (a & (WORD_SIZE | WORD_SIGNED)) {
	case 1:
		return (__u8)word;
	case 2:
		return (__u16)word;
	case 4:
		return (__u32)word;
	case 1 | WORD_SIGNED:
		return (__s64)(word << 56) >> 56;
	case 2 | WORD_SIGNED:
		return (__s64)(word << 48) >> 48;
	case 4 | WORD_SIGNED:
		return (__s64)(word << 32) >> 32;
	default:
		return word;
	}
}

static __always_inline int relates(__u8 a, __u64 left, __u64 right)
{
	int order = a & RELATION_ORDER, is_less, is_greater, holds;

	if (a & RELATION_UNSIGNED) {
		is_less = left < right;
		is_greater = left > right;
	} else {
		is_less = (__s64)left < (__s64)right;
		is_greater = (__s64)left > (__s64)right;
	}
	holds = order == ORDER_LESS    ? is_less :
		order == ORDER_GREATER ? is_greater :
					 left == right;
	return a & RELATION_NEGATED ? !holds : holds;
}

static __always_inline void touch(struct scratch *s, __s64 max)
{
	__u64 most = clamp_len(max), len = s->aux < most ? s->aux : most;
	__u8 byte;

	if ((__s64)s->aux < 0)
		fail(s, FIELD_FAULT);
	if (s->failure || !len)
		return;
	if (read_user(&byte, 1, s->acc) || read_user(&byte, 1, s->acc + len - 1))
		s->failure = FIELD_FAULT;
}

static __always_inline void match(struct scratch *s, const struct op *op)
{
	__u32 size = op->a & WORD_SIZE;
	__u64 word;

	if (s->aux)
		return;
	word = load_word(s, op->a, s->acc);
	s->aux = word ^ op->imm;
	s->acc += size == 1 || size == 2 || size == 4 ? size : 8;
}

/* Bytes of a group of a map whose elements have so many. */
static __always_inline __u32 group_size(int is_swiss, __u32 elem)
{
	return 8 + 8 * (16 + elem) + (is_swiss ? 0 : 8);
}

/* Finds the first group: 1 when there is none, -1 when it can not be read or there are too many. */
static __always_inline int map_begin(struct scratch *s, int is_swiss, __u32 size)
{
	__u64 map = s->acc, *words = s->map_words, group, count = 1;
	__u8 *bytes = (__u8 *)words;
	__u32 log, same;

	s->map_old = 0;
	s->map_seen = 0;
	if (is_swiss) {
		if (read_user(words, sizeof(s->map_words), map + SWISS_DIR))
			return -1;
		group = words[0];
		if (words[1] > 1)
			return -1;
		if (words[1]) {
			if (read_user(words, sizeof(words[0]), group) ||
			    read_user(words, sizeof(s->map_words), words[0] + SWISS_GROUPS))
				return -1;
			group = words[0];
			count = words[1] + 1;
		}
	} else {
		if (read_user(bytes, 2, map + HMAP_FLAGS))
			return -1;
		same = bytes[0] & HMAP_SAME_SIZE;
		log = bytes[1];
		if (log > 6 || read_user(words, sizeof(s->map_words), map + HMAP_BUCKETS))
			return -1;
		group = words[0];
		count = 1ull << (log & 7);
		s->map_old = words[1];
		s->map_old_left = same || !log ? count : count >> 1;
	}
	if (!group)
		return 1;
	if (!count || count > MAX_MAP_GROUPS)
		return -1;
	s->map_group = group;
	s->map_next = group + size;
	s->map_left = count - 1;
	return 0;
}

/* Looks at one group, and makes the op be run again when there are more. */
static __always_inline void map_elem(struct scratch *s, const struct op *op)
{
	int is_swiss = (op->a & MAP_SWISS) != 0, begun;
	__u32 elem = (op->a >> 4 & 7) * 8, len = 8 + (op->a & 7), size = group_size(is_swiss, elem);
	__u32 stride = is_swiss ? 16 + elem : 16;
	/* No field ever reaches beyond that. */
	__u8 *group = &s->payload[MAX_PAYLOAD];
	__u64 *read = s->map_words, word, behind;

	if (s->failure)
		return;
	if (!s->map_goes_on) {
		begun = map_begin(s, is_swiss, size);
		if (begun < 0)
			goto fault;
		if (begun) {
			s->acc = 0;
			return;
		}
	}
	s->map_goes_on = 0;
	if (size > MAX_FIELD_DATA || read_user(group, size, s->map_group))
		goto fault;
	for (__u32 i = 0; i < 8; i++) {
		__u32 at = 8 + i * stride;

		if (*(__u64 *)&group[at + 8] != len)
			continue;
		word = *(__u64 *)&group[at];
		if (read_user(read, sizeof(*read), word))
			goto fault;
		if (*read != op->imm)
			continue;
		if (read_user(read, sizeof(*read), word + len - 8))
			goto fault;
		if (*read != s->aux)
			continue;
		s->acc = s->map_group + (is_swiss ? at + 16 : 8 + 8 * 16 + i * elem);
		return;
	}
	behind = is_swiss ? 0 : *(__u64 *)&group[size - 8];
	s->map_seen++;
	if (behind) {
		s->map_group = behind;
	} else if (s->map_left) {
		s->map_group = s->map_next;
		s->map_next += size;
		s->map_left--;
	} else if (s->map_old) {
		s->map_group = s->map_old;
		s->map_next = s->map_old + size;
		s->map_left = s->map_old_left - 1;
		s->map_old = 0;
	} else {
		s->acc = 0;
		return;
	}
	if (s->map_seen == MAX_MAP_GROUPS)
		goto fault;
	s->map_goes_on = 1;
	s->next_op--;
	return;
fault:
	s->failure = FIELD_FAULT;
}

static __always_inline int fetch_op(struct scratch *s, const struct op *op)
{
	__u64 len;

	switch (op->code) {
	case OP_REG:
		s->acc = s->gpr[op->a & 15];
		break;
	case OP_STACK_SLOT:
		s->acc = s->sp_first + op->imm;
		break;
	case OP_CURRENT_G:
		s->acc = s->g;
		break;
	case OP_ADD:
		s->acc += op->imm;
		break;
	case OP_DEREF:
		deref(s);
		break;
	case OP_SET_AUX:
		s->aux = s->acc;
		break;
	case OP_GET_AUX:
		s->acc = s->aux;
		break;
	case OP_RESET:
		fetch_reset(s);
		break;
	case OP_EMIT_ACC:
		len = op->a == 1 || op->a == 2 || op->a == 4 ? op->a : 8;
		return emit(s, len, len, 0);
	case OP_EMIT_BYTES:
		len = clamp_len(op->imm);
		return emit(s, len, len, 1);
	case OP_EMIT_STRING:
		return emit_string(s, op->imm);
	case OP_NIL_CHECK:
		if (!s->acc && !s->failure)
			s->failure = FIELD_NIL;
		break;
	case OP_FLOAT_REG:
		/* The kernel does not show them to a program. */
		if (!s->failure)
			s->failure = FIELD_NO_REGISTER;
		break;
	case OP_EMIT_ELEMENTS:
		return emit_elements(s, op->imm);
	case OP_EMIT_DYNAMIC:
		return emit_dynamic(s, op->imm);
	case OP_EACH:
		each(s, op->imm);
		break;
	case OP_BLOCK_WORD:
		block_word(s, op->a, op->imm);
		break;
	case OP_SKIP_NON_ZERO:
		skip(s, op->imm, s->acc != 0);
		break;
	case OP_IMAGE:
		s->acc = (op->a == IMAGE_PLACE ? s->acc - s->bias : s->bias) + op->imm;
		break;
	case OP_SKIP_ZERO:
		skip(s, op->imm, s->acc == 0);
		break;
	case OP_LOAD:
		s->acc = narrow(load_word(s, op->a, s->acc), op->a);
		break;
	case OP_NARROW:
		s->acc = narrow(s->acc, op->a);
		break;
	case OP_COMPARE:
		s->acc = op->a & RELATION_WITH_AUX ? relates(op->a, s->aux, s->acc) :
						     relates(op->a, s->acc, op->imm);
		break;
	case OP_TOUCH:
		touch(s, op->imm);
		break;
	case OP_ADD_AUX:
		s->aux += op->imm;
		break;
	case OP_MATCH:
		match(s, op);
		break;
	case OP_MAP_ELEM:
		map_elem(s, op);
		break;
	case OP_REJECT:
		s->used = 0;
		s->rejected = 1;
		return STOP;
	default:
		return STOP;
	}
	return CONTINUE;
}

static __always_inline long one_step(struct scratch *s)
{
	struct block *b = innermost(s);
	__u32 at = s->next_op;
	struct op *op;

	if (b && b->end == at) {
		pass(s, b);
		return CONTINUE;
	}
	if (at >= s->end_op)
		return STOP;
	op = bpf_map_lookup_elem(&ops, &at);
	if (!op)
		return STOP;
	s->next_op = at + 1;
	return fetch_op(s, op);
}

struct fetch_context {
	struct scratch *s;
};

static long fetch_step(__u32 i, void *data)
{
	return one_step(((struct fetch_context *)data)->s);
}

/*
 * The same for a bounded loop. Global, so that the verifier looks at it once, for any state:
 * followed from one call to the next it would be too much.
 */
__noinline long fetch_bounded_step(struct scratch *s)
{
	return s ? one_step(s) : STOP;
}

static __always_inline void fetch_run(struct scratch *s, int bounded_loop)
{
	struct fetch_context context = { s };

	if (!bounded_loop) {
		bpf_loop(MAX_STEPS + MAX_CONDITION_OPS, fetch_step, &context, 0);
		return;
	}
	for (int i = 0; i < MAX_STEPS + MAX_CONDITION_OPS; i++)
		if (fetch_bounded_step(s))
			return;
}

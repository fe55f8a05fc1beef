/* Pickle: see pickle.h. The machine's state, what opcodes read, what they make, the table
 * of opcodes. */
#include "io/pytorch/pickle.h"

#include "io/pytorch/torch_objects.h"

#include <string.h>

enum {
    VALUES_MAX = 1 << 22, /* and elements of containers */
    STACK_MAX = 1 << 20,
    MARKS_MAX = 1000, /* containers that are open at once */
    LINE_MAX_BYTES = 1000
};

typedef struct Machine {
    PickleSource *source;
    const unsigned char *data;
    size_t length, at;       /* where it reads */
    size_t opcode;           /* byte of the file of the opcode that runs */
    PickleItems stack, memo; /* memo: by number, NULL = free */
    size_t marks[MARKS_MAX]; /* heights of the stack */
    int mark_count;
    bool stopped;
} Machine;

#define FAIL(machine, ...) pickle_fail((machine)->source, (machine)->opcode, __VA_ARGS__)

/* --- reading --- */

static Status need(Machine *m, size_t bytes) {
    if (bytes <= m->length - m->at) return STATUS_OK;
    return FAIL(m, "the pickle ends in the middle: %zu bytes are missing",
                bytes - (m->length - m->at));
}

/* An unsigned number of so many bytes, little end first. */
static Status read_number(Machine *m, int bytes, uint64_t *out) {
    TRY(need(m, (size_t)bytes));
    *out = 0;
    for (int i = 0; i < bytes; i++) *out |= (uint64_t)m->data[m->at++] << (8 * i);
    return STATUS_OK;
}

/* Bytes behind their length, which is a number of `bytes` bytes. */
static Status read_counted(Machine *m, int bytes, TextSpan *out) {
    uint64_t length;
    TRY(read_number(m, bytes, &length));
    if (length > m->length - m->at)
        return FAIL(m,
                    "the pickle ends in the middle: %llu bytes were announced, %zu left",
                    (unsigned long long)length, m->length - m->at);
    *out = (TextSpan){(const char *)m->data + m->at, (size_t)length};
    m->at += (size_t)length;
    return STATUS_OK;
}

static Status read_line(Machine *m, TextSpan *out) {
    const unsigned char *start = m->data + m->at;
    const size_t left = m->length - m->at;
    const unsigned char *end =
        memchr(start, '\n', left < LINE_MAX_BYTES ? left : LINE_MAX_BYTES);
    if (!end) return FAIL(m, "expected a name that ends with its line");
    *out = (TextSpan){(const char *)start, (size_t)(end - start)};
    m->at += out->length + 1;
    return STATUS_OK;
}

/* --- stack and containers --- */

static Status items_add(Machine *m, PickleItems *list, PickleValue *value) {
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 8;
        PickleValue **items = ARENA_ARRAY(m->source->arena, PickleValue *, capacity);
        if (list->count > 0) memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->capacity = capacity;
    }
    list->items[list->count++] = value;
    return STATUS_OK;
}

static Status push(Machine *m, PickleValue *value) {
    if (m->stack.count == STACK_MAX)
        return FAIL(m, "more than %d values on the stack", STACK_MAX);
    return items_add(m, &m->stack, value);
}

/* Makes a value of a kind on top of the stack. */
static Status make(Machine *m, PickleKind kind, PickleValue **out) {
    *out = ARENA_NEW(m->source->arena, PickleValue);
    **out = (PickleValue){.kind = kind, .at = m->opcode};
    if (!pickle_take_room(m->source, 1))
        return FAIL(m, "more than %d values in a pickle", VALUES_MAX);
    return push(m, *out);
}

/* Checks that the stack holds `count` values above the last mark. */
static Status need_values(Machine *m, size_t count) {
    const size_t base = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (m->stack.count - base >= count) return STATUS_OK;
    return FAIL(m, "the stack holds %zu values here, expected %zu", m->stack.count - base,
                count);
}

static PickleValue *top(const Machine *m, size_t depth) {
    return m->stack.items[m->stack.count - 1 - depth];
}

/* Takes the values above the last mark off the stack; they stay where they are. */
static Status take_marked(Machine *m, PickleItems *out) {
    if (m->mark_count == 0) return FAIL(m, "expected a mark on the stack, found none");
    const size_t base = m->marks[--m->mark_count];
    *out = (PickleItems){.items = m->stack.items + base, .count = m->stack.count - base};
    m->stack.count = base;
    return STATUS_OK;
}

/* Takes the last `count` values off the stack. */
static Status take_last(Machine *m, size_t count, PickleItems *out) {
    TRY(need_values(m, count));
    m->stack.count -= count;
    *out = (PickleItems){.items = m->stack.items + m->stack.count, .count = count};
    return STATUS_OK;
}

/* Adds values, which may stand right above the stack's top, to a container. */
static Status extend(Machine *m, PickleValue *into, const PickleItems *from) {
    if (into->kind == PICKLE_DICT && from->count % 2)
        return FAIL(m, "expected keys and values in turn, found %zu", from->count);
    if (!pickle_take_room(m->source, from->count))
        return FAIL(m, "more than %d values in a pickle", VALUES_MAX);
    for (size_t i = 0; i < from->count; i++)
        TRY(items_add(m, &into->list, from->items[i]));
    return STATUS_OK;
}

/* Puts a container of these values on the stack. */
static Status make_container(Machine *m, PickleKind kind, const PickleItems *from) {
    /* the stack is written only when the values were read */
    PickleValue value = {.kind = kind, .at = m->opcode}, *made;
    TRY(extend(m, &value, from));
    TRY(make(m, kind, &made));
    *made = value;
    return STATUS_OK;
}

/* Adds values to the container on top of the stack. */
static Status add_to_top(Machine *m, PickleKind kind, const PickleItems *from) {
    TRY(need_values(m, 1));
    PickleValue *into = top(m, 0);
    if (into->kind != kind)
        return FAIL(m, "expected a %s to add to, found a %s", pickle_kind_name(kind),
                    pickle_kind_name(into->kind));
    return extend(m, into, from);
}

/* --- opcodes; `argument` is the table's --- */

static Status op_ignore(Machine *m, int argument) {
    uint64_t ignored;
    return argument ? read_number(m, argument, &ignored) : STATUS_OK;
}

static Status op_stop(Machine *m, int argument) {
    (void)argument;
    m->stopped = true;
    if (m->mark_count == 0 && m->stack.count == 1) return STATUS_OK;
    return FAIL(m, "expected one value at the end, found %zu", m->stack.count);
}

static Status op_mark(Machine *m, int argument) {
    (void)argument;
    if (m->mark_count == MARKS_MAX)
        return FAIL(m, "nested deeper than %d containers", MARKS_MAX);
    m->marks[m->mark_count++] = m->stack.count;
    return STATUS_OK;
}

static Status op_pop(Machine *m, int argument) {
    PickleItems gone;
    const size_t base = m->mark_count > 0 ? m->marks[m->mark_count - 1] : 0;
    if (argument || (m->mark_count > 0 && m->stack.count == base))
        return take_marked(m, &gone); /* POP takes a mark, too */
    return take_last(m, 1, &gone);
}

static Status op_dup(Machine *m, int argument) {
    (void)argument;
    TRY(need_values(m, 1));
    return push(m, top(m, 0));
}

static Status op_constant(Machine *m, int argument) {
    PickleValue *value;
    TRY(make(m, argument < 0 ? PICKLE_NONE : PICKLE_BOOL, &value));
    value->boolean = argument == 1;
    return STATUS_OK;
}

/* BININT has a sign, the shorter ones have none. */
static Status op_integer(Machine *m, int argument) {
    uint64_t number;
    PickleValue *value;
    TRY(read_number(m, argument, &number));
    TRY(make(m, PICKLE_INT, &value));
    value->integer = argument == 4 ? (int32_t)(uint32_t)number : (int64_t)number;
    return STATUS_OK;
}

/* LONG1 and LONG4: two's complement of any length. */
static Status op_long(Machine *m, int argument) {
    TextSpan bytes;
    PickleValue *value;
    TRY(read_counted(m, argument, &bytes));
    TRY(make(m, bytes.length <= 8 ? PICKLE_INT : PICKLE_LONG, &value));
    if (value->kind == PICKLE_LONG) {
        value->text = bytes;
        return STATUS_OK;
    }
    uint64_t number = 0;
    for (size_t i = 0; i < bytes.length; i++)
        number |= (uint64_t)(unsigned char)bytes.text[i] << (8 * i);
    const bool negative =
        bytes.length > 0 && (unsigned char)bytes.text[bytes.length - 1] >= 0x80;
    if (negative && bytes.length < 8) number |= UINT64_MAX << (8 * bytes.length);
    memcpy(&value->integer, &number, sizeof number);
    return STATUS_OK;
}

/* BINFLOAT: eight bytes, big end first. */
static Status op_real(Machine *m, int argument) {
    uint64_t bits = 0;
    PickleValue *value;
    (void)argument;
    TRY(need(m, 8));
    for (int i = 0; i < 8; i++) bits = bits << 8 | m->data[m->at++];
    TRY(make(m, PICKLE_REAL, &value));
    memcpy(&value->real, &bits, sizeof bits);
    return STATUS_OK;
}

static Status op_text(Machine *m, int argument) {
    TextSpan span;
    PickleValue *value;
    TRY(read_counted(m, argument, &span));
    TRY(make(m, PICKLE_TEXT, &value));
    value->text = span;
    return STATUS_OK;
}

static Status op_bytes(Machine *m, int argument) {
    TRY(op_text(m, argument));
    top(m, 0)->kind = PICKLE_BYTES;
    return STATUS_OK;
}

static Status op_empty(Machine *m, int argument) {
    PickleValue *value;
    return make(m, (PickleKind)argument, &value);
}

static Status op_collect(Machine *m, int argument) {
    PickleItems items;
    TRY(take_marked(m, &items));
    return make_container(m, (PickleKind)argument, &items);
}

/* TUPLE1 to TUPLE3. */
static Status op_tuple(Machine *m, int argument) {
    PickleItems items;
    TRY(take_last(m, (size_t)argument, &items));
    return make_container(m, PICKLE_TUPLE, &items);
}

/* APPENDS and SETITEMS. */
static Status op_add_marked(Machine *m, int argument) {
    PickleItems items;
    TRY(take_marked(m, &items));
    return add_to_top(m, (PickleKind)argument, &items);
}

/* APPEND and SETITEM. */
static Status op_add(Machine *m, int argument) {
    PickleItems items;
    TRY(take_last(m, argument == PICKLE_DICT ? 2 : 1, &items));
    return add_to_top(m, (PickleKind)argument, &items);
}

static Status op_put(Machine *m, int argument) {
    uint64_t number = m->memo.count; /* MEMOIZE */
    if (argument) TRY(read_number(m, argument, &number));
    TRY(need_values(m, 1));
    /* Python numbers the memo from 0 or 1 on, without gaps */
    if (number > m->memo.count + 1)
        return FAIL(m, "memo number %llu behind %zu others", (unsigned long long)number,
                    m->memo.count);
    while (m->memo.count <= number) TRY(items_add(m, &m->memo, NULL));
    m->memo.items[number] = top(m, 0);
    return STATUS_OK;
}

static Status op_get(Machine *m, int argument) {
    uint64_t number;
    TRY(read_number(m, argument, &number));
    if (number >= m->memo.count || !m->memo.items[number])
        return FAIL(m, "memo number %llu was not set", (unsigned long long)number);
    return push(m, m->memo.items[number]);
}

/* Refuses a name, in full. */
static Status refuse_name(Machine *m, TextSpan module, TextSpan name) {
    Text text = {0}, quoted = {0};
    text_bytes(&text, module.text, module.length < 100 ? module.length : 100);
    text_add(&text, ".");
    text_bytes(&text, name.text, name.length < 100 ? name.length : 100);
    text_quoted(&quoted, utf8_is_valid(text.data) ? text.data : "?");
    FAIL(m, "%s is none of the names that are read, and nothing in a pickle is run",
         quoted.data);
    diag_hint(m->source->diag, "save the weights alone: torch.save(model.state_dict(), "
                               "path)");
    text_free(&text);
    text_free(&quoted);
    return STATUS_FORMAT;
}

static Status push_name(Machine *m, TextSpan module, TextSpan name) {
    PickleValue *value;
    const TorchName *found = torch_name_find(module, name);
    if (!found) return refuse_name(m, module, name);
    TRY(make(m, PICKLE_NAME, &value));
    value->name = found;
    return STATUS_OK;
}

/* GLOBAL. */
static Status op_global(Machine *m, int argument) {
    TextSpan module, name;
    (void)argument;
    TRY(read_line(m, &module));
    TRY(read_line(m, &name));
    return push_name(m, module, name);
}

/* INST: the same, followed by a call, which no name has. */
static Status op_inst(Machine *m, int argument) {
    TextSpan module, name;
    (void)argument;
    TRY(read_line(m, &module));
    TRY(read_line(m, &name));
    return refuse_name(m, module, name);
}

static Status op_stack_global(Machine *m, int argument) {
    PickleItems pair;
    (void)argument;
    TRY(take_last(m, 2, &pair));
    const PickleValue *module = pair.items[0], *name = pair.items[1];
    if (module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT)
        return FAIL(m, "expected a module and a name, found a %s and a %s",
                    pickle_kind_name(module->kind), pickle_kind_name(name->kind));
    return push_name(m, module->text, name->text);
}

static Status op_reduce(Machine *m, int argument) {
    PickleItems call;
    (void)argument;
    TRY(take_last(m, 2, &call));
    const PickleValue *name = call.items[0], *arguments = call.items[1];
    if (name->kind != PICKLE_NAME || arguments->kind != PICKLE_TUPLE)
        return FAIL(m, "expected a name and a tuple of arguments, found a %s and a %s",
                    pickle_kind_name(name->kind), pickle_kind_name(arguments->kind));
    PickleValue made = {0}, *value;
    TRY(torch_make(&made, m->source, name->name, arguments, m->opcode));
    TRY(make(m, made.kind, &value));
    *value = made;
    return STATUS_OK;
}

/* BUILD: attributes of a record, which are what it holds; those of an OrderedDict
 * (`_metadata` of a state dict), which are left out; the byte order of a type of numpy's.
 */
static Status op_build(Machine *m, int argument) {
    (void)argument;
    TRY(need_values(m, 2));
    PickleValue *object = top(m, 1);
    const PickleValue *state = top(m, 0);
    if (object->built && object->kind == PICKLE_TEXT) {
        const bool good = state->kind == PICKLE_TUPLE && state->list.count > 1 &&
                          !pickle_is_text(state->list.items[1], ">");
        if (!good) return FAIL(m, "expected numbers with their little end first");
        m->stack.count--;
        return STATUS_OK;
    }
    if (object->kind != PICKLE_DICT || state->kind != PICKLE_DICT)
        return FAIL(m, "BUILD of a %s with a %s is not read: nothing in a pickle is run",
                    pickle_kind_name(object->kind), pickle_kind_name(state->kind));
    if (object->built) object->list = state->list;
    m->stack.count--;
    return STATUS_OK;
}

static Status op_persistent(Machine *m, int argument) {
    PickleItems id;
    PickleValue made = {0}, *value;
    (void)argument;
    TRY(take_last(m, 1, &id));
    TRY(torch_storage(&made, m->source, id.items[0], m->opcode));
    TRY(make(m, PICKLE_STORAGE, &value));
    *value = made;
    return STATUS_OK;
}

/* OBJ, NEWOBJ and NEWOBJ_EX: an instance of a class below so many values. */
static Status op_instance(Machine *m, int argument) {
    PickleItems items = {0};
    if (argument)
        TRY(take_last(m, (size_t)argument + 1, &items));
    else
        TRY(take_marked(m, &items));
    const PickleValue *class = items.count > 0 ? items.items[0] : NULL;
    const bool named = class && class->kind == PICKLE_NAME;
    if (named && argument == 1 && items.items[1]->kind == PICKLE_TUPLE) {
        PickleValue made = {0}, *value;
        TRY(torch_instance(&made, m->source, class->name, items.items[1], m->opcode));
        TRY(make(m, made.kind, &value));
        *value = made;
        return STATUS_OK;
    }
    return FAIL(m, "an instance of %s is not read: nothing in a pickle is run",
                named ? torch_name_text(class->name) : "what is no class");
}

/* --- running --- */

typedef struct PickleOpcode {
    const char *name;
    Status (*run)(Machine *m, int argument); /* NULL = refused by name */
    int argument;
} PickleOpcode;

static const PickleOpcode OPCODES[256] = {
    [0x80] = {"PROTO", op_ignore, 1},
    [0x95] = {"FRAME", op_ignore, 8},
    ['.'] = {"STOP", op_stop, 0},
    ['('] = {"MARK", op_mark, 0},
    ['0'] = {"POP", op_pop, 0},
    ['1'] = {"POP_MARK", op_pop, 1},
    ['2'] = {"DUP", op_dup, 0},
    ['N'] = {"NONE", op_constant, -1},
    [0x88] = {"NEWTRUE", op_constant, 1},
    [0x89] = {"NEWFALSE", op_constant, 0},
    ['J'] = {"BININT", op_integer, 4},
    ['K'] = {"BININT1", op_integer, 1},
    ['M'] = {"BININT2", op_integer, 2},
    [0x8a] = {"LONG1", op_long, 1},
    [0x8b] = {"LONG4", op_long, 4},
    ['G'] = {"BINFLOAT", op_real, 0},
    ['T'] = {"BINSTRING", op_text, 4},
    ['U'] = {"SHORT_BINSTRING", op_text, 1},
    ['X'] = {"BINUNICODE", op_text, 4},
    [0x8c] = {"SHORT_BINUNICODE", op_text, 1},
    [0x8d] = {"BINUNICODE8", op_text, 8},
    ['B'] = {"BINBYTES", op_bytes, 4},
    ['C'] = {"SHORT_BINBYTES", op_bytes, 1},
    [0x8e] = {"BINBYTES8", op_bytes, 8},
    [0x96] = {"BYTEARRAY8", op_bytes, 8},
    [']'] = {"EMPTY_LIST", op_empty, PICKLE_LIST},
    [')'] = {"EMPTY_TUPLE", op_empty, PICKLE_TUPLE},
    ['}'] = {"EMPTY_DICT", op_empty, PICKLE_DICT},
    ['l'] = {"LIST", op_collect, PICKLE_LIST},
    ['t'] = {"TUPLE", op_collect, PICKLE_TUPLE},
    ['d'] = {"DICT", op_collect, PICKLE_DICT},
    [0x85] = {"TUPLE1", op_tuple, 1},
    [0x86] = {"TUPLE2", op_tuple, 2},
    [0x87] = {"TUPLE3", op_tuple, 3},
    ['a'] = {"APPEND", op_add, PICKLE_LIST},
    ['e'] = {"APPENDS", op_add_marked, PICKLE_LIST},
    ['s'] = {"SETITEM", op_add, PICKLE_DICT},
    ['u'] = {"SETITEMS", op_add_marked, PICKLE_DICT},
    ['q'] = {"BINPUT", op_put, 1},
    ['r'] = {"LONG_BINPUT", op_put, 4},
    [0x94] = {"MEMOIZE", op_put, 0},
    ['h'] = {"BINGET", op_get, 1},
    ['j'] = {"LONG_BINGET", op_get, 4},
    ['c'] = {"GLOBAL", op_global, 0},
    [0x93] = {"STACK_GLOBAL", op_stack_global, 0},
    ['R'] = {"REDUCE", op_reduce, 0},
    ['b'] = {"BUILD", op_build, 0},
    ['Q'] = {"BINPERSID", op_persistent, 0},
    ['i'] = {"INST", op_inst, 0},
    ['o'] = {"OBJ", op_instance, 0},
    [0x81] = {"NEWOBJ", op_instance, 1},
    [0x92] = {"NEWOBJ_EX", op_instance, 2},
    [0x8f] = {"EMPTY_SET", NULL, 0},
    [0x90] = {"ADDITEMS", NULL, 0},
    [0x91] = {"FROZENSET", NULL, 0},
    [0x82] = {"EXT1", NULL, 0},
    [0x83] = {"EXT2", NULL, 0},
    [0x84] = {"EXT4", NULL, 0},
    [0x97] = {"NEXT_BUFFER", NULL, 0},
    [0x98] = {"READONLY_BUFFER", NULL, 0},
    ['I'] = {"INT", NULL, 0},
    ['L'] = {"LONG", NULL, 0},
    ['F'] = {"FLOAT", NULL, 0},
    ['S'] = {"STRING", NULL, 0},
    ['V'] = {"UNICODE", NULL, 0},
    ['P'] = {"PERSID", NULL, 0},
    ['p'] = {"PUT", NULL, 0},
    ['g'] = {"GET", NULL, 0},
};

static Status step(Machine *m) {
    m->opcode = m->source->base + m->at;
    TRY(need(m, 1));
    const int code = m->data[m->at++];
    const PickleOpcode *opcode = &OPCODES[code];
    if (opcode->run) return opcode->run(m, opcode->argument);
    if (opcode->name) return FAIL(m, "the opcode %s is not read", opcode->name);
    return FAIL(m, "expected an opcode, found the byte %d", code);
}

Status pickle_read(const PickleValue **out, PickleSource *source, size_t *used) {
    const size_t length =
        source->length < PICKLE_BYTES_MAX ? source->length : PICKLE_BYTES_MAX;
    Arena *scratch = source->arena;
    Machine *m = ARENA_NEW(scratch, Machine);
    *m = (Machine){.source = source, .data = source->data, .length = length};
    m->stack.capacity = 64; /* values on top of none are none, and stand somewhere */
    m->stack.items = ARENA_ARRAY(source->arena, PickleValue *, m->stack.capacity);
    source->room = VALUES_MAX;
    source->storages = NULL;
    if (length < 2 || m->data[0] != 0x80 || m->data[1] < 2 || m->data[1] > 5)
        return pickle_fail(source, source->base,
                           "expected a pickle of protocol 2 to 5, found none");
    while (!m->stopped) TRY(step(m));
    *out = m->stack.items[0];
    if (used) *used = m->at;
    return STATUS_OK;
}

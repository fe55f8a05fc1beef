/* Field, continued: binding a map to a struct and reporting what does not fit. */
#include "ir/field.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One member being set: what every checker needs. */
typedef struct MemberBinding {
    const Field *field;
    Arena *arena;
    Status status;
    Diag *diag;
} MemberBinding;

/* Longest word that name_nearest looks at. */
#define WORD_MAX  63
#define BEGINNING 3 /* letters from which a word may be the beginning of a name */

/* Longest value that a hint shows, as JSON. */
#define ITEM_SHOWN_MAX 60

/* Lower case and '-' as '_', so that a name in another spelling counts as near. */
static void fold_word(char out[WORD_MAX + 1], const char *word) {
    size_t i = 0;
    for (; word[i]; i++) {
        out[i] = word[i] == '-' ? '_' : (char)tolower((unsigned char)word[i]);
    }
    out[i] = 0;
}

static int min_int(int a, int b) {
    return a < b ? a : b;
}

/* Edit distance with swaps of neighbours (optimal string alignment). */
static int word_distance(const char *a, const char *b) {
    int rows[3][WORD_MAX + 1];
    int *before = rows[0], *last = rows[1], *row = rows[2];
    int length = (int)strlen(b);
    for (int j = 0; j <= length; j++) before[j] = last[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        row[0] = i;
        for (int j = 1; j <= length; j++) {
            int change = last[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = min_int(change, min_int(last[j], row[j - 1]) + 1);
            bool swap = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swap) row[j] = min_int(row[j], before[j - 2] + 1);
        }
        int *free_row = before;
        before = last;
        last = row;
        row = free_row;
    }
    return last[length];
}

const char *name_nearest(const char *word, const char *const *names, int count) {
    char folded[WORD_MAX + 1], name[WORD_MAX + 1];
    if (strlen(word) > WORD_MAX) return NULL;
    fold_word(folded, word);
    const char *nearest = NULL;
    const size_t length = strlen(folded);
    int best = (int)strlen(word) / 3 + 1; /* farther ones are no misspellings */
    bool begun = false; /* whether the nearest name begins with the word */
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) > WORD_MAX) continue;
        fold_word(name, names[i]);
        int distance = word_distance(folded, name);
        bool shares = distance < (int)strlen(name) && distance < (int)strlen(folded);
        bool begins = length >= BEGINNING && strncmp(name, folded, length) == 0;
        if (begins < begun) continue;
        if (begins == begun && (!shares || distance > best)) continue;
        if (begins == begun && nearest && distance == best) continue;
        nearest = names[i];
        best = distance;
        begun = begins;
    }
    return nearest;
}

void name_hint(Diag *diag, const char *word, const char *const *names, int count,
               const char *otherwise) {
    const char *nearest = name_nearest(word, names, count);
    if (nearest)
        diag_hint(diag, "did you mean \"%s\"?", nearest);
    else if (otherwise)
        diag_hint(diag, "%s", otherwise);
}

/* Reports that `value` is not `expected`. */
static Status fail_expected(const MemberBinding *binding, const Tree *value,
                            const char *expected) {
    Text found = {0};
    tree_describe(&found, value);
    Status status = diag_fail(binding->diag, binding->status, value->loc,
                              tree_path(binding->arena, value), "expected %s, found %s",
                              expected, found.data);
    text_free(&found);
    return status;
}

/* Reports that `value` is not what the field (or `as`, for an item of a list) asks. */
static Status fail_value(const MemberBinding *binding, const Tree *value, FieldKind as) {
    Field field = *binding->field;
    Text expected = {0};
    const bool item = as != field.kind;
    const bool real = as == FIELD_REAL && value->kind == TREE_FLOAT;
    if (item) field.expect = NULL;
    field.kind = as;
    if (real && !isfinite(value->real)) text_add(&expected, "finite ");
    const bool string = as == FIELD_STRING || (as == FIELD_TREE && field.choices);
    const bool list = as == FIELD_INTS || as == FIELD_REALS || as == FIELD_STRINGS;
    const bool empty = string ? value->kind == TREE_STRING && !*value->string
                              : list && value->kind == TREE_LIST && value->count == 0;
    if (empty && !field.expect) text_add(&expected, "non-empty ");
    field_expect(&expected, &field);
    Status status = fail_expected(binding, value, expected.data);
    text_free(&expected);
    return status;
}

/* Index of a name among `names`, which are joined by '|'; -1 when there is none. */
static int name_index(const char *names, const char *name) {
    size_t length = strlen(name);
    for (int index = 0; names; index++) {
        size_t width = strcspn(names, "|");
        if (width == length && memcmp(names, name, length) == 0) return index;
        names = names[width] ? names + width + 1 : NULL;
    }
    return -1;
}

static bool in_range(const Field *field, double value) {
    if (field->min == 0 && field->max == 0) return true;
    return value >= field->min && value <= field->max;
}

static Status take_int(const MemberBinding *binding, const Tree *value, int64_t *out) {
    if (value->kind != TREE_INT || !in_range(binding->field, (double)value->integer)) {
        return fail_value(binding, value, FIELD_INT);
    }
    *out = value->integer;
    return STATUS_OK;
}

/* What one of a unit is: K, KB = 1000, KiB = 1024, the next letter that of it. */
static double unit_size(const char *unit) {
    const double step = unit[1] == 'i' ? 1024 : 1000;
    double size = step;
    for (const char *letter = "KMGT"; *letter != *unit; letter++) size *= step;
    return size;
}

/* A decimal number, a space or none, and one of the units; NAN when it is none. */
static double parse_with_unit(const char *text, const char *units) {
    const size_t digits = strspn(text, "0123456789");
    size_t length = digits;
    if (text[length] == '.') length += 1 + strspn(text + length + 1, "0123456789");
    const char *unit = text + length + (text[length] == ' ');
    if (digits == 0 || digits > 15 || name_index(units, unit) < 0) return NAN;
    double value = 0, place = 1;
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '.') continue;
        value = 10 * value + (text[i] - '0');
        if (i > digits) place *= 10;
    }
    return value * unit_size(unit) / place;
}

static Status take_real(const MemberBinding *binding, const Tree *value, double *out) {
    const char *units = binding->field->units;
    bool integer = value->kind == TREE_INT;
    double real = integer ? (double)value->integer : NAN;
    if (value->kind == TREE_FLOAT) real = value->real;
    if (value->kind == TREE_STRING && units) real = parse_with_unit(value->string, units);
    if (!isfinite(real) || !in_range(binding->field, real)) {
        return fail_value(binding, value, FIELD_REAL);
    }
    *out = real;
    return STATUS_OK;
}

static Status take_string(const MemberBinding *binding, const Tree *value,
                          const char **out) {
    if (binding->field->number && value->kind == TREE_INT && value->integer >= 0) {
        *out = arena_printf(binding->arena, "%" PRId64, value->integer);
        return STATUS_OK;
    }
    if (value->kind != TREE_STRING || !(*value->string || binding->field->empty))
        return fail_value(binding, value, FIELD_STRING);
    *out = arena_strdup(binding->arena, value->string);
    return STATUS_OK;
}

/* Names of the choices, as an array in the arena. */
static const char **choice_names(const Field *field, Arena *arena, int *count) {
    *count = 1;
    for (const char *p = field->choices; *p; p++) *count += *p == '|';
    const char **names = ARENA_ARRAY(arena, const char *, (size_t)*count);
    for (int i = 0; i < *count; i++) {
        int length;
        const char *name = field_choice_name(field, i, &length);
        names[i] = arena_strndup(arena, name, (size_t)length);
    }
    return names;
}

/* The choices `true` and `false` are booleans in a document, and no strings. */
static const char *choice_word(const Tree *value) {
    if (value->kind == TREE_BOOL) return value->boolean ? "true" : "false";
    if (value->kind != TREE_STRING) return NULL;
    const char *word = value->string;
    return strcmp(word, "true") == 0 || strcmp(word, "false") == 0 ? NULL : word;
}

static Status take_choice(const MemberBinding *binding, const Tree *value, int *out) {
    const bool string = value->kind == TREE_STRING;
    const char *word = choice_word(value);
    const int index = word ? name_index(binding->field->choices, word) : -1;
    if (index >= 0) {
        *out = index;
        return STATUS_OK;
    }
    Status status = fail_value(binding, value, FIELD_CHOICE);
    if (!string) return status;
    if (!word && name_index(binding->field->choices, value->string) >= 0) {
        diag_hint(binding->diag, "%s without quotes", value->string);
        return status;
    }
    int count;
    const char **names = choice_names(binding->field, binding->arena, &count);
    name_hint(binding->diag, value->string, names, count, NULL);
    return status;
}

/* Reports that `value` is no list for the field; one item alone is shown as a list. */
static Status fail_list(const MemberBinding *binding, const Tree *value) {
    const FieldKind kind = binding->field->kind;
    const Status status = fail_value(binding, value, kind);
    const bool number =
        value->kind == TREE_INT || (value->kind == TREE_FLOAT && kind == FIELD_REALS);
    if (kind == FIELD_STRINGS ? value->kind != TREE_STRING || !*value->string : !number)
        return status;
    Text item = {0};
    tree_print_json(&item, value, 0);
    if (item.length <= ITEM_SHOWN_MAX)
        diag_hint(binding->diag, "a list of one is written [%s]", item.data);
    text_free(&item);
    return status;
}

/* A member that is a list. Every item that does not fit is reported before it fails. */
static Status set_list(const MemberBinding *binding, const Tree *value, void *member) {
    const Field *field = binding->field;
    const FieldKind kind = field->kind;
    const bool may_be_empty = field->empty || !field->required;
    if (value->kind != TREE_LIST || !(value->count || may_be_empty))
        return fail_list(binding, value);
    const size_t size = kind == FIELD_INTS    ? sizeof(int64_t)
                        : kind == FIELD_REALS ? sizeof(double)
                                              : sizeof(const char *);
    const int count = value->count;
    char *items = arena_array(binding->arena, (size_t)count, size);
    void *at = items;
    Status status = STATUS_OK;
    for (const Tree *item = value->first; item; item = item->next) {
        Status one = kind == FIELD_INTS    ? take_int(binding, item, at)
                     : kind == FIELD_REALS ? take_real(binding, item, at)
                                           : take_string(binding, item, at);
        if (status == STATUS_OK) status = one;
        at = (char *)at + size;
    }
    if (status != STATUS_OK) return status;
    if (kind == FIELD_INTS)
        *(IntList *)member = (IntList){(void *)items, count};
    else if (kind == FIELD_REALS)
        *(RealList *)member = (RealList){(void *)items, count};
    else
        *(StringList *)member = (StringList){(void *)items, count};
    return STATUS_OK;
}

static Status set_tree(const MemberBinding *binding, const Tree *value,
                       const Tree **member) {
    const Field *field = binding->field;
    const char *kinds = field->choices;
    const bool empty = kinds && value->kind == TREE_STRING && !*value->string;
    if (kinds ? name_index(kinds, tree_kind_name(value->kind)) < 0
              : value->kind == TREE_NULL)
        return fail_value(binding, value, FIELD_TREE);
    if (empty && !field->empty) return fail_value(binding, value, FIELD_TREE);
    *member = value;
    return STATUS_OK;
}

Status field_set(const Field *field, const Tree *value, void *target, Arena *arena,
                 Status status, Diag *diag) {
    MemberBinding binding = {field, arena, status, diag};
    void *member = (char *)target + field->offset;
    if (value->kind == TREE_NULL && field_is_absent(field, target)) return STATUS_OK;
    if (value->kind == TREE_NULL && field->nullable) {
        if (field->kind == FIELD_STRING) *(const char **)member = NULL;
        if (field->kind == FIELD_TREE) *(const Tree **)member = NULL;
        return STATUS_OK;
    }
    switch (field->kind) {
    case FIELD_BOOL:
        if (value->kind != TREE_BOOL) return fail_value(&binding, value, FIELD_BOOL);
        *(bool *)member = value->boolean;
        return STATUS_OK;
    case FIELD_INT: return take_int(&binding, value, member);
    case FIELD_REAL: return take_real(&binding, value, member);
    case FIELD_CHOICE: return take_choice(&binding, value, member);
    case FIELD_STRING: return take_string(&binding, value, member);
    case FIELD_TREE: return set_tree(&binding, value, member);
    default: return set_list(&binding, value, member);
    }
}

/* Reports a key that no field has, with the nearest name or all of them. */
static Status fail_unknown(const MemberBinding *binding, const Field *fields,
                           const Tree *value) {
    int count = 0;
    while (fields && fields[count].name) count++;
    const char **names = ARENA_ARRAY(binding->arena, const char *, (size_t)count);
    for (int i = 0; i < count; i++) names[i] = fields[i].name;
    const char *near = name_nearest(value->key, names, count);
    const char *path = tree_path(binding->arena, value);
    if (near) {
        return diag_fail(binding->diag, binding->status, value->key_loc, path,
                         "unknown key; did you mean \"%s\"?", near);
    }
    Status status =
        diag_fail(binding->diag, binding->status, value->key_loc, path, "unknown key");
    Text known = {0};
    for (int i = 0; i < count; i++) text_add(&known, "%s%s", i ? ", " : "", names[i]);
    if (count > 0) diag_hint(binding->diag, "known keys: %s", known.data);
    if (count == 0) diag_hint(binding->diag, "no keys are known here");
    text_free(&known);
    return status;
}

static Status fail_missing(const MemberBinding *binding, const Tree *map) {
    const char *name = binding->field->name,
               *path = map ? tree_path(binding->arena, map) : "";
    Text expected = {0};
    field_expect(&expected, binding->field);
    const char *key =
        arena_printf(binding->arena, "%s%s%s", path, *path ? "." : "", name);
    Status status = diag_fail(binding->diag, binding->status, map ? map->loc : LOC_NONE,
                              key, "expected %s, found no such key", expected.data);
    if (binding->field->help)
        diag_hint(binding->diag, "%s: %s", name, binding->field->help);
    text_free(&expected);
    return status;
}

Status fields_bind(const Field *fields, const Tree *map, void *target, Arena *arena,
                   Status status, Diag *diag) {
    MemberBinding binding = {NULL, arena, status, diag};
    bool empty = !map || map->kind == TREE_NULL;
    if (!empty && map->kind != TREE_MAP) return fail_expected(&binding, map, "map");
    Status result = STATUS_OK;
    for (const Tree *value = empty ? NULL : map->first; value; value = value->next) {
        const Field *field = fields ? field_find(fields, value->key) : NULL;
        Status one = field ? field_set(field, value, target, arena, status, diag)
                           : fail_unknown(&binding, fields, value);
        if (result == STATUS_OK) result = one;
    }
    for (const Field *field = fields; field && field->name; field++) {
        if (!field->required || tree_get(map, field->name)) continue;
        binding.field = field;
        Status one = fail_missing(&binding, map);
        if (result == STATUS_OK) result = one;
    }
    return result;
}

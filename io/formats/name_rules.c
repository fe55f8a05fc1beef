/* Name rules: see name_rules.h. Reading the rules; new names; new shapes. */
#include "io/formats/name_rules.h"

#include "io/files/file.h"
#include "io/files/yaml.h"
#include "io/tokenizers/regex.h"
#include "ir/field.h"

#include <ctype.h>
#include <string.h>

enum { PARTS_MAX = 64, FILE_BYTES_MAX = 1 << 20 };

static const char PART[] = "part"; /* $part in a name is that of the split */

/* One rule as it is written. */
typedef struct RuleKeys {
    const char *match, *to;
    bool drop, transpose;
    StringList split;
    int64_t axis;
    IntList reshape, permute;
} RuleKeys;

static const Field RULE_FIELDS[] = {
    {.name = "match",
     .kind = FIELD_STRING,
     .offset = FIELD_AT(RuleKeys, match, const char *),
     .required = true,
     .help = "regular expression of the whole name"},
    F_STRING(RuleKeys, to,
             "the new name; $1 to $9 are what groups matched, $0 all of it"),
    F_BOOL(RuleKeys, drop, "leave the tensors out"),
    F_INTS(RuleKeys, reshape, 1, 1e12, "shape to read the values in"),
    F_BOOL(RuleKeys, transpose, "swap the two dimensions of a matrix"),
    F_INTS(RuleKeys, permute, 0, RANK_MAX - 1, "order of the dimensions"),
    F_STRINGS(RuleKeys, split, "names of equal parts, each in place of $part"),
    F_INT(RuleKeys, axis, 0, RANK_MAX - 1, "dimension that is split"),
    F_END,
};

typedef struct FileKeys {
    const char *from;
    const Tree *rules;
} FileKeys;

static const Field FILE_FIELDS[] = {
    F_STRING(FileKeys, from, "key of the dict in a PyTorch file", .nullable = true),
    {.name = "rules",
     .kind = FIELD_TREE,
     .offset = FIELD_AT(FileKeys, rules, const Tree *),
     .choices = "list",
     .expect = "a list of rules",
     .required = true,
     .help = "the rules, in order"},
    F_END,
};

typedef struct NameRule {
    RuleKeys keys;
    Regex *regex;
    Loc at;
    const char *where; /* "rules[2]" */
} NameRule;

struct NameRules {
    Arena *arena;
    const char *from;
    NameRule *rules;
    int count;
};

#define FAIL(rule, diag, ...)                                                            \
    diag_fail(diag, STATUS_RECIPE, (rule)->at, (rule)->where, __VA_ARGS__)

/* --- reading --- */

/* Length of the reference that a '$' begins, 0 = none; `group` is its number, -1 = $part.
 */
static size_t read_reference(const char *text, int *group) {
    const size_t length = sizeof PART - 1;
    if (isdigit((unsigned char)text[1])) {
        *group = text[1] - '0';
        return 2;
    }
    *group = -1;
    return strncmp(text + 1, PART, length) == 0 ? length + 1 : 0;
}

/* Checks that the new name refers to what is there. */
static Status check_target(const NameRule *rule, Diag *diag) {
    const RuleKeys *keys = &rule->keys;
    bool part = false;
    for (const char *at = strchr(keys->to, '$'); at; at = strchr(at + 1, '$')) {
        int group;
        if (read_reference(at, &group) == 0)
            return FAIL(rule, diag, "to: expected $0 to $9 or $part, found '%.20s'", at);
        if (group > regex_group_count(rule->regex))
            return FAIL(rule, diag, "to: $%d, but the expression has %d groups", group,
                        regex_group_count(rule->regex));
        part |= group < 0;
    }
    if (part != (keys->split.count > 0))
        return FAIL(rule, diag,
                    part ? "to: $part without `split`"
                         : "to: expected $part, which tells the parts apart");
    return STATUS_OK;
}

static Status check_rule(const NameRule *rule, Diag *diag) {
    const RuleKeys *keys = &rule->keys;
    const IntList *permute = &keys->permute;
    unsigned seen = 0;
    const bool plain = !keys->to && keys->split.count == 0 && permute->count == 0 &&
                       keys->reshape.count == 0 && !keys->transpose;
    if (keys->drop)
        return plain ? STATUS_OK : FAIL(rule, diag, "`drop` stands with `match` alone");
    if (!keys->to) return FAIL(rule, diag, "expected `to` or `drop: true`");
    if (keys->transpose && permute->count > 0)
        return FAIL(rule, diag, "expected `transpose` or `permute`, found both");
    if (keys->reshape.count > RANK_MAX || keys->split.count > PARTS_MAX)
        return FAIL(rule, diag, "expected at most %d dimensions and %d parts", RANK_MAX,
                    PARTS_MAX);
    for (int i = 0; i < permute->count; i++) seen |= 1u << permute->items[i];
    if (permute->count > RANK_MAX || seen != (1u << permute->count) - 1)
        return FAIL(rule, diag, "permute: expected each of 0 to %d once",
                    permute->count - 1);
    return check_target(rule, diag);
}

static Status read_rule(NameRules *rules, const Tree *tree, Diag *diag) {
    NameRule *rule = &rules->rules[rules->count];
    rule->at = tree->loc;
    rule->where = arena_printf(rules->arena, "rules[%d]", rules->count);
    if (tree->kind != TREE_MAP)
        return FAIL(rule, diag, "expected a map, found %s", tree_kind_name(tree->kind));
    TRY(fields_bind(RULE_FIELDS, tree, &rule->keys, rules->arena, STATUS_RECIPE, diag));
    /* the whole name, whatever alternatives the expression has */
    TRY(regex_compile(&rule->regex, rules->arena,
                      arena_printf(rules->arena, "(?:%s)\\z", rule->keys.match), rule->at,
                      rule->where, diag));
    rules->count++;
    if (regex_group_count(rule->regex) >= REGEX_GROUPS_MAX)
        return FAIL(rule, diag, "match: expected at most %d groups; (?:...) is none",
                    REGEX_GROUPS_MAX - 1);
    return check_rule(rule, diag);
}

static Status read_rules(NameRules *rules, const Tree *document, Diag *diag) {
    FileKeys keys = {0};
    if (document->kind != TREE_MAP)
        return diag_fail(diag, STATUS_RECIPE, document->loc, NULL,
                         "expected a map with `rules`, found %s",
                         tree_kind_name(document->kind));
    TRY(fields_bind(FILE_FIELDS, document, &keys, rules->arena, STATUS_RECIPE, diag));
    rules->from = keys.from;
    rules->rules = ARENA_ARRAY(rules->arena, NameRule, (size_t)keys.rules->count);
    for (const Tree *tree = keys.rules->first; tree; tree = tree->next)
        TRY(read_rule(rules, tree, diag));
    return STATUS_OK;
}

Status name_rules_parse(NameRules **out, const char *file, const char *text,
                        size_t length, Diag *diag) {
    Arena *arena = arena_create();
    NameRules *rules = ARENA_NEW(arena, NameRules);
    Tree *document;
    rules->arena = arena;
    Status status = yaml_parse(&document, arena, file, text, length, diag);
    if (status == STATUS_OK) status = read_rules(rules, document, diag);
    if (status == STATUS_OK)
        *out = rules;
    else
        name_rules_destroy(rules);
    return status;
}

Status name_rules_read(NameRules **out, const char *path, Diag *diag) {
    Arena *arena = arena_create();
    char *text;
    size_t length;
    Status status = file_read(&text, &length, arena, path, FILE_BYTES_MAX, diag);
    if (status == STATUS_OK) status = name_rules_parse(out, path, text, length, diag);
    arena_destroy(arena);
    return status;
}

const char *name_rules_from(const NameRules *rules) {
    return rules->from;
}

void name_rules_destroy(NameRules *rules) {
    if (!rules) return;
    for (int i = 0; i < rules->count; i++) regex_destroy(rules->rules[i].regex);
    arena_destroy(rules->arena);
}

/* --- applying --- */

typedef struct Renamer {
    const NameRules *rules;
    const Checkpoint *from;
    Checkpoint *into;
    int capacity;
    int *matched; /* tensors of each rule */
    RegexScratch scratch;
    Diag *diag;
} Renamer;

/* The rule that matches a name first, NULL = none. */
static const NameRule *find_rule(Renamer *renamer, const char *name,
                                 TextSpan groups[REGEX_GROUPS_MAX]) {
    const TextSpan text = {name, strlen(name)};
    regex_start(&renamer->scratch, text.length);
    for (int i = 0; i < renamer->rules->count; i++) {
        const NameRule *rule = &renamer->rules->rules[i];
        if (!regex_match(rule->regex, &renamer->scratch, text, groups)) continue;
        renamer->matched[i]++;
        return rule;
    }
    return NULL;
}

/* `to` with what groups matched in place of $1 and the part's name in place of $part. */
static const char *fill_target(Arena *arena, const char *to,
                               const TextSpan groups[REGEX_GROUPS_MAX],
                               const char *part) {
    Text text = {0};
    for (size_t bytes; *to; to += bytes) {
        int group = 0;
        bytes = *to == '$' ? read_reference(to, &group) : strcspn(to, "$");
        if (*to != '$')
            text_bytes(&text, to, bytes);
        else if (group < 0)
            text_add(&text, "%s", part);
        else if (groups[group].length > 0)
            text_bytes(&text, groups[group].text, groups[group].length);
    }
    const char *name = arena_strndup(arena, text.data ? text.data : "", text.length);
    text_free(&text);
    return name;
}

static Status add_tensor(Renamer *renamer, const NameRule *rule, const char *name,
                         const char *source, const Tensor *tensor) {
    Checkpoint *into = renamer->into;
    if (!*name) return FAIL(rule, renamer->diag, "'%s' gets an empty name", source);
    if (into->count == renamer->capacity) {
        NamedTensor *grown =
            ARENA_ARRAY(into->arena, NamedTensor, 2 * (size_t)renamer->capacity);
        memcpy(grown, into->tensors, sizeof *grown * (size_t)into->count);
        into->tensors = grown;
        renamer->capacity *= 2;
    }
    into->tensors[into->count++] = (NamedTensor){name, tensor_retain(tensor)};
    return STATUS_OK;
}

/* The tensor in the shape that the rule gives it: a view, or turned, a copy. */
static Status reshape(const Renamer *renamer, const NameRule *rule,
                      const NamedTensor *source, Tensor *out) {
    static int64_t SWAP[] = {1, 0};
    const IntList *shape = &rule->keys.reshape;
    const IntList order = rule->keys.transpose ? (IntList){SWAP, 2} : rule->keys.permute;
    int64_t count = 0, stride[RANK_MAX], dim[RANK_MAX], step = 1, strides[RANK_MAX];
    char text[SHAPE_TEXT_BYTES];
    Tensor whole = source->tensor; /* borrowed */
    if (shape->count > 0 &&
        (!shape_size(whole.dtype, shape->count, shape->items, &count, NULL) ||
         count != tensor_count(&whole)))
        return FAIL(rule, renamer->diag, "'%s' of shape %s does not fit `reshape`",
                    source->name, shape_text(text, whole.rank, whole.dim));
    if (shape->count > 0) {
        whole.rank = shape->count;
        memcpy(whole.dim, shape->items, sizeof *whole.dim * (size_t)whole.rank);
    }
    if (order.count == 0) {
        *out = tensor_retain(&whole);
        return STATUS_OK;
    }
    if (order.count != whole.rank)
        return FAIL(rule, renamer->diag, "'%s' of shape %s: expected %d dimensions",
                    source->name, shape_text(text, whole.rank, whole.dim), order.count);
    for (int i = whole.rank - 1; i >= 0; i--) strides[i] = step, step *= whole.dim[i];
    for (int i = 0; i < whole.rank; i++) {
        dim[i] = whole.dim[order.items[i]];
        stride[i] = strides[order.items[i]];
    }
    void *data;
    TRY(tensor_create(out, whole.dtype, whole.rank, dim, renamer->diag));
    TRY(tensor_writable(out, &data, renamer->diag));
    checkpoint_gather(data, tensor_data(&whole), dtype_bytes(whole.dtype), whole.rank,
                      dim, stride);
    return STATUS_OK;
}

/* Part `index` of `count` equal ones of a dimension: a view along the first, a copy along
 * others. */
static Status take_part(Tensor *out, const Tensor *whole, int axis, int index, int count,
                        Diag *diag) {
    const int64_t length = whole->dim[axis] / count;
    int64_t dim[RANK_MAX], stride[RANK_MAX], step = 1;
    memcpy(dim, whole->dim, sizeof dim);
    dim[axis] = length;
    for (int i = whole->rank - 1; i >= 0; i--) stride[i] = step, step *= whole->dim[i];
    const size_t size = dtype_bytes(whole->dtype);
    const size_t offset = (size_t)(index * length * stride[axis]) * size;
    if (axis == 0) {
        *out = tensor_retain(whole);
        out->dim[0] = length;
        out->offset += offset;
        return STATUS_OK;
    }
    void *data;
    TRY(tensor_create(out, whole->dtype, whole->rank, dim, diag));
    TRY(tensor_writable(out, &data, diag));
    checkpoint_gather(data, (const char *)tensor_data(whole) + offset, size, whole->rank,
                      dim, stride);
    return STATUS_OK;
}

static Status rename_tensor(Renamer *renamer, const NamedTensor *source) {
    TextSpan groups[REGEX_GROUPS_MAX];
    const NameRule *rule = find_rule(renamer, source->name, groups);
    if (!rule || rule->keys.drop) return STATUS_OK;
    const StringList *split = &rule->keys.split;
    const int axis = (int)rule->keys.axis, parts = split->count ? split->count : 1;
    char text[SHAPE_TEXT_BYTES];
    Tensor whole;
    TRY(reshape(renamer, rule, source, &whole));
    Status status = STATUS_OK;
    if (parts > 1 && (axis >= whole.rank || whole.dim[axis] % parts != 0))
        status = FAIL(rule, renamer->diag,
                      "'%s' of shape %s cannot be split into %d along dimension %d",
                      source->name, shape_text(text, whole.rank, whole.dim), parts, axis);
    for (int i = 0; i < parts && status == STATUS_OK; i++) {
        Tensor part = {0};
        const char *name = fill_target(renamer->into->arena, rule->keys.to, groups,
                                       split->count ? split->items[i] : "");
        if (parts > 1)
            status = take_part(&part, &whole, axis, i, parts, renamer->diag);
        else
            part = tensor_retain(&whole);
        if (status == STATUS_OK)
            status = add_tensor(renamer, rule, name, source->name, &part);
        tensor_release(&part);
    }
    tensor_release(&whole);
    return status;
}

/* Every tensor has a rule, every rule a tensor. */
static Status check_matches(const Renamer *renamer, const char *unmatched, int others) {
    const NameRules *rules = renamer->rules;
    for (int i = 0; i < rules->count; i++)
        if (renamer->matched[i] == 0)
            return FAIL(
                &rules->rules[i], renamer->diag,
                "'%s' matches none of the %d tensors in %s, or others match first",
                rules->rules[i].keys.match, renamer->from->count, renamer->from->path);
    if (!unmatched) return STATUS_OK;
    diag_fail(renamer->diag, STATUS_RECIPE, LOC_FILE(renamer->from->path), unmatched,
              "no rule of the name map matches this tensor%s",
              others > 1 ? ", nor others" : "");
    diag_hint(renamer->diag, "a rule with `drop: true` leaves tensors out");
    return STATUS_RECIPE;
}

static Status rename_all(Renamer *renamer) {
    const Checkpoint *from = renamer->from;
    const char *unmatched = NULL;
    int count = 0;
    for (int i = 0; i < from->count; i++) {
        TextSpan groups[REGEX_GROUPS_MAX];
        if (!find_rule(renamer, from->tensors[i].name, groups) && count++ == 0)
            unmatched = from->tensors[i].name;
    }
    TRY(check_matches(renamer, unmatched, count));
    for (int i = 0; i < from->count; i++) TRY(rename_tensor(renamer, &from->tensors[i]));
    Checkpoint *into = renamer->into;
    checkpoint_sort(into);
    for (int i = 1; i < into->count; i++)
        if (strcmp(into->tensors[i].name, into->tensors[i - 1].name) == 0)
            return diag_fail(renamer->diag, STATUS_RECIPE, LOC_FILE(from->path),
                             into->tensors[i].name,
                             "the name map gives two tensors this name");
    return STATUS_OK;
}

Status name_rules_apply(Checkpoint **out, const NameRules *rules, const Checkpoint *from,
                        Diag *diag) {
    Checkpoint *into = checkpoint_create(from->path, from->count + 1);
    into->file_bytes = from->file_bytes;
    Renamer renamer = {.rules = rules,
                       .from = from,
                       .into = into,
                       .capacity = from->count + 1,
                       .matched = ARENA_ARRAY(into->arena, int, (size_t)rules->count + 1),
                       .diag = diag};
    const Status status = rename_all(&renamer);
    regex_scratch_free(&renamer.scratch);
    if (status == STATUS_OK)
        *out = into;
    else
        checkpoint_destroy(into);
    return status;
}

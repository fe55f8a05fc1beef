/* Changes of a graph as text: see graph_changes.h. */
#include "tests/support/graph_changes.h"

#include "ir/text.h"

#include <stdlib.h>
#include <string.h>

/* What a place holds: a node, a storage, ... */
typedef struct Fact {
    const char *key, *text;
    const Node *node; /* of facts about nodes */
    struct Fact *next;
} Fact;

/* Nodes and storages of one place. */
typedef struct PlaceFacts {
    const char *name; /* "encoder.2" */
    const char *stack;
    int layer;
    Fact *facts;
    int own;      /* layers: the number in the name of the first storage it uses */
    bool printed; /* under the heading of another layer */
    struct PlaceFacts *next;
} PlaceFacts;

typedef struct Outline {
    Arena *arena;
    Graph *graph;
    PlaceFacts *places;
} Outline;

static PlaceFacts *place_of(Outline *outline, const char *stack, int layer) {
    PlaceFacts **at = &outline->places;
    for (; *at; at = &(*at)->next)
        if (strcmp((*at)->stack, stack) == 0 && (*at)->layer == layer) return *at;
    *at = ARENA_NEW(outline->arena, PlaceFacts);
    **at = (PlaceFacts){
        .own = -1,
        .stack = stack,
        .layer = layer,
        .name = layer < 0 ? stack : arena_printf(outline->arena, "%s.%d", stack, layer)};
    return *at;
}

static PlaceFacts *node_place_facts(Outline *outline, const Node *node) {
    return place_of(outline, node->stack ? node->stack : "nowhere",
                    node->stack ? node->layer : -1);
}

static Fact *fact_find(const PlaceFacts *place, const char *key) {
    for (Fact *fact = place->facts; fact; fact = fact->next)
        if (strcmp(fact->key, key) == 0) return fact;
    return NULL;
}

/* Adds a fact; one of the same key gets a number behind it. */
static Fact *fact_add(Outline *outline, PlaceFacts *place, const char *key,
                      const char *text) {
    Fact **at = &place->facts, *fact = ARENA_NEW(outline->arena, Fact);
    *fact = (Fact){.key = key, .text = text};
    for (int i = 2; fact_find(place, fact->key); i++)
        fact->key = arena_printf(outline->arena, "%s#%d", key, i);
    while (*at) at = &(*at)->next;
    return *at = fact;
}

/* ---- names ---- */

static const char *node_key(Outline *outline, const Node *node) {
    const PlaceFacts *place = node_place_facts(outline, node);
    for (const Fact *fact = place->facts; fact; fact = fact->next)
        if (fact->node == node) return fact->key;
    return "?";
}

/* Whether the component of a name that begins here is a number. */
static bool is_number(const char *component) {
    const size_t digits = strspn(component, "0123456789");
    return digits > 0 && (component[digits] == '.' || !component[digits]);
}

/* The last number among the components of a name, and how many there are; NULL = none. */
static const char *last_number(const char *name, int *count) {
    const char *number = NULL;
    *count = 0;
    for (const char *at = name; at; at = strchr(at, '.'), at += at != NULL)
        if (is_number(at) && ++*count) number = at;
    return number;
}

/* Name of a storage from a layer's point of view: the layer's number in it is counted
 * from the one in the names of this layer's own weights, and where it is the only number,
 * what stands in front of it is left out. */
static const char *storage_key(Outline *outline, const PlaceFacts *place,
                               const Storage *storage) {
    int numbers;
    const char *name = storage->name, *number = last_number(name, &numbers);
    if (!number || !place || place->layer < 0)
        return arena_printf(outline->arena, "@%s", name);
    const char *rest = number + strspn(number, "0123456789.");
    const int offset = atoi(number) - place->own;
    const char *layer = offset ? arena_printf(outline->arena, "layer%+d.", offset) : "";
    if (numbers == 1) return arena_printf(outline->arena, "@%s%s", layer, rest);
    return arena_printf(outline->arena, "@%.*slayer%+d.%s", (int)(number - name), name,
                        offset, rest);
}

/* An operand as its user names it. */
static const char *reference(Outline *outline, const PlaceFacts *user, const Node *node) {
    if (node->storage) return storage_key(outline, user, node->storage);
    if (node->name) return arena_printf(outline->arena, "$%s", node->name);
    const PlaceFacts *place = node_place_facts(outline, node);
    const char *key = node_key(outline, node);
    if (place == user) return key;
    if (user && place->layer >= 0 && user->layer >= 0 &&
        strcmp(place->stack, user->stack) == 0)
        return arena_printf(outline->arena, "layer%+d.%s", place->layer - user->layer,
                            key);
    return arena_printf(outline->arena, "%s.%s", place->name, key);
}

/* ---- facts ---- */

static const char *taken(Outline *outline, Text *text) {
    const char *copy = arena_strdup(outline->arena, text->data ? text->data : "");
    text_free(text);
    return copy;
}

static const char *node_text(Outline *outline, const PlaceFacts *place,
                             const Node *node) {
    const Op *op = node->op;
    Text text = {0}, attrs = {0};
    text_add(&text, "%s(", op->name);
    const char *separator = "";
    for (int i = 0; i < node->in_count; i++) {
        if (!node->in[i]) continue;
        text_add(&text, "%s", separator);
        if (i < op_operand_count(op) && operand_is_named(&op->operands[i]))
            text_add(&text, "%s=", op->operands[i].name);
        text_add(&text, "%s", reference(outline, place, node->in[i]));
        separator = ", ";
    }
    text_add(&text, ")");
    if (op->fields)
        fields_print(&attrs, op->fields, node->attrs,
                     op->defaults ? op->defaults
                                  : arena_alloc(outline->arena, op->attrs_size));
    if (attrs.length > 0) text_add(&text, " {%s}", attrs.data);
    text_free(&attrs);
    text_add(&text, " : ");
    type_print(&text, &node->type);
    return taken(outline, &text);
}

static const char *storage_text(Outline *outline, const Storage *storage) {
    static const char *const INITS[] = {[INIT_ZEROS] = "zeros",
                                        [INIT_ONES] = "ones",
                                        [INIT_NORMAL] = "normal",
                                        [INIT_TRUNC_NORMAL] = "trunc_normal",
                                        [INIT_IDENTITY] = "identity"};
    char shape[SHAPE_TEXT_BYTES];
    Text text = {0};
    const Init *init = &storage->init;
    text_add(&text, "%s%s", dtype_name(storage->tensor.dtype),
             shape_text(shape, storage->tensor.rank, storage->tensor.dim));
    if (init->kind != INIT_ZEROS) text_add(&text, " init %s", INITS[init->kind]);
    if (init->kind == INIT_NORMAL || init->kind == INIT_TRUNC_NORMAL)
        text_add(&text, "(%g)", init->std);
    if (storage->frozen) text_add(&text, " frozen");
    if (storage->gaussian)
        text_add(&text, " gaussian %s", gaussian_form_name(storage->gaussian->form));
    if (storage->gaussian && gaussian_samples(storage->gaussian) > 0)
        text_add(&text, " of %d", (int)gaussian_samples(storage->gaussian));
    return taken(outline, &text);
}

/* A storage's lineage, "kept 0=[0-7]", NULL when no axis of it was cut. */
static const char *storage_kept(Outline *outline, const Storage *storage) {
    Text text = {0};
    for (int axis = 0; axis < storage->tensor.rank; axis++) {
        if (!lineage_is_told(&storage->kept[axis])) continue;
        text_add(&text, "%s %d=", text.length ? "" : "kept", axis);
        lineage_print(&text, &storage->kept[axis]);
    }
    return text.length ? taken(outline, &text) : NULL;
}

static void add_storage(Outline *outline, PlaceFacts *place, const Storage *storage) {
    const char *key = storage_key(outline, place, storage);
    const char *kept = storage_kept(outline, storage);
    fact_add(outline, place, key, storage_text(outline, storage));
    if (!kept) return;
    Fact *same = fact_find(place, kept);
    if (same)
        same->text = arena_printf(outline->arena, "%s, %s", same->text, key);
    else
        fact_add(outline, place, kept, key);
}

static bool is_first_use(const Graph *graph, const Node *user, const Node *leaf) {
    for (const Node *node = graph->first; node; node = node->next)
        for (int i = 0; i < node->in_count; i++)
            if (node->in[i] == leaf) return node == user;
    return false;
}

/* Whether operand `i` of a node is one of the operands before it. */
static bool is_repeated(const Node *node, int i) {
    for (int k = 0; k < i; k++)
        if (node->in[k] == node->in[i]) return true;
    return false;
}

static Outline outline_create(Arena *arena, Graph *graph) {
    Outline outline = {.arena = arena, .graph = graph};
    for (const Node *node = graph->first; node; node = node->next) {
        if (node->storage) continue;
        if (node_is_leaf(node)) {
            Text type = {0};
            type_print(&type, &node->type);
            fact_add(&outline, place_of(&outline, "inputs", -1), node->name,
                     taken(&outline, &type));
            continue;
        }
        PlaceFacts *place = node_place_facts(&outline, node);
        const char *key =
            node->role != ROLE_NONE ? role_name(node->role) : node->op->name;
        fact_add(&outline, place, key, NULL)->node = node;
        for (int i = 0, numbers; i < node->in_count && place->own < 0; i++)
            if (node->in[i] && node->in[i]->storage &&
                last_number(node->in[i]->storage->name, &numbers))
                place->own = atoi(last_number(node->in[i]->storage->name, &numbers));
    }
    for (PlaceFacts *place = outline.places; place; place = place->next) {
        if (place->layer >= 0 && place->own >= 0)
            fact_add(&outline, place, "own weights",
                     arena_printf(arena, "layer%+d", place->own - place->layer));
        for (Fact *fact = place->facts; fact; fact = fact->next) {
            const Node *node = fact->node;
            if (!node) continue;
            fact->text = node_text(&outline, place, node);
            for (int i = 0; i < node->in_count; i++)
                if (node->in[i] && node->in[i]->storage && !is_repeated(node, i) &&
                    is_first_use(graph, node, node->in[i]))
                    add_storage(&outline, place, node->in[i]->storage);
        }
    }
    for (int i = 0; i < graph->output_count; i++)
        fact_add(&outline, place_of(&outline, "outputs", -1), graph->outputs[i].name,
                 reference(&outline, NULL, graph->outputs[i].node));
    return outline;
}

/* ---- differences ---- */

static const PlaceFacts *place_find(const Outline *outline, const char *name) {
    for (const PlaceFacts *place = outline->places; place; place = place->next)
        if (strcmp(place->name, name) == 0) return place;
    return NULL;
}

/* How a place differs: one line for each fact that is new or another,
 * one for those that are gone; `before` may be NULL. */
static const char *place_difference(Outline *outline, const PlaceFacts *before,
                                    const PlaceFacts *after) {
    Text text = {0};
    for (const Fact *fact = after->facts; fact; fact = fact->next) {
        const Fact *was = before ? fact_find(before, fact->key) : NULL;
        if (!was || strcmp(was->text, fact->text) != 0)
            text_add(&text, "  %s = %s\n", fact->key, fact->text);
    }
    const char *separator = "  - ";
    for (const Fact *was = before ? before->facts : NULL; was; was = was->next) {
        if (fact_find(after, was->key)) continue;
        text_add(&text, "%s%s", separator, was->key);
        separator = ", ";
    }
    if (*separator == ',') text_add(&text, "\n");
    return taken(outline, &text);
}

/* How a place of `of` differs from the other outline's, heading's end included; "" = not.
 */
static const char *place_report(Outline *of, const Outline *other,
                                const PlaceFacts *place, bool gone) {
    const PlaceFacts *was = place_find(other, place->name);
    if (gone) return was ? "" : " gone\n";
    const char *difference = place_difference(of, was, place);
    if (!*difference) return "";
    return arena_printf(of->arena, "%s\n%s", was ? "" : " new", difference);
}

/* Prints every place that differs, with the layers of its stack that differ alike. */
static void print_places(Text *text, Outline *of, const Outline *other, bool gone) {
    for (PlaceFacts *place = of->places; place; place = place->next) {
        const char *report = place_report(of, other, place, gone);
        if (!*report || place->printed) continue;
        text_add(text, "%s", place->name);
        int last = place->layer, first = last; /* of the run of layers being printed */
        for (PlaceFacts *next = place->next; next; next = next->next) {
            if (strcmp(next->stack, place->stack) || next->layer < 0 ||
                strcmp(place_report(of, other, next, gone), report))
                continue;
            next->printed = true;
            if (next->layer != last + 1) {
                if (last > first) text_add(text, "-%d", last);
                text_add(text, ",%d", next->layer);
                first = next->layer;
            }
            last = next->layer;
        }
        if (last > first) text_add(text, "-%d", last);
        text_add(text, "%s", report);
    }
}

void graph_changes(Text *text, Graph *before, Graph *after) {
    Arena *arena = arena_create();
    Outline old = outline_create(arena, before), new = outline_create(arena, after);
    print_places(text, &new, &old, false);
    print_places(text, &old, &new, true);
    arena_destroy(arena);
}

/* YAML out: block form, with what is short in flow form. Strings stand plain only where
 * no reader could take them for anything else. */
#include "io/files/yaml.h"

#include <string.h>

enum { FLOW_BYTES = 72 }; /* a map or list as long as this is not put in one line */

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* Words that some version of YAML reads as another kind. */
static bool is_word_of_yaml(const char *text) {
    static const char *const WORDS[] = {"null", "true", "false", "yes", "no",
                                        "on",   "off",  "y",     "n",   NULL};
    for (int i = 0; WORDS[i]; i++) {
        size_t k = 0;
        while (text[k] && (text[k] | 0x20) == WORDS[i][k]) k++;
        if (!text[k] && !WORDS[i][k]) return true;
    }
    return false;
}

static bool stands_plain(const char *text) {
    if (!is_letter(*text) && *text != '_' && *text != '/') return false;
    for (const char *c = text; *c; c++)
        if (!is_letter(*c) && !(*c >= '0' && *c <= '9') && !strchr("_-./", *c))
            return false;
    return !is_word_of_yaml(text);
}

static void print_string(Text *out, const char *text) {
    if (stands_plain(text))
        text_add(out, "%s", text);
    else
        text_quoted(out, text);
}

static void print_scalar(Text *out, const Tree *value) {
    switch (value->kind) {
    case TREE_STRING: print_string(out, value->string); return;
    case TREE_BOOL: text_add(out, "%s", value->boolean ? "true" : "false"); return;
    case TREE_INT: text_add(out, "%lld", (long long)value->integer); return;
    case TREE_FLOAT: text_real(out, value->real); return;
    default: text_add(out, "null"); return;
    }
}

static bool is_branch(const Tree *value) {
    return value->kind == TREE_LIST || value->kind == TREE_MAP;
}

/* Appends a value in one line: {a: 1, b: [c, d]}. */
static void print_flow(Text *out, const Tree *value) {
    if (!is_branch(value)) {
        print_scalar(out, value);
        return;
    }
    text_add(out, "%c", value->kind == TREE_MAP ? '{' : '[');
    for (const Tree *child = value->first; child; child = child->next) {
        if (child != value->first) text_add(out, ", ");
        if (child->key) {
            print_string(out, child->key);
            text_add(out, ": ");
        }
        print_flow(out, child);
    }
    text_add(out, "%c", value->kind == TREE_MAP ? '}' : ']');
}

/* Whether a value is to stand in one line; its flow form is left in `line`. */
static bool fits_line(Text *line, const Tree *value) {
    line->length = 0;
    print_flow(line, value);
    return !is_branch(value) || value->count == 0 || line->length < FLOW_BYTES;
}

/* Appends the children of a map or list in lines of their own. What stands first goes on
 * in the line of the dash before it. */
static void print_block(Text *out, const Tree *branch, int indent, bool after_dash) {
    Text line = {0};
    for (const Tree *child = branch->first; child; child = child->next) {
        const bool goes_on = after_dash && child == branch->first;
        text_add(out, "%*s", goes_on ? 0 : indent, "");
        if (child->key)
            print_string(out, child->key);
        else
            text_add(out, "- ");
        /* Top keys such as `passes`, and maps behind a dash, are easier to read so. */
        const bool spread = is_branch(child) && child->count > 0 &&
                            (indent == 0 || (!child->key && child->kind == TREE_MAP));
        if (!spread && fits_line(&line, child)) {
            text_add(out, "%s%s\n", child->key ? ": " : "", line.data);
        } else if (child->key) {
            text_add(out, ":\n");
            print_block(out, child, indent + 2, false);
        } else {
            print_block(out, child, indent + 2, true);
        }
    }
    text_free(&line);
}

void yaml_print_line(Text *out, const Tree *value) {
    const bool bare = value->kind == TREE_MAP && value->count == 1;
    if (bare) {
        print_string(out, value->first->key);
        text_add(out, ": ");
    }
    print_flow(out, bare ? value->first : value);
}

void yaml_print(Text *out, const Tree *value) {
    if (is_branch(value) && value->count > 0) {
        print_block(out, value, 0, false);
        return;
    }
    print_flow(out, value);
    text_add(out, "\n");
}

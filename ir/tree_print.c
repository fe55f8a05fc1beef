/* Tree, continued: printing values, for messages and as JSON. */
#include "ir/tree.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Bytes of a string that a message shows. */
#define SHOWN_BYTES 60

static void describe_string(Text *text, const char *string) {
    char shown[SHOWN_BYTES + 4];
    size_t length = strlen(string);
    if (length > SHOWN_BYTES) {
        length = SHOWN_BYTES;
        while (length > 0 && ((unsigned char)string[length] & 0xc0) == 0x80) length--;
        memcpy(shown, string, length);
        strcpy(shown + length, "...");
    } else {
        memcpy(shown, string, length + 1);
    }
    text_quoted(text, shown);
}

void tree_describe(Text *text, const Tree *value) {
    text_add(text, "%s", tree_kind_name(value->kind));
    switch (value->kind) {
    case TREE_BOOL: text_add(text, " %s", value->boolean ? "true" : "false"); break;
    case TREE_INT: text_add(text, " %" PRId64, value->integer); break;
    case TREE_FLOAT:
        text_add(text, " ");
        text_real(text, value->real);
        break;
    case TREE_STRING:
        text_add(text, " ");
        describe_string(text, value->string);
        break;
    case TREE_NULL:
    case TREE_LIST:
    case TREE_MAP: break;
    }
}

static void print_scalar(Text *text, const Tree *tree) {
    switch (tree->kind) {
    case TREE_BOOL: text_add(text, "%s", tree->boolean ? "true" : "false"); break;
    case TREE_INT: text_add(text, "%" PRId64, tree->integer); break;
    case TREE_STRING: text_quoted(text, tree->string); break;
    case TREE_FLOAT:
        if (isfinite(tree->real)) {
            text_real(text, tree->real);
            break;
        } /* fall through */
    default: text_add(text, "null");
    }
}

static bool holds_children(const Tree *tree) {
    return tree->kind == TREE_LIST || tree->kind == TREE_MAP;
}

/* Whether a container prints on one line: empty ones and lists of scalars do. */
static bool prints_flat(const Tree *tree) {
    if (!tree->first) return true;
    if (tree->kind == TREE_MAP) return false;
    for (const Tree *child = tree->first; child; child = child->next) {
        if (holds_children(child)) return false;
    }
    return true;
}

static void print_break(Text *text, int spaces) {
    text_add(text, "\n%*s", spaces, "");
}

static void print_value(Text *text, const Tree *tree, int indent, int level) {
    if (!holds_children(tree)) {
        print_scalar(text, tree);
        return;
    }
    bool map = tree->kind == TREE_MAP, flat = indent <= 0 || prints_flat(tree);
    text_bytes(text, map ? "{" : "[", 1);
    for (const Tree *child = tree->first; child; child = child->next) {
        if (child != tree->first) text_add(text, indent > 0 && flat ? ", " : ",");
        if (!flat) print_break(text, indent * (level + 1));
        if (map) {
            text_quoted(text, child->key);
            text_add(text, indent > 0 ? ": " : ":");
        }
        print_value(text, child, indent, level + 1);
    }
    if (!flat) print_break(text, indent * level);
    text_bytes(text, map ? "}" : "]", 1);
}

void tree_print_json(Text *text, const Tree *tree, int indent) {
    print_value(text, tree, indent, 0);
}

/* clang-format off */
/* IR text: a graph as text that prints and parses back.
 *
 *     ir 1
 *     input pixel_values : f32[N, 1, 28, 28]
 *     param @vit.layernorm.weight : f32[64]
 *     param @vit.layernorm.bias : f32[64]
 *     %3 = layer_norm(%2, @vit.layernorm.weight, @vit.layernorm.bias) {eps=1e-06} : f32[N, 17, 64] at encoder as final_norm
 *     %9 = attention(%6, %7, %8, mix_before=@encoder.0.mix) {heads=4} : f32[N, 17, 64] at encoder.0 as attention
 *     output logits = %12
 *
 * This is version 1, in which nodes are numbered: what files hold and hashes are
 * computed from, so that equal models give equal bytes whatever program wrote them. In
 * version 2, `ir 2`, nodes have names (ir/node_names.h), so that inserting, removing or
 * changing a node leaves the names of the others unchanged, and texts can be compared
 * line by line:
 *
 *     %encoder.0.q = linear(%encoder.0.norm1, @w, bias=@b) : f32[N, 17, 64] at encoder.0 as q
 *
 * It is for people: `compress ir`, and dumps. Both can be read; names are arbitrary.
 *
 * A second line `task fill_in` says what the model is for (ir/model_parts.h); it is left
 * out if the graph implies the same. `$name` stands for an input as an operand, `@name`
 * for a parameter, `%n` or `%name` for a node. Names with characters other than letters,
 * digits, '_', '.', '-', '/' are quoted. `at stack.layer` (or `at stack`) and `as role`
 * are left out when none. Attributes equal to their defaults are left out, and so are
 * empty braces. '#' starts a comment. Param lines may end in `init
 * zeros|ones|identity|normal(std)|trunc_normal(std)`, `kept` and `frozen`, in this
 * order. `kept 0=[0-63, 70] 1=[...]` gives, for each pruned axis, the indices of the
 * original model that remain, as increasing ranges. Printing a parsed text gives the
 * same text (comments and spacing aside). */
/* clang-format on */
#ifndef COMPRESS_IR_IRTEXT_H
#define COMPRESS_IR_IRTEXT_H

#include "ir/graph.h"

/* Appends the graph's text. Numbers the nodes. */
void graph_print(Text *text, Graph *graph);

/* The same with a comment after each param line of a storage that has data:
 *     # norm 3.9 min -0.41 max 0.4 zeros 0 hash 53e0...
 * norm is the square root of the sum of squares, zeros the number of elements equal to
 * 0, hash the tensor_hash. A NaN element makes the norm nan. Reads all weights. */
void graph_print_values(Text *text, Graph *graph);

/* The same in version 2, with or without the comments. */
void graph_print_named(Text *text, Graph *graph, bool values);

/* Parses `length` bytes of text into a new graph in `arena` and verifies it; `file` names
 * the text in messages and is copied. Storages have shapes and no weights. Untrusted
 * text is fine: size, depth, names and numbers are checked, and an undefined or later
 * defined operand is an error. Fails with STATUS_FORMAT. */
Status graph_parse(Graph **out, Arena *arena, const OpTable *ops, const char *file,
                   const char *text, size_t length, Diag *diag);

/* Parses one line of attributes ("heads=4 act=gelu") into a map of located values. */
Status attrs_parse(Tree **out, Arena *arena, Loc at, const char *text, size_t length,
                   Diag *diag);

#endif

/* Name rules: a name map, which gives the tensors of a checkpoint the names that a
 * family's graph uses. A YAML file (docs/name-maps.md):
 *
 *     rules:
 *       - match: blocks\.(\d+)\.attn\.qkv\.(weight|bias)
 *         to: vit.encoder.layer.$1.attention.attention.$part.$2
 *         split: [query, key, value]
 */
#ifndef COMPRESS_IO_FORMATS_NAME_RULES_H
#define COMPRESS_IO_FORMATS_NAME_RULES_H

#include "io/formats/checkpoint.h"

typedef struct NameRules NameRules;

/* Reads and checks a file of rules. Fails with STATUS_IO, STATUS_RECIPE for errors in
 * the rules, or STATUS_FORMAT for an invalid expression. */
Status name_rules_read(NameRules **out, const char *path, Diag *diag);

/* The same for a text; `file` names it in messages and must outlive the rules. */
Status name_rules_parse(NameRules **out, const char *file, const char *text,
                        size_t length, Diag *diag);

/* Key of the dict in a PyTorch file that the names belong to; NULL = not given. */
const char *name_rules_from(const NameRules *rules);

/* A checkpoint with the tensors of `from` under their new names: each by the first rule
 * that matches its whole old name, split, transposed or left out as the rule says.
 * Unchanged data is shared. Fails with STATUS_RECIPE for a tensor that no rule matches,
 * a rule that matches no tensor, a shape that does not fit its rule, and two tensors
 * with one name. */
Status name_rules_apply(Checkpoint **out, const NameRules *rules, const Checkpoint *from,
                        Diag *diag);

/* Frees the rules. NULL is allowed. */
void name_rules_destroy(NameRules *rules);

#endif

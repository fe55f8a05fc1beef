/* Name rules: a name map, by which the tensors of a checkpoint get the names that a
 * family's graph has for them. A YAML file (docs/name-maps.md):
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

/* Reads and checks a file of rules. Fails with STATUS_IO, or STATUS_RECIPE for what is
 * wrong with the rules, STATUS_FORMAT for an expression that is none. */
Status name_rules_read(NameRules **out, const char *path, Diag *diag);

/* The same of a text; `file` names it in messages and outlives the rules. */
Status name_rules_parse(NameRules **out, const char *file, const char *text,
                        size_t length, Diag *diag);

/* Key of the dict in a PyTorch file that the names are those of; NULL = not said. */
const char *name_rules_from(const NameRules *rules);

/* A checkpoint of the tensors that `from` has under their new names: each by the first
 * rule that matches all of its old name, split, turned or left out as the rule says. Data
 * is shared where it stays as it is. Fails with STATUS_RECIPE for a tensor that no rule
 * matches, a rule that matches no tensor, a shape that a rule does not fit, and two
 * tensors of one name. */
Status name_rules_apply(Checkpoint **out, const NameRules *rules, const Checkpoint *from,
                        Diag *diag);

/* Frees the rules. NULL is allowed. */
void name_rules_destroy(NameRules *rules);

#endif

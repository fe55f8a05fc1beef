/* Packed: the forms in which inference keeps weights.
 *
 * Quantised weights that a linear multiplies with are packed once; their other readers
 * decide whether they are also kept as floats. Other weights are packed too if
 * exec/linalg/products.h says so, unless exec/run/params.h leaves them unchanged, to be
 * packed while they are multiplied. */
#ifndef COMPRESS_EXEC_LINALG_PACKED_H
#define COMPRESS_EXEC_LINALG_PACKED_H

#include "exec/linalg/gemv.h"
#include "ir/graph.h"

/* Forms that a linear reads: with x unchanged, with weights stored transposed (floats
 * only), and with x rounded to 8 bits. */
enum { PACKED_WEIGHTS, PACKED_TURNED, PACKED_WHOLE, PACKED_FORMS };

/* A set of them. */
typedef unsigned PackedForms;
#define PACKED_IN(form) (1u << (form))
#define PACKED_ROWS     (1u << PACKED_FORMS)       /* rows as they are stored */
#define PACKED_FLOATS   (1u << (PACKED_FORMS + 1)) /* floats as well */

/* All forms in which the users of a storage read it; 0 = only floats, and nothing is
 * packed. */
PackedForms packed_forms(const Graph *graph, const Storage *storage);

/* The form in which a node would read packed weights, its operand `operand`; -1 = none.
 */
int packed_form_of(const Node *node, int operand);

/* How the weights of a tensor are kept in a form; the whole matrix, without data. */
StepWeights packed_kind(const Tensor *tensor, int form);
Matrix packed_matrix(const Tensor *tensor, int form);

#endif

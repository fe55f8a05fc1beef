/* Packed: in which forms inference keeps weights.
 *
 * Quantised weights that a linear multiplies with are packed once, and what reads them
 * otherwise decides whether they are kept as floats beside that. So are others where
 * exec/linalg/products.h says so, unless exec/run/params.h leaves them as they are, to be
 * packed while they are multiplied. */
#ifndef COMPRESS_EXEC_LINALG_PACKED_H
#define COMPRESS_EXEC_LINALG_PACKED_H

#include "exec/linalg/gemv.h"
#include "ir/graph.h"

/* Forms that a linear reads: with x as it is, with weights that are stored transposed
 * (floats alone), and with x rounded to 8 bits. */
enum { PACKED_WEIGHTS, PACKED_TURNED, PACKED_WHOLE, PACKED_FORMS };

/* A set of them. */
typedef unsigned PackedForms;
#define PACKED_IN(form) (1u << (form))
#define PACKED_ROWS     (1u << PACKED_FORMS)       /* rows as they are stored */
#define PACKED_FLOATS   (1u << (PACKED_FORMS + 1)) /* floats as well */

/* The forms in which the users of a storage read it, together; 0 = floats alone, and
 * nothing is packed. */
PackedForms packed_forms(const Graph *graph, const Storage *storage);

/* The form in which a node would read packed weights, its operand `operand`; -1 = none.
 */
int packed_form_of(const Node *node, int operand);

/* How the weights of a tensor are kept in a form; the whole matrix, without data. */
StepWeights packed_kind(const Tensor *tensor, int form);
Matrix packed_matrix(const Tensor *tensor, int form);

#endif

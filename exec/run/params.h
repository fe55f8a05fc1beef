/* Params: the weights of a graph, in the precision used for computing. */
#ifndef COMPRESS_EXEC_RUN_PARAMS_H
#define COMPRESS_EXEC_RUN_PARAMS_H

#include "exec/linalg/onednn.h"
#include "exec/linalg/packed.h"
#include "exec/ops.h"
#include "exec/plan/plan.h"
#include "ir/graph.h"

typedef struct Params Params;

/* Prepares a graph's weights. Storages already in the right dtype are used in place
 * (mapped files stay mapped); others are converted. With `train`, the storages that are
 * not frozen are gathered, in order, into one flat array, and the graph's tensors become
 * views of it (so training changes the model in place; f32 only). Fails with
 * STATUS_MODEL when a storage has no weights, STATUS_MEMORY. The graph must outlive it.
 */
Status params_create(Params **out, Graph *graph, Precision precision, bool train,
                     Diag *diag);

/* The same only for inference in f32, without a backward run and without changes of
 * weights: storages that only products and look-ups read are kept packed, or as they are
 * stored (exec/linalg/packed.h says when), so params_data returns NULL for them.
 * Quantised ones always are. Floats that lie in memory ready for multiplication are
 * packed if the graph will be run about PARAMS_OFTEN times or more and a second copy is
 * cheap; otherwise every product packs them, and results have the same bytes. A copy is
 * cheap for mapped files, whose pages are given back if nothing else reads them, and if
 * everything that lies elsewhere takes no more than PARAMS_COPY_BYTES. PARAMS_ALWAYS: at
 * any cost. */
enum { PARAMS_OFTEN = 8 };
#define PARAMS_ALWAYS     INT64_MAX
#define PARAMS_COPY_BYTES ((size_t)64 << 20)
Status params_create_packed(Params **out, Graph *graph, int64_t runs, Diag *diag);

/* The same for inference in f32 over a graph that is run a few times, without float
 * copies of f16 and bf16 weights: if only linears multiply with them, products convert a
 * few rows at a time, and their sums are those of packed weights; embeddings read rows
 * as they are stored. All others are as in params_create, as are all weights if products
 * are not those of packed weights (exec/linalg/products.h). */
Status params_create_stored(Params **out, Graph *graph, Diag *diag);

/* Bytes of the floats that are then read from a storage, converted or in place; 0 if the
 * numbers are read as stored. From shapes only. */
size_t params_stored_bytes(const Graph *graph, const Storage *storage);

/* Bytes of scratch for products that pack their weights, in addition to the plan's.
 */
size_t params_room_bytes(const Params *params);

/* Bytes of weights that a graph runs with after params_create_packed: packed ones, those
 * looked up as stored, and float ones, mapped or not, each counted once and without the
 * padding of packed float matrices to whole panels. From shapes only. */
int64_t params_packed_bytes(const Graph *graph);

/* Most bytes that weights prepared for inference take in addition to the model's: floats
 * of what is stored in other types, packed forms, and copies of floats up to
 * PARAMS_COPY_BYTES. From shapes only. */
size_t params_copied_bytes(const Graph *graph);

/* Frees what params_create allocated; trained weights stay with the graph. While
 * resident memory is bounded (ir/resident.h), pages of mapped weights are given back. */
void params_destroy(Params *params);

/* Weights of one storage (float * or double *), as the kernels read them; NULL if they
 * are not kept in that form. */
const void *params_data(const Params *params, const Storage *storage);

/* Operand `operand` of a node as packed weights, NULL if it is not packed. */
const Matrix *params_packed(const Params *params, const Node *node, int operand);

/* Operand `operand` of a node as weights packed by oneDNN (params_create_packed, if
 * exec/linalg/products.h says so), NULL if it is not. */
const OnednnMatrix *params_onednn(const Params *params, const Node *node, int operand);

/* Also keeps the weights in bfloat16, for plans of the graph with `bf16`, of which this
 * is one: see exec/run/rounded.h. Call before any workspace is bound to the two. Fails
 * with STATUS_MEMORY. */
Status params_open_rounded(Params *params, const Plan *plan, Diag *diag);

/* Rounds the current weights; does nothing without params_open_rounded. Not while they
 * are in use. */
void params_round(Params *params, int threads);

/* The rounded weights of a storage; NULL if there are none. */
const struct Bf16Matrix *params_rounded(const Params *params, const Storage *storage);

/* Flat array of the trainable weights and its length in elements; NULL and 0 when not
 * created with `train`. Storage s lies at [params_offset(s), + its count); -1 = frozen.
 */
float *params_flat(Params *params);
int64_t params_flat_count(const Params *params);
int64_t params_offset(const Params *params, const Storage *storage);

/* Elements that a plan's backward run adds gradients to: every trainable storage of the
 * graph at params_offset, in either precision (offsets are the same without `train`). */
int64_t params_gradient_count(const Params *params);

/* Another reference; params_destroy drops one. */
Params *params_retain(const Params *params);

/* Precision the weights were prepared in. */
Precision params_precision(const Params *params);

#endif

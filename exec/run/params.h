/* Params: the weights of a graph, in the precision they are computed in. */
#ifndef COMPRESS_EXEC_RUN_PARAMS_H
#define COMPRESS_EXEC_RUN_PARAMS_H

#include "exec/linalg/onednn.h"
#include "exec/linalg/packed.h"
#include "exec/ops.h"
#include "exec/plan/plan.h"
#include "ir/graph.h"

typedef struct Params Params;

/* Makes a graph's weights ready. Storages already in the right dtype are used where they
 * are (mapped files stay mapped); others are converted. With `train`, the storages that
 * are not frozen are gathered, in order, into one flat array, and the graph's tensors
 * become views of it (so training changes the model in place; f32 only). Fails with
 * STATUS_MODEL when a storage has no weights, STATUS_MEMORY. The graph must outlive it.
 */
Status params_create(Params **out, Graph *graph, Precision precision, bool train,
                     Diag *diag);

/* The same for inference in f32 alone, which no backward run follows and during which no
 * weights change: storages that only products and look-ups read are kept packed, and as
 * they are stored (exec/linalg/packed.h says when), so that params_data gives NULL for
 * them. Quantised ones always. Floats that lie in memory as they are multiplied: where
 * the graph will be run about PARAMS_OFTEN times or more and a second copy is cheap;
 * otherwise every product packs them, to the same bytes of results. It is cheap in mapped
 * files, whose pages are given back where nobody else reads them, and where all that lies
 * elsewhere takes no more than PARAMS_COPY_BYTES. PARAMS_ALWAYS: whatever it takes. */
enum { PARAMS_OFTEN = 8 };
#define PARAMS_ALWAYS     INT64_MAX
#define PARAMS_COPY_BYTES ((size_t)64 << 20)
Status params_create_packed(Params **out, Graph *graph, int64_t runs, Diag *diag);

/* The same for inference in f32 over a graph that is run a few times, without floats of
 * weights of f16 and bf16: where linears alone multiply with them, products make floats
 * of a few rows at a time, and their sums are those of packed weights; embeddings read
 * rows as they are stored. All others are as params_create has them, as all are where
 * products are not those of packed weights (exec/linalg/products.h). */
Status params_create_stored(Params **out, Graph *graph, Diag *diag);

/* Bytes of the floats that are read of a storage then, made or where they lie; 0 where
 * the numbers are read as they are stored. From shapes alone. */
size_t params_stored_bytes(const Graph *graph, const Storage *storage);

/* Bytes of scratch that products need which pack their weights, beside what a plan says.
 */
size_t params_room_bytes(const Params *params);

/* Bytes of weights that params_create_packed makes a graph run with: packed ones, those
 * that are looked up as they are stored, and float ones, mapped or not, each counted once
 * and without what fills a packed float matrix up to whole panels. From shapes alone. */
int64_t params_packed_bytes(const Graph *graph);

/* Bytes at most that weights made ready for inference take beside those of the model:
 * floats of what is stored in other types, packed forms, and copies of floats up to
 * PARAMS_COPY_BYTES. From shapes alone. */
size_t params_copied_bytes(const Graph *graph);

/* Frees what params_create allocated; trained weights stay with the graph. While what
 * stays in memory is bounded (ir/resident.h), pages of mapped weights are given back. */
void params_destroy(Params *params);

/* Weights of one storage (float * or double *), as the kernels read them; NULL where they
 * are not kept in that form. */
const void *params_data(const Params *params, const Storage *storage);

/* Operand `operand` of a node as packed weights, NULL where it is none. */
const Matrix *params_packed(const Params *params, const Node *node, int operand);

/* Operand `operand` of a node as weights that oneDNN has packed (params_create_packed,
 * where exec/linalg/products.h says so), NULL where it is none. */
const OnednnMatrix *params_onednn(const Params *params, const Node *node, int operand);

/* Keeps the weights in bfloat16, too, for plans of the graph with `bf16`, of which this
 * is one: see exec/run/rounded.h. Before any workspace is bound to the two. Fails with
 * STATUS_MEMORY. */
Status params_open_rounded(Params *params, const Plan *plan, Diag *diag);

/* Rounds the weights as they are now; nothing without params_open_rounded. Not while
 * they are used. */
void params_round(Params *params, int threads);

/* The rounded weights of a storage; NULL where there are none. */
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

/* Precision the weights were made ready in. */
Precision params_precision(const Params *params);

#endif

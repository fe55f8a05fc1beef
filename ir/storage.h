/* Storages: the one way in which weights, and all that hangs on them, are changed.
 *
 * Four things belong together: a storage's values, the type of the leaf that names it,
 * its lineage (which indices of the original remain) and its Gaussian (what is known of
 * the values). The functions here change them as one. Where a storage has no values
 * (planning) they work on its shape alone: a pass does the same whether it plans or runs.
 *
 * Leaves are shared: two layers with the same weights read one leaf. An edit is therefore
 * meant for users, and the caller says which. Where anybody else reads the leaf,
 * functions that change what it gives fail with STATUS_MODEL and name both;
 * storage_separate gives the users a copy of their own first, where that is what is
 * wanted.
 *
 * Graphs that are thrown away after a measurement may be edited in the same way. */
#ifndef COMPRESS_IR_STORAGE_H
#define COMPRESS_IR_STORAGE_H

#include "ir/graph.h"

/* The nodes that an edit is meant for: every operand of theirs that is the leaf. */
typedef struct StorageUsers {
    Node *const *nodes; /* borrowed; NULL = whoever reads it */
    int count;
} StorageUsers;

/* Whoever reads the leaf, and one node alone. */
#define STORAGE_ALL_USERS  ((StorageUsers){NULL, 0})
#define STORAGE_USER(node) ((StorageUsers){(Node *const[]){node}, 1})

/* ---- reading ---- */

/* Shape and values; borrowed until the storage is edited. */
const Tensor *storage_tensor(const Storage *storage);

/* Whether it has values; without them a model is planned, or they are drawn later. */
bool storage_has_data(const Storage *storage);

/* All values in double, of a matrix its transpose where `turned`; to be freed. Fails with
 * STATUS_MEMORY. */
Status storage_read_f64(double **out, const Storage *storage, bool turned, Diag *diag);

/* What is known of the values, NULL = nothing; borrowed until the storage is edited. */
const Gaussian *storage_gaussian(const Storage *storage);

/* ---- making ---- */

/* Adds a float32 storage without values, drawn later from `init`, and its leaf. The name
 * becomes another one when it is taken (graph_fresh_name). Fails with STATUS_MODEL. */
Status storage_create(Node **leaf, Graph *graph, const char *name, Init init, int rank,
                      const int64_t *dim, Diag *diag);

/* Gives a storage all that another one of its shape has, except its name: values (shared
 * until written), lineage, Gaussian, initial distribution and flags. The arena is that of
 * its graph. */
void storage_copy(Arena *arena, Storage *storage, const Storage *from);

/* Room for values that are computed from those of `from`: zeroed, with `*data` writable;
 * a shape alone, and `*data` NULL, where `from` has none. Fails with STATUS_MEMORY. */
Status storage_blank(Tensor *out, void **data, const Storage *from, DType dtype, int rank,
                     const int64_t *dim, Diag *diag);

/* ---- who uses it ---- */

/* Whether `users` alone read the leaf: no other node, no output. */
bool storage_used_by(const Graph *graph, const Node *leaf, StorageUsers users);

/* Fails with STATUS_MODEL, naming the storage and both, when a node or output that is
 * none of `users` reads the leaf. */
Status storage_check_users(const Graph *graph, const Node *leaf, StorageUsers users,
                           Diag *diag);

/* Sees to it that `users` alone read the leaf: where somebody else does, they get a new
 * one of the same values (shared until written), lineage, Gaussian, initial distribution
 * and flags in its place. `*leaf` becomes the one that they read then. Fails with
 * STATUS_MODEL. */
Status storage_separate(Node **leaf, Graph *graph, StorageUsers users, Diag *diag);

/* ---- changing ---- */

/* Keeps entries keep[0..count), increasing, of an axis: the Gaussian becomes the marginal
 * of what remains. The type stays, except that a q4 becomes float32 unless the axis is
 * the first. Fails with STATUS_MEMORY; nothing is changed then. */
Status storage_keep(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const int64_t *keep, int64_t count, Diag *diag);

/* Puts computed values in place of a storage's, taking over the reference (also when it
 * fails): nothing is known of them, so the Gaussian goes. The shape may differ along
 * `axis` alone, whose entries are no longer those of the original; -1 = no axis. What was
 * drawn as an identity and is square no more is drawn from a truncated normal of 0.02. */
Status storage_replace(Graph *graph, Node *leaf, StorageUsers users, Tensor values,
                       int axis, Diag *diag);

/* Puts axes of size 1 in front of the shape, up to `rank`; quantised values become
 * float32, as their rows would be others. */
Status storage_raise_rank(Graph *graph, Node *leaf, StorageUsers users, int rank,
                          Diag *diag);

/* Makes a matrix its transpose, with the lineages of its axes; the Gaussian goes. Values
 * keep their type, which must not be quantised. Fails with STATUS_MEMORY. */
Status storage_turn(Graph *graph, Node *leaf, StorageUsers users, Diag *diag);

/* The entries of an axis are counted anew: those that it has are the original's now. */
void storage_forget_lineage(Storage *storage, int axis);

/* The entries of an axis are none of the original's: it has no lineage, nor has what
 * pruning leaves of it. */
void storage_lose_lineage(Storage *storage, int axis);

/* Makes operand `operand` of all users one leaf, that of the first. No values change, so
 * it may have other users as well. The operands must be stored and of one shape. */
void storage_share(StorageUsers users, const char *operand);

/* Makes operand `operand` of all users, stored and of one shape, one leaf with the mean
 * of their values, summed in double in the order of the users, as float32; the Gaussian
 * becomes that of the mean where that has one (gaussian_average). Other users of the
 * leaves keep what they have: the mean goes into the first one that only `users` read, or
 * else into a copy of the first. Leaves that are one already stay as they are. Fails with
 * STATUS_MEMORY. */
Status storage_merge(Graph *graph, StorageUsers users, const char *operand, Diag *diag);

/* The same with given values, computed otherwise, whose reference is taken over; nothing
 * is known of them, so the Gaussian goes. */
Status storage_merge_into(Graph *graph, StorageUsers users, const char *operand,
                          Tensor values, Diag *diag);

/* Splits a matrix [n, m] into left [n, r] and right [m, r] with the leaf ~ left right^T,
 * taking over both references: the leaf becomes `left`, `*second` a new one called `name`
 * (or what is free) for `right`. Lineage of the rows stays with left, that of the columns
 * goes with right; both are frozen and drawn like the leaf, and the Gaussian goes. */
Status storage_factor(Node **second, Graph *graph, Node *leaf, StorageUsers users,
                      Tensor left, Tensor right, const char *name, Diag *diag);

/* Makes two matrices of one, taking over both references: axis `axis` of the leaf becomes
 * an inner one of r entries, and `*outer`, a new leaf called `name` (or what is free),
 * has the axis at the same place. So W[n, m] with axis 1 is inner[n, r] outer[r, m], and
 * with axis 0 outer[n, r] inner[r, m]. Lineages stay with the axes that are left; the new
 * one is frozen and drawn like the leaf, and the Gaussian goes. Fails with STATUS_MODEL.
 */
Status storage_split(Node **outer, Graph *graph, Node *leaf, StorageUsers users, int axis,
                     Tensor inner, Tensor values, const char *name, Diag *diag);

/* The reverse: puts `product` in place of the leaf, taking over the reference; its axis
 * `axis` has the lineage of that of `outer`, which stays until nobody reads it. */
Status storage_join(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const Node *outer, Tensor product, Diag *diag);

/* ---- other values of the same parameters ---- */

/* Forgets the values, to be drawn anew as float32 (model_init_weights). */
void storage_redraw(Storage *storage);

/* Gives a storage the values of another one of its shape, shared until written, with
 * their element type. What is known of it stays. */
void storage_copy_values(Storage *storage, const Storage *from);

/* Puts values of the same shape in place of a storage's and takes over the reference:
 * training, or a draw. What is known of it stays. */
void storage_set_values(Storage *storage, Tensor values);

/* Makes the values float32. Fails with STATUS_MEMORY. */
Status storage_to_f32(Storage *storage, Diag *diag);

/* Copies values from `from` to the storages of the same names. */
void graph_take_weights(Graph *graph, const Graph *from);

/* ---- what is known of them ---- */

/* Gives a storage a Gaussian that fits it (gaussian_fits) in place of its own; NULL =
 * none. It is in the graph's arena, its data becomes the storage's. */
void storage_set_gaussian(Storage *storage, Gaussian *gaussian);

/* The Gaussian, for whoever changes its numbers and not its shape; NULL = none. */
Gaussian *storage_edit_gaussian(Storage *storage);

/* Drops a storage's Gaussian, if it has one; or all of a graph's. */
void storage_drop_gaussian(Storage *storage);
void graph_drop_gaussians(Graph *graph);

/* Sets the values to the Gaussian's mean, as float32. Fails with STATUS_MEMORY. */
Status storage_take_mean(Storage *storage, Diag *diag);

/* Copies the Gaussians of `from` to the storages of the same names; those of storages
 * that have none in `from`, or are not in it, go. */
void graph_take_gaussians(Graph *graph, const Graph *from);

/* Number of storages that lost their Gaussian since this was asked last, and the name of
 * the first: edits that it cannot follow drop it. */
int graph_take_dropped(Graph *graph, const char **first);

/* Number of storages with a Gaussian. */
int graph_gaussian_count(const Graph *graph);

/* Checks the Gaussians of a graph as a whole: they fit, their origins are one, and all of
 * form low_rank have the same K. Numbers are not read. Fails with `status`. */
Status graph_check_gaussians(const Graph *graph, Status status, Diag *diag);

#endif

/* Storages: the only way to change weights and everything attached to them.
 *
 * Four things belong together: a storage's values, the type of the leaf that names it,
 * its lineage (which indices of the original remain) and its Gaussian (what is known
 * about the values). The functions here change them together. If a storage has no values
 * (planning) they work on its shape alone: a pass does the same whether it plans or
 * runs.
 *
 * Leaves are shared: two layers with the same weights read one leaf. An edit is
 * therefore meant for certain users, and the caller says which. If any other node reads
 * the leaf, functions that change its value fail with STATUS_MODEL and name both; to
 * avoid that, storage_separate first gives the users their own copy.
 *
 * Graphs that are thrown away after a measurement may be edited in the same way. */
#ifndef COMPRESS_IR_STORAGE_H
#define COMPRESS_IR_STORAGE_H

#include "ir/graph.h"

/* The nodes that an edit is meant for: all of their operands that are the leaf. */
typedef struct StorageUsers {
    Node *const *nodes; /* borrowed; NULL = all readers */
    int count;
} StorageUsers;

/* All readers of the leaf, and a single node. */
#define STORAGE_ALL_USERS  ((StorageUsers){NULL, 0})
#define STORAGE_USER(node) ((StorageUsers){(Node *const[]){node}, 1})

/* ---- reading ---- */

/* Shape and values; borrowed until the storage is edited. */
const Tensor *storage_tensor(const Storage *storage);

/* Whether it has values; without them a model is being planned, or they are drawn
 * later. */
bool storage_has_data(const Storage *storage);

/* All values in double, of a matrix its transpose where `turned`; to be freed. Fails with
 * STATUS_MEMORY. */
Status storage_read_f64(double **out, const Storage *storage, bool turned, Diag *diag);

/* What is known about the values, NULL = nothing; borrowed until the storage is
 * edited. */
const Gaussian *storage_gaussian(const Storage *storage);

/* ---- making ---- */

/* Adds a float32 storage without values, drawn later from `init`, and its leaf. If the
 * name is taken, another is chosen (graph_fresh_name). Fails with STATUS_MODEL. */
Status storage_create(Node **leaf, Graph *graph, const char *name, Init init, int rank,
                      const int64_t *dim, Diag *diag);

/* Gives a storage everything of another one of its shape, except its name: values
 * (shared until written), lineage, Gaussian, initial distribution and flags. The arena
 * is that of its graph. */
void storage_copy(Arena *arena, Storage *storage, const Storage *from);

/* Room for values computed from those of `from`: zeroed, with `*data` writable; only a
 * shape, and `*data` NULL, if `from` has no values. Fails with STATUS_MEMORY. */
Status storage_blank(Tensor *out, void **data, const Storage *from, DType dtype, int rank,
                     const int64_t *dim, Diag *diag);

/* ---- its users ---- */

/* Whether only `users` read the leaf: no other node, no output. */
bool storage_used_by(const Graph *graph, const Node *leaf, StorageUsers users);

/* Fails with STATUS_MODEL, naming the storage and both, if a node or output other than
 * `users` reads the leaf. */
Status storage_check_users(const Graph *graph, const Node *leaf, StorageUsers users,
                           Diag *diag);

/* Ensures that only `users` read the leaf: if others do, `users` get a new one instead,
 * with the same values (shared until written), lineage, Gaussian, initial distribution
 * and flags. `*leaf` becomes the one that they then read. Fails with STATUS_MODEL. */
Status storage_separate(Node **leaf, Graph *graph, StorageUsers users, Diag *diag);

/* ---- changing ---- */

/* Keeps entries keep[0..count), increasing, of an axis: the Gaussian becomes the marginal
 * of what remains. The type stays, except that a q4 becomes float32 unless the axis is
 * the first. Fails with STATUS_MEMORY; nothing is changed then. */
Status storage_keep(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const int64_t *keep, int64_t count, Diag *diag);

/* Replaces a storage's values by computed ones, taking over the reference (also on
 * failure): nothing is known about them, so the Gaussian is dropped. The shape may
 * differ only along `axis`, whose entries are no longer those of the original; -1 = no
 * axis. A storage initialised as an identity that is no longer square gets a truncated
 * normal of 0.02 instead. */
Status storage_replace(Graph *graph, Node *leaf, StorageUsers users, Tensor values,
                       int axis, Diag *diag);

/* Prepends axes of size 1 to the shape, up to `rank`; quantised values become float32,
 * since their rows would change. */
Status storage_raise_rank(Graph *graph, Node *leaf, StorageUsers users, int rank,
                          Diag *diag);

/* Transposes a matrix, with the lineages of its axes; the Gaussian is dropped. Values
 * keep their type, which must not be quantised. Fails with STATUS_MEMORY. */
Status storage_turn(Graph *graph, Node *leaf, StorageUsers users, Diag *diag);

/* Renumbers the entries of an axis: its present ones now count as the original's. */
void storage_forget_lineage(Storage *storage, int axis);

/* Declares that none of an axis's entries are the original's: it has no lineage, nor has
 * what pruning leaves of it. */
void storage_lose_lineage(Storage *storage, int axis);

/* Makes operand `operand` of all users the same leaf, that of the first. No values
 * change, so the leaf may have other users as well. The operands must be stored and of
 * one shape. */
void storage_share(StorageUsers users, const char *operand);

/* Makes operand `operand` of all users, stored and of one shape, the same leaf with the
 * mean of their values, summed in double in the order of the users, as float32; the
 * Gaussian becomes that of the mean if it has one (gaussian_average). Other users of the
 * leaves keep what they have: the mean goes into the first one that only `users` read,
 * or else into a copy of the first. If they already are the same leaf nothing changes.
 * Fails with STATUS_MEMORY. */
Status storage_merge(Graph *graph, StorageUsers users, const char *operand, Diag *diag);

/* The same with given values, whose reference is taken over; nothing is known about
 * them, so the Gaussian is dropped. */
Status storage_merge_into(Graph *graph, StorageUsers users, const char *operand,
                          Tensor values, Diag *diag);

/* Splits a matrix [n, m] into left [n, r] and right [m, r] with the leaf ~ left right^T,
 * taking over both references: the leaf becomes `left`, `*second` a new one called
 * `name` (or a free name like it) for `right`. The lineage of the rows stays with left,
 * that of the columns goes to right; both are frozen and drawn like the leaf, and the
 * Gaussian is dropped. */
Status storage_factor(Node **second, Graph *graph, Node *leaf, StorageUsers users,
                      Tensor left, Tensor right, const char *name, Diag *diag);

/* Splits one matrix into two, taking over both references: axis `axis` of the leaf
 * becomes an inner one of r entries, and `*outer`, a new leaf called `name` (or a free
 * name like it), has the axis at the same place. So W[n, m] with axis 1 is inner[n, r]
 * outer[r, m], and with axis 0 outer[n, r] inner[r, m]. Lineages stay with the remaining
 * axes; the new leaf is frozen and drawn like the old one, and the Gaussian is dropped.
 * Fails with STATUS_MODEL.
 */
Status storage_split(Node **outer, Graph *graph, Node *leaf, StorageUsers users, int axis,
                     Tensor inner, Tensor values, const char *name, Diag *diag);

/* The reverse: replaces the leaf's values by `product`, taking over the reference; its
 * axis `axis` has the lineage of that of `outer`, which stays as long as something reads
 * it. */
Status storage_join(Graph *graph, Node *leaf, StorageUsers users, int axis,
                    const Node *outer, Tensor product, Diag *diag);

/* ---- other values of the same parameters ---- */

/* Forgets the values, to be drawn anew as float32 (model_init_weights). */
void storage_redraw(Storage *storage);

/* Gives a storage the values of another one of its shape, shared until written, with
 * their element type. What is known about it stays. */
void storage_copy_values(Storage *storage, const Storage *from);

/* Replaces a storage's values by others of the same shape and takes over the reference:
 * for training, or a draw. What is known about it stays. */
void storage_set_values(Storage *storage, Tensor values);

/* Makes the values float32. Fails with STATUS_MEMORY. */
Status storage_to_f32(Storage *storage, Diag *diag);

/* Copies values from `from` to the storages of the same names. */
void graph_take_weights(Graph *graph, const Graph *from);

/* ---- what is known about them ---- */

/* Gives a storage a Gaussian that fits it (gaussian_fits) instead of its own; NULL =
 * none. It is in the graph's arena, and the storage takes over its data. */
void storage_set_gaussian(Storage *storage, Gaussian *gaussian);

/* The Gaussian, for code that changes its numbers but not its shape; NULL = none. */
Gaussian *storage_edit_gaussian(Storage *storage);

/* Drops a storage's Gaussian, if it has one; or all of a graph's. */
void storage_drop_gaussian(Storage *storage);
void graph_drop_gaussians(Graph *graph);

/* Sets the values to the Gaussian's mean, as float32. Fails with STATUS_MEMORY. */
Status storage_take_mean(Storage *storage, Diag *diag);

/* Copies the Gaussians of `from` to the storages of the same names; those of storages
 * that have none in `from`, or are not in it, are dropped. */
void graph_take_gaussians(Graph *graph, const Graph *from);

/* Number of storages that lost their Gaussian since the last call, and the name of the
 * first: edits that a Gaussian cannot follow drop it. */
int graph_take_dropped(Graph *graph, const char **first);

/* Number of storages with a Gaussian. */
int graph_gaussian_count(const Graph *graph);

/* Checks the Gaussians of a graph as a whole: they fit, have the same origin, and all of
 * form low_rank have the same K. Numbers are not read. Fails with `status`. */
Status graph_check_gaussians(const Graph *graph, Status status, Diag *diag);

#endif
